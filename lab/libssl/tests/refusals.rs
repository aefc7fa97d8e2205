//! What cannot be loaded, and what cannot be loaded beside another library. A process of its own:
//! the order matters.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sealane_libssl::{Error, Library};

#[test]
fn a_file_that_is_no_libssl_is_named_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("libssl.so");
    fs::write(&text, "no library at all").unwrap();
    let error = Library::open(&text).err().unwrap();
    assert!(matches!(error, Error::Load { .. }), "{error}");
    assert!(error.to_string().contains(text.to_str().unwrap()), "{error}");

    let missing = Library::open(Path::new("/no/such/libssl.so")).err().unwrap().to_string();
    assert!(missing.contains("/no/such/libssl.so") && missing.contains("No such"), "{missing}");

    let other = library_with("libm.so.6");
    let error = Library::open(&other).err().unwrap().to_string();
    assert!(error.contains("no function BIO_ctrl") && error.contains("libssl"), "{error}");

    let old = old_openssl(folder.path());
    let error = Library::open(&old).err().unwrap();
    assert!(matches!(error, Error::Older { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("is OpenSSL 1.0.2u") && error.contains("--runtime asio"), "{error}");

    // None of them is in the way of a real one, which is in the way of all others.
    let system = Library::of_the_system().unwrap();
    Library::open(&system).unwrap();
    let error = Library::open(&other).err().unwrap();
    assert!(matches!(&error, Error::Second { loaded, .. } if *loaded == system), "{error}");
    assert!(error.to_string().contains("start another"), "{error}");
}

/// What tells an OpenSSL before 1.1.0 from others: the name of the function that tells its version.
fn old_openssl(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("old.c"), folder.join("libssl.so.1.0.0"));
    let text = "const char *SSLeay_version(int what) { return \"OpenSSL 1.0.2u  20 Dec 2019\"; }";
    fs::write(&source, text).unwrap();
    let mut command = Command::new("cc");
    let status = command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(status.expect("the package gcc").success());
    library
}

/// The path of a library that this process has loaded.
fn library_with(name: &str) -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut folders = paths.filter_map(|path| Path::new(path).parent());
    folders.find_map(|folder| fs::canonicalize(folder.join(name)).ok()).unwrap()
}
