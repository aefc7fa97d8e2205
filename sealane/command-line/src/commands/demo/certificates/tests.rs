//! The demo's files are made once, for one machine, and again when they no longer serve.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[test]
fn they_are_kept_while_they_serve_and_made_again_when_they_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new").join("demo-data");
    let files = DemoFiles::provide(&directory).unwrap();
    let texts = || [&files.ca, &files.certificate].map(|path| fs::read(path).unwrap());
    let first = texts();
    DemoFiles::provide(&directory).unwrap();
    assert_eq!(texts(), first);

    // About to run out.
    files.make(now() + VALIDITY_LEFT_MIN - VALIDITY - Duration::from_secs(60)).unwrap();
    let old = texts();
    assert!(files.last_until(now()) && !files.last_until(now() + VALIDITY_LEFT_MIN));
    DemoFiles::provide(&directory).unwrap();
    assert_ne!(texts(), old);

    // A CA that did not sign the certificate.
    fs::write(&files.ca, &first[0]).unwrap();
    DemoFiles::provide(&directory).unwrap();
    assert_ne!(texts()[0], first[0]);

    // Not even PEM, and gone.
    fs::write(&files.certificate, "x").unwrap();
    DemoFiles::provide(&directory).unwrap();
    fs::remove_file(&files.ca).unwrap();
    DemoFiles::provide(&directory).unwrap();
    assert!(files.last_until(now() + VALIDITY_LEFT_MIN));
}

#[test]
fn keys_are_for_their_owner_and_the_key_of_the_ca_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let files = DemoFiles::provide(folder.path()).unwrap();
    // A file that others may read makes way for one that they may not.
    fs::set_permissions(&files.certificate, fs::Permissions::from_mode(0o666)).unwrap();
    files.make(now()).unwrap();
    let mode = fs::metadata(&files.certificate).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!fs::read_to_string(&files.ca).unwrap().contains("PRIVATE"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DemoFiles::provide(&file.join("data")).err().unwrap().to_string();
    assert!(error.contains("file/data: cannot be written: "), "{error}");
}
