//! The command `stacks` as people run it, with the system's OpenSSL.

use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

#[test]
fn the_list_tells_version_path_digest_and_flags_of_each() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("stacks.json");
    let output = lab(cache.path(), &["stacks", "--json", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let stacks = list["stacks"].as_array().unwrap();
    let named = |name: &str| stacks.iter().find(|stack| stack["name"] == name);
    for name in ["sealane", "rustls-aws-lc", "rustls-graviola", "rustls-ring", "openssl"] {
        let stack = named(name).unwrap_or_else(|| panic!("{name} is missing"));
        let sum = Command::new("sha256sum").arg(stack["path"].as_str().unwrap()).output().unwrap();
        let digest = stack["sha256"].as_str().unwrap();
        assert!(String::from_utf8_lossy(&sum.stdout).starts_with(digest), "{stack}");
        assert!(!stack["build"].as_str().unwrap().is_empty(), "{stack}");
    }
    let openssl = named("openssl").unwrap();
    assert!(openssl["version"].as_str().unwrap().starts_with("OpenSSL "), "{openssl}");
    assert!(openssl["path"].as_str().unwrap().contains("libssl.so"), "{openssl}");
    let more = list["can_be_built"].as_array().unwrap();
    assert!(more.contains(&"openssl@3.5".into()) && more.contains(&"boringssl".into()), "{more:?}");

    let table = text(&output);
    let digest = openssl["sha256"].as_str().unwrap();
    assert!(table.contains(digest) && table.contains("sealane-lab stacks build"), "{table}");
}

#[test]
fn a_library_that_cannot_be_loaded_is_in_the_list_with_the_reason() {
    let cache = tempfile::tempdir().unwrap();
    let folder = library_folder(cache.path(), "openssl@3.5");
    fs::write(folder.join("libssl.so.3"), "no library at all").unwrap();
    let output = lab(cache.path(), &["stacks"]);
    let table = text(&output);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("CANNOT BE LOADED") && table.contains("openssl@3.5/lib"), "{table}");
    assert!(table.contains("rustls-ring\n  version  rustls"), "the others are there: {table}");
}

/// A stack by its path is measured; a file that is no libssl, or none, is named.
#[test]
fn a_path_is_a_stack_if_a_libssl_lies_there() {
    let cache = tempfile::tempdir().unwrap();
    let openssl = system_libssl(cache.path());
    let arguments = ["handshake", "--rounds=1", "--window-ms=20", "--threads=1", "--stack"];
    let output = lab(cache.path(), &[&arguments[..], &[openssl.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let libcrypto = openssl.with_file_name("libcrypto.so.3");
    for (path, reason) in [
        (libcrypto.to_str().unwrap(), "has no function SSL_"),
        ("/no/such/libssl.so", "No such file"),
        ("no-such-stack", "no stack is called no-such-stack"),
        ("openssl@4.0", "run: sealane-lab stacks build openssl@4.0"),
    ] {
        let output = lab(cache.path(), &[&arguments[..], &[path]].concat());
        let (told, figures) = (text(&output), String::from_utf8_lossy(&output.stdout));
        assert!(!output.status.success(), "{path}: {told}");
        assert!(told.contains(reason), "{path}: {told}");
        assert!(figures.is_empty(), "{path}: {told}");
    }
}

#[test]
fn a_libssl_by_its_path_stands_beside_the_others() {
    let cache = tempfile::tempdir().unwrap();
    let openssl = system_libssl(cache.path());
    let openssl = openssl.to_str().unwrap();
    let stacks = format!("sealane,openssl,{openssl}");
    let mut arguments = vec!["handshake", "--stack", &stacks, "--kind", "full,ticket"];
    arguments.extend(["--threads", "1,2,4", "--rounds", "1", "--window-ms", "20"]);
    let output = lab(cache.path(), &arguments);
    let text = text(&output);
    // Next to other work a round may starve: then its line says why there is no row.
    let starved = ": NO FIGURES: with ";
    assert_eq!(output.status.success(), !text.contains(starved), "{text}");
    for stack in ["sealane", "openssl", openssl] {
        let is_row = |line: &&str| {
            let rest = line.strip_prefix(stack);
            rest.is_some_and(|rest| rest.starts_with(' ') || rest.starts_with(starved))
        };
        let rows = text.lines().filter(is_row).count();
        assert!(rows >= 2 * 3, "{stack}: {text}");
    }
}

#[test]
fn what_is_there_is_not_built_again_and_what_is_unknown_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let library = library_folder(cache.path(), "openssl@3.5").join("libssl.so.3");
    symlink(system_libssl(cache.path()), library).unwrap();
    let output = lab(cache.path(), &["stacks", "build", "openssl@3.5"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("openssl@3.5 is there already"), "{}", text(&output));

    let output = lab(cache.path(), &["stacks", "build", "openssl@9"]);
    let told = text(&output);
    assert!(!output.status.success() && told.contains("openssl@1.1.1"), "{told}");
}

#[test]
fn missing_tools_are_named_with_their_packages_before_anything_is_done() {
    let cache = tempfile::tempdir().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let output = command(cache.path(), &["stacks", "build", "openssl@3.5", "boringssl"])
        .env("PATH", nothing.path())
        .output()
        .unwrap();
    let told = text(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("apt-get install cargo cmake g++ gcc make ninja-build perl"), "{told}");
    assert!(!cache.path().join("sealane").exists());
}

#[test]
fn sources_that_no_package_carries_are_asked_for_and_looked_at() {
    let cache = tempfile::tempdir().unwrap();
    let empty = cache.path().to_str().unwrap();
    for (arguments, wanted) in [
        (&["openssl@1.0.2"][..], "stacks build openssl@1.0.2 --from FOLDER"),
        (&["openssl@1.0.2", "--from", empty], "crypto/opensslv.h: No such file"),
        (&["openssl@3.5", "--from", empty], "comes from the package openssl-src"),
    ] {
        let output = lab(cache.path(), &[&["stacks", "build"], arguments].concat());
        assert!(!output.status.success() && text(&output).contains(wanted), "{}", text(&output));
        assert!(!cache.path().join("sealane").exists());
    }
}

#[test]
fn two_builds_at_once_do_not_touch_each_other() {
    let cache = tempfile::tempdir().unwrap();
    let stacks = cache.path().join("sealane").join("stacks");
    fs::create_dir_all(&stacks).unwrap();
    let mut lock = fs::File::create(stacks.join(".lock")).unwrap();
    writeln!(lock, "4711").unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let output = lab(cache.path(), &["stacks", "build", "openssl@3.5"]);
    let told = text(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("being built by process 4711; wait for it"), "{told}");
    assert!(!stacks.join(".work").exists());
}

fn lab(cache: &Path, arguments: &[&str]) -> Output {
    command(cache, arguments).output().unwrap()
}

/// With a cache of its own, so that what this machine has built changes nothing.
fn command(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.args(arguments).env("XDG_CACHE_HOME", cache).current_dir(cache);
    command
}

/// Where the lab says that the system's libssl lies.
fn system_libssl(cache: &Path) -> PathBuf {
    let empty = cache.join("empty");
    fs::create_dir_all(&empty).unwrap();
    let output = lab(&empty, &["trial", r#"{"task":"identity","stack":"openssl"}"#]);
    let line = String::from_utf8_lossy(&output.stdout);
    let line: Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    line["path"].as_str().unwrap_or_else(|| panic!("{line}")).into()
}

fn library_folder(cache: &Path, name: &str) -> PathBuf {
    let folder = cache.join("sealane").join("stacks").join(name).join("lib");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
