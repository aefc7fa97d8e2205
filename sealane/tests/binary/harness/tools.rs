//! Programs that a test drives: found, run within bounds, and missed loudly where they must be.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::PATIENCE;
use super::process::Process;

/// The path of a program, if the machine has it.
pub fn path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .chain(["/usr/sbin".into(), "/usr/local/go/bin".into()])
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The path of a program that a test needs. `./check` installs all of them, and sets CI on a
/// machine that must have them; without it, a developer's machine may lack one: the test says so
/// and does nothing.
pub fn required(name: &str) -> Option<PathBuf> {
    let found = path(name);
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "{name} is missing; ./check --only install brings it"
        );
        println!("SKIPPED: {name} is missing; ./check --only install brings it");
    }
    found
}

/// A configuration of OpenSSL that leaves extended master secret out of TLS 1.2.
pub fn without_extended_master_secret(folder: &Path) -> PathBuf {
    let path = folder.join("openssl.cnf");
    let text = "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = old\n\
                [old]\nOptions = -ExtendedMasterSecret\n";
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs a program to its end, which must come within a test's patience.
pub fn run(command: &mut Command) -> Output {
    run_with_input(command, b"")
}

/// The same, with `input` as its standard input.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    // Files rather than pipes: no output fills up, whoever inherits them.
    let (input_path, out, err) =
        (folder.path().join("in"), folder.path().join("out"), folder.path().join("err"));
    std::fs::write(&input_path, input).unwrap();
    let child = command
        .stdin(Stdio::from(std::fs::File::open(&input_path).unwrap()))
        .stdout(Stdio::from(std::fs::File::create(&out).unwrap()))
        .stderr(Stdio::from(std::fs::File::create(&err).unwrap()))
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = Process::new(child).wait(PATIENCE * 2);
    Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() }
}

/// The standard output of a program that must succeed.
pub fn output(command: &mut Command) -> String {
    output_with_input(command, b"")
}

/// The same, with `input` as its standard input.
pub fn output_with_input(command: &mut Command, input: &[u8]) -> String {
    let output = run_with_input(command, input);
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A client program of `sealane/tests/binary/clients`.
pub fn client_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/clients").join(name)
}

/// Runs a Go program of them, which takes nothing but Go's own packages.
pub fn go_run(go: &Path, name: &str, folder: &Path) -> Command {
    let mut command = Command::new(go);
    command.env("GO111MODULE", "off").env("GOFLAGS", "").env("GOTOOLCHAIN", "local");
    command.env("GOPATH", folder);
    if std::env::var_os("HOME").is_none() {
        command.env("GOCACHE", folder.join("go-cache"));
    }
    command.arg("run").arg(client_source(name));
    command
}

/// Makes a keystore beside an authority's certificate, for programs in Java to trust it.
pub fn truststore(keytool: &Path, authority: &Path) -> PathBuf {
    let store = authority.with_file_name("truststore.p12");
    let mut command = Command::new(keytool);
    command.args(["-importcert", "-noprompt", "-alias", "ca", "-storetype", "PKCS12"]);
    command.args(["-storepass", "changeit", "-file"]).arg(authority);
    output(command.arg("-keystore").arg(&store));
    store
}
