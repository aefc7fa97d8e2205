//! What a configuration makes of the files; the files themselves are tested where they are read.

use std::path::{Path, PathBuf};

use sealane_config::{Balance, CertificateSource, Destination, Listener, ProxyHeader};
use sealane_engine::policy::Policy;
use sealane_engine::provider::{ProviderChoice, lane_provider};

use super::*;

fn listener(certificates: &[&Path], default: Option<&str>, store: Option<&str>) -> Listener {
    Listener {
        acme_responder: None,
        accept_proxy: None,
        name: "test".into(),
        addresses: Vec::new(),
        socket_mode: 0o660,
        certificates: certificates
            .iter()
            .map(|path| CertificateSource::Path(path.into()))
            .collect(),
        store: store.map(PathBuf::from),
        default_certificate: default.map(str::to_owned),
        on_demand: false,
        policy: Policy::default(),
        clients: None,
        destination: Destination {
            backends: Vec::new(),
            backend_tls: None,
            balance: Balance::default(),
            proxy_header: ProxyHeader::Off,
        },
        check: None,
        resolve: config::RESOLVE_DEFAULT,
        passthrough: false,
        routes: Vec::new(),
        spoken: config::Spoken::Tls,
        limits: config::ListenerLimits::default(),
    }
}

/// The names served by default, and the errors.
fn load_listener(listener: &Listener, limits: &Limits) -> (Vec<String>, Vec<String>) {
    let policy = Policy::default();
    let provider = lane_provider(ProviderChoice::AwsLc, &policy.groups).unwrap();
    let loaded = load(listener, limits, (&provider.crypto, 1_800_000_000), &[]);
    let default = loaded.index.default_certificates().first();
    let names = default.map(|certificate| certificate.names().iter().map(ToString::to_string));
    let errors = loaded.faults.iter().map(ToString::to_string).collect();
    (names.into_iter().flatten().collect(), errors)
}

fn two_files(directory: &Path) -> [PathBuf; 2] {
    ["a.test", "b.test"].map(|name| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let path = directory.join(name).with_extension("pem");
        std::fs::write(&path, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        path
    })
}

#[test]
fn the_default_is_the_configured_one_or_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let files = two_files(directory.path());
    for (default, expected) in [(None, "a.test"), (Some("b.test"), "b.test")] {
        let listener = listener(&files.each_ref().map(|path| &**path), default, None);
        let loaded = load_listener(&listener, &Limits::default());
        assert_eq!(loaded, (vec![expected.to_owned()], vec![]));
    }
}

#[test]
fn what_is_in_no_file_may_be_in_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let files = two_files(directory.path());
    let [first, _] = files.each_ref().map(|path| &**path);
    let errors = |files: &[&Path], default, store| {
        load_listener(&listener(files, default, store), &Limits::default()).1.len()
    };
    assert_eq!(errors(&[], Some("c.test"), None), 2);
    assert_eq!(errors(&[], Some("c.test"), Some("store")), 0);
    assert_eq!(errors(&[first], Some("c.test"), None), 1);
    assert_eq!(errors(&[first], Some("c.test"), Some("store")), 0);
    assert_eq!(errors(&[&directory.path().join("absent.pem")], None, Some("store")), 1);
}

#[test]
fn a_limit_names_its_setting() {
    let directory = tempfile::tempdir().unwrap();
    let files = two_files(directory.path());
    let listener = listener(&files.each_ref().map(|path| &**path), None, None);
    let errors = |limits| load_listener(&listener, &limits).1;
    let limits = Limits { certificates_max: 1, ..Limits::default() };
    let expected = "more than 1 certificates for one listener; raise limits.certificates";
    assert_eq!(errors(limits), [expected]);
    let limits = Limits { names_max: 1, ..Limits::default() };
    assert_eq!(errors(limits), ["2 names for one listener, 1 are allowed; raise limits.names"]);
}
