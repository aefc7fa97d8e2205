//! What a survey makes of a listener, and what it never does.

use std::path::Path;

use sealane_config::{
    BackendAddress, BackendTls, CertificateSource, ChallengeSource, ClientDemand, ClientTrust,
    RootSource, Share, Simple, Trust, value,
};
use sealane_engine::client_certificates::ClientRules;
use sealane_lanes::generation::Speech;

use super::*;

fn config(backend: &str, certificates: &Path) -> Config {
    Config::simple(Simple {
        backends: vec![value::backend(backend).unwrap()],
        certificates: vec![certificates.into()],
        listen: value::listen_addresses("127.0.0.1:0").unwrap().0,
        ..Simple::default()
    })
    .unwrap()
}

fn surveyed<'c>(config: &'c Config) -> Survey<'c> {
    surveyed_with(config, &mut KnownClientRoots::default()).remove(0)
}

fn surveyed_with<'c>(config: &'c Config, client_roots: &mut KnownClientRoots) -> Vec<Survey<'c>> {
    let mut around = Surroundings {
        client_roots,
        clients: &mut ClientContexts::new(),
        last_good: &mut LastGood::default(),
        names: &mut Names::default(),
        now: UnixSeconds(1_800_000_000),
        resolve: &|names| {
            names.into_iter().map(|name| (name, Err("no such host".into()))).collect()
        },
        stores: &mut Stores::default(),
    };
    survey(config, &mut around).listeners
}

#[test]
fn a_backend_without_a_name_to_prove_is_never_spoken_to_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("tls://127.0.0.1:1", folder.path());
    let written = BackendTls { trust: Trust::Anybody, ..BackendTls::default() };
    config.listeners[0].destination.backend_tls = Some(written);
    // A configuration as no reader makes it.
    config.listeners[0]
        .destination
        .backends
        .push((BackendAddress::Unix("/run/app.sock".into()), Share::default()));
    let survey = surveyed(&config);
    let of_backend = |error: &&String| error.starts_with("backend ");
    let errors: Vec<_> = survey.errors.iter().filter(of_backend).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("backend tls://unix:/run/app.sock: "), "{errors:?}");
    assert_eq!(survey.backends[0].len(), 1);
    assert!(survey.backends[0][0].tls.is_some());

    // Roots that cannot be read leave no context to speak with.
    let roots = Trust::Roots(vec![RootSource::File(folder.path().join("absent.pem"))]);
    config.listeners[0].destination.backend_tls =
        Some(BackendTls { trust: roots, ..BackendTls::default() });
    let survey = surveyed(&config);
    assert!(survey.faults.iter().any(|fault| fault.text.starts_with("backend_tls: ")));
    assert!(survey.backends[0].is_empty(), "{:?}", survey.faults);
}

#[test]
fn every_file_that_a_listener_is_made_of_is_followed() {
    let mut config = config("tls://a.test:1", Path::new("folder"));
    let listener = &mut config.listeners[0];
    listener.certificates.push(CertificateSource::Pair { chain: "c".into(), key: "k".into() });
    listener.store = Some("store".into());
    listener.acme_responder = Some(ChallengeSource::Folder("challenges".into()));
    listener.destination.backend_tls = Some(BackendTls {
        client_certificate: Some(CertificateSource::Path("client".into())),
        trust: Trust::Roots(vec![RootSource::File("root".into())]),
        ..BackendTls::default()
    });
    listener.clients = Some(ClientTrust {
        allow_other_names: false,
        crls: vec!["crls".into()],
        demand: ClientDemand::Required,
        roots: vec!["clients".into()],
        rules: ClientRules::default(),
    });
    let followed = files(listener);
    let expected = ["folder", "c", "k", "clients", "crls", "client", "root"].map(PathBuf::from);
    assert_eq!(followed, expected, "and nothing that is served as it changes");
}

#[test]
fn without_whom_to_believe_nobody_is_served_without_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    std::fs::write(folder.path().join("a.pem"), &pem).unwrap();
    let mut config = config("127.0.0.1:1", &folder.path().join("a.pem"));
    let served = |config: &Config| match surveyed(config).contexts(config)?.speech {
        Speech::Tls(context) => Some(context.policy.clone()),
        Speech::Plain | Speech::Sealed => None,
    };
    assert_eq!(served(&config).unwrap().clients, ClientCertificates::NotAsked);
    let trust = |roots: &str| ClientTrust {
        allow_other_names: false,
        crls: Vec::new(),
        demand: ClientDemand::Required,
        roots: vec![folder.path().join(roots)],
        rules: ClientRules::default(),
    };
    config.listeners[0].clients = Some(trust("absent.pem"));
    let ClientCertificates::Required(roots) = served(&config).unwrap().clients else { panic!() };
    assert!(roots.has_no_authority());
    config.listeners[0].clients = Some(trust("a.pem"));
    assert!(matches!(served(&config).unwrap().clients, ClientCertificates::Required(_)));
}

#[test]
fn equal_authorities_are_parsed_once_for_listeners_and_generations() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    std::fs::write(folder.path().join("a.pem"), &pem).unwrap();
    let mut config = config("127.0.0.1:1", &folder.path().join("a.pem"));
    let rules = |cut_revoked| ClientRules { cut_revoked, ..ClientRules::default() };
    config.listeners.push(config.listeners[0].clone());
    for (listener, cut_revoked) in config.listeners.iter_mut().zip([false, true]) {
        listener.clients = Some(ClientTrust {
            allow_other_names: false,
            crls: Vec::new(),
            demand: ClientDemand::Asked,
            roots: vec![folder.path().join("a.pem")],
            rules: rules(cut_revoked),
        });
    }
    let mut known = KnownClientRoots::default();
    let before = surveyed_with(&config, &mut known);
    let after = surveyed_with(&config, &mut known);
    assert_eq!(known.len(), 1);
    drop(before);
    known.prune();
    assert_eq!(known.len(), 1);
    drop(after);
    known.prune();
    assert_eq!(known.len(), 0);
}

#[test]
fn a_mistake_of_one_material_hides_no_mistake_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("a.test:1", &folder.path().join("absent.pem"));
    config.listeners[0].store = Some(folder.path().join("store"));
    let survey = surveyed(&config);
    for expected in ["absent.pem: ", "store: "] {
        let is_noted = survey.faults.iter().any(|fault| fault.text.contains(expected));
        assert!(is_noted, "{expected}: {:?}", survey.faults);
    }
    assert_eq!((survey.faults.len(), survey.errors.len()), (2, 0), "{:?}", survey.faults);
    let expected = "backend a.test:1 does not resolve yet: no such host; connections to it are \
                    refused until it does";
    assert!(survey.warnings.concat().iter().any(|told| told.starts_with(expected)));
}
