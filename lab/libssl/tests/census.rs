//! What a process counts of its contexts; alone in its process, because others would count too.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use sealane_libssl::{Census, Context, Library, Resumption, Settings, Side};

#[test]
fn a_context_is_freed_with_its_last_connection_and_its_roots_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle.pem");
    let roots = ["one", "two", "three"].map(root);
    std::fs::write(&bundle, roots.concat()).unwrap();
    let library = Library::open(&Library::of_the_system().unwrap()).unwrap();
    let settings = Settings {
        side: Side::Client,
        version: 0x0304,
        suite: "TLS_AES_128_GCM_SHA256",
        group: 0x001d,
        key_curve: None,
        identification: None,
        root: Some(&bundle),
        name: "localhost",
        resumption: Resumption::None,
        tickets: 0,
        ed25519: false,
        release_buffers: false,
    };
    assert_eq!(Census::now(), Census::default());
    let context = Context::new(library, &settings).unwrap();
    assert_eq!(Census::now(), Census { built: 1, freed: 0, roots: 3 });
    let held = context.connect_to("one").unwrap();
    drop(context);
    assert_eq!(Census::now().freed, 0, "a connection holds it");
    drop(held);
    assert_eq!(Census::now(), Census { built: 1, freed: 1, roots: 3 });
    // One that cannot be finished was made all the same, and is gone.
    let nowhere = folder.path().join("no such file");
    assert!(Context::new(library, &Settings { root: Some(&nowhere), ..settings }).is_err());
    assert_eq!(Census::now(), Census { built: 2, freed: 2, roots: 3 });
}

/// A root certificate of that name, PEM.
fn root(name: &str) -> String {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-keyout", "/dev/null"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &format!("/CN={name}")])
        .output()
        .expect("the program openssl, of the package openssl");
    String::from_utf8(output.stdout).unwrap()
}
