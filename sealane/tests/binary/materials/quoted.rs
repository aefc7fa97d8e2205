//! A file that is not the configuration is never quoted: a path in the configuration may be that of
//! a private key, by mistake or by a user that may write configurations but not read keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::sealane::{BINARY, Sealane, Settings, replace};

use super::Rig;

/// Parts of the private key that no output may have.
struct Secret(Vec<String>);

impl Secret {
    /// Writes a key with lines of base64 in PEM, and the same without the armor.
    fn write(folder: &Path) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let text = key.serialize_pem();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('-')).collect();
        let bare: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(folder.join("secret.key"), &text).unwrap();
        fs::write(folder.join("bare.key"), bare).unwrap();
        for name in ["secret.key", "bare.key"] {
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(folder.join(name), mode).unwrap();
        }
        // A part of a line gives a key away as well.
        Self(lines.iter().map(|line| line[..16].to_owned()).collect())
    }

    fn assert_absent(&self, output: &[u8], what: &str) {
        let output = String::from_utf8_lossy(output);
        for part in &self.0 {
            assert!(!output.contains(part.as_str()), "{what} quotes the key:\n{output}");
        }
    }
}

/// Every key of a listener, and of the process, that takes a path, where a start goes on without.
fn materials(file: &str) -> (String, String) {
    let process = format!(
        "tickets.root = \"{file}\"\nstore_key.file = \"{file}\"\naccess_log.path = \"{file}/log\"\n\
         process.sandbox_read = [\"{file}\"]\n"
    );
    let listener = format!(
        "backends = [\"tls://localhost:1\"]\nallow = [\"file:{file}\"]\ndeny = [\"file:{file}\"]\n\
         [listener.clients]\ncertificates = \"required\"\n\
         roots = [\"{file}\"]\ncrls = [\"{file}\"]\n[listener.backend_tls]\nroots = [\"{file}\"]\n\
         client_certificate = \"{file}\"\n"
    );
    (process, listener)
}

#[test]
fn no_output_quotes_the_file_of_a_material() {
    for file in ["secret.key", "bare.key"] {
        let mut rig = Rig::new(&[(file, "")]);
        let secret = Secret::write(rig.folder.path());
        let (process, listener) = materials(file);
        rig.settings.more = process;
        rig.settings.listeners[0].backends.clear();
        rig.settings.listeners[0].more = listener;
        let mut stored = rig.settings.listeners[0].clone();
        (stored.name, stored.more) = ("stored".into(), "backends = [\"127.0.0.1:1\"]".into());
        stored.move_to([127, 0, 0, 1].into());
        stored.certificates = Some(format!("store:{}", rig.path(file).display()).into());
        rig.settings.listeners.push(stored);
        rig.settings.write(rig.folder.path());
        let (code, text) = rig.check();
        assert_eq!(code, Some(3), "{text}");
        for key in ["access_log.path", "tickets.root", "store_key", "allow", "deny"] {
            assert!(text.contains(&format!("{key}: ")), "{key} in {text}");
        }
        for key in ["clients: roots: ", "backend_tls: roots: ", "backend_tls: "] {
            assert!(text.contains(key), "{key} in {text}");
        }
        secret.assert_absent(text.as_bytes(), "check");
        let sealane = rig.start();
        let reloaded = sealane.command(&["reload"]).output().unwrap();
        assert_eq!(reloaded.status.code(), Some(5));
        secret.assert_absent(&reloaded.stdout, "reload");
        for path in ["/state", "/metrics", "/healthz"] {
            secret.assert_absent(sealane.admin_answer(path).as_bytes(), path);
        }
        secret.assert_absent(sealane.said().join("\n").as_bytes(), "the log");
        assert_unwritten(&rig, &secret);
    }
}

/// Files of the configuration are parsed, and a mistake in them has a line and a column.
#[test]
fn no_output_quotes_a_file_that_is_read_as_configuration() {
    let rig = Rig::new(&[("secret.key", "")]);
    let secret = Secret::write(rig.folder.path());
    rig.settings.write(rig.folder.path());
    let good = fs::read_to_string(rig.path("sealane.toml")).unwrap();
    let run = |words: &[&str], file: &str| {
        let mut command = Command::new(BINARY);
        command.args(words).arg(rig.path(file)).stdin(Stdio::null());
        let done = command.output().unwrap();
        let said = [&done.stdout[..], &done.stderr].concat();
        assert!(!done.status.success(), "{words:?} {file}");
        assert!(!said.is_empty(), "{words:?} {file}");
        secret.assert_absent(&said, &format!("{words:?} {file}"));
    };
    // A file of another program may be in order as TOML.
    let (password, other) = (&secret.0[0], "other.toml");
    replace(&rig.path(other), &format!("{password} = 1\npassword = \"{password}\"\n[a]\nb = 1\n"));
    for file in ["secret.key", "bare.key", other] {
        replace(&rig.path("including.toml"), &format!("include = [\"{file}\"]\n{good}"));
        for file in [file, "including.toml"] {
            run(&["check", "--config"], file);
            run(&["check", "--json", "--config"], file);
            run(&["serve", "--config"], file);
            run(&["certificates", "list", "--config"], file);
        }
    }
}

/// Every option and operand of `sealane certificates` that is a path, as its help has them.
#[test]
fn no_command_for_stores_quotes_a_file() {
    let rig = Rig::new(&[("secret.key", "")]);
    let secret = Secret::write(rig.folder.path());
    rig.certify("good.pem", "a.test");
    let run = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("certificates").args(words).current_dir(rig.folder.path());
        let done = command.stdin(fs::File::open(rig.path("bare.key")).unwrap()).output().unwrap();
        let said = [&done.stdout[..], &done.stderr].concat();
        secret.assert_absent(&said, &format!("{words:?}"));
        (done.status.code(), String::from_utf8(said).unwrap())
    };
    let store = ["--store", "store", "--key-file", "store.key"];
    assert_eq!(run(&[&["import", "--create", "good.pem"][..], &store].concat()).0, Some(0));
    assert_eq!(run(&["backup", "--store", "store", "copy"]).0, Some(0));
    let help = run(&["--help"]).1;
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let listed = listed.lines().map_while(|line| line.split_whitespace().next());
    let mut tried = 0;
    for command in listed.filter(|command| *command != "help") {
        let help = run(&[command, "--help"]).1;
        let taken: Vec<_> = help.lines().filter_map(taken).collect();
        let has = |option: &str| taken.iter().any(|(taken, _)| *taken == option);
        for (option, name) in taken.iter().filter(|(_, name)| is_path(name)) {
            for file in ["secret.key", "bare.key"] {
                // `--config` and `--socket` replace the options for a store.
                let is_way = ["--config", "--socket"].contains(option);
                let others = store.chunks(2).filter(|pair| !is_way && has(pair[0]));
                let mut words = vec![command];
                words.extend(others.filter(|pair| pair[0] != *option).flatten());
                for (other, name) in taken.iter().filter(|(other, _)| other.is_empty()) {
                    words.push(match (is_path(name), command) {
                        _ if other == option => file,
                        (true, "restore") => "copy",
                        (true, "backup") => "another-copy",
                        (true, _) => "good.pem",
                        (false, _) => "a.test",
                    });
                }
                if !option.is_empty() {
                    words.extend([option, file]);
                    words.extend((*name == "CHAIN").then_some(file));
                }
                let (code, said) = run(&words);
                assert!([Some(1), Some(3)].contains(&code), "{words:?} {code:?} {said}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 50, "{tried}");
    assert_eq!(run(&[&["import", "-"][..], &store].concat()).0, Some(3));
}

/// An option of a line of a help with the name of its value, or an operand, without an option.
fn taken(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let (option, value) = match first.starts_with("--") {
        true => (first, words.next()?),
        false => ("", first),
    };
    let value = value.strip_prefix(['<', '['])?.split(['>', ']']).next()?;
    value.bytes().all(|byte| byte.is_ascii_uppercase()).then_some((option, value))
}

fn is_path(name: &str) -> bool {
    ["CHAIN", "FILE", "FOLDER", "PATH"].contains(&name)
}

#[test]
fn no_refused_reload_quotes_a_file() {
    let mut rig = Rig::new(&[("good.pem", "")]);
    rig.certify("good.pem", "a.test");
    let secret = Secret::write(rig.folder.path());
    rig.settings.more = "process.sandbox = false".into();
    let sealane = rig.start();
    for file in ["secret.key", "bare.key"] {
        let (_, listener) = materials(file);
        let mut settings = Settings::new(rig.settings.listeners.clone());
        settings.more = format!("process.sandbox = false\nstore_key.file = \"{file}\"");
        settings.listeners[0].backends.clear();
        settings.listeners[0].more = listener;
        settings.write(rig.folder.path());
        let refused = reload(&sealane);
        secret.assert_absent(refused.as_bytes(), "reload");
        settings.more = format!("include = [\"{file}\"]\nprocess.sandbox = false");
        settings.write(rig.folder.path());
        secret.assert_absent(reload(&sealane).as_bytes(), "reload");
    }
    secret.assert_absent(sealane.admin("/state").as_bytes(), "/state");
    secret.assert_absent(sealane.said().join("\n").as_bytes(), "the log");
    assert_unwritten(&rig, &secret);
}

fn reload(sealane: &Sealane) -> String {
    let done = sealane.command(&["reload"]).output().unwrap();
    assert_eq!(done.status.code(), Some(3));
    String::from_utf8(done.stdout).unwrap()
}

/// No file in the folder but the key's own has a part of it.
fn assert_unwritten(rig: &Rig, secret: &Secret) {
    let mut folders = vec![rig.folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && name != "secret.key" && name != "bare.key" {
                secret.assert_absent(&fs::read(&path).unwrap(), &path.display().to_string());
            }
        }
    }
}
