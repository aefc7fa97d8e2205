//! Chains that servers show to a client.

use rcgen::{ExtendedKeyUsagePurpose, SanType};

use super::*;
use crate::peer_chain::PEER_CERTIFICATES_MAX;

/// Any relay between us and a backend can send it, without a key of any value.
#[test]
fn a_servers_chain_that_only_costs_is_refused() {
    let authority = Authority::new("a");
    let mut contexts = ClientContexts::new();
    let slot = ContextSlot::new(contexts.context(&authority.options()).unwrap());
    let shown = |behind: Vec<CertificateDer<'static>>| {
        refused(connect(&mut lane(&slot), "one.test", &server(&authority, behind)))
    };
    let same = || Authority::new("same").0.der().clone();
    let multiplying: Vec<_> = (0..10).map(|_| same()).collect();
    let error = shown(multiplying);
    assert!(error.contains("its chain has 11 certificates, and at most 7 are read"), "{error}");
    let error = shown(vec![large()]);
    assert!(error.contains("bytes, and at most 32768 are read"), "{error}");
    let error = shown(vec![CertificateDer::from(vec![1; 30])]);
    assert!(error.contains("one of its certificates is not valid X.509"), "{error}");
    // As many as are read, and none of use: a line is empty then.
    let useless = (1..PEER_CERTIFICATES_MAX).map(|_| same()).collect();
    let taken = server(&authority, useless);
    connect(&mut lane(&slot), "one.test", &taken).unwrap();
}

#[test]
fn a_root_vouches_between_its_dates_and_within_its_path_length() {
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    };
    let mut contexts = ClientContexts::new();
    let mut outcome = |root: &Authority, server: &Arc<ServerConfig>| {
        let slot = ContextSlot::new(contexts.context(&root.options()).unwrap());
        connect(&mut lane(&slot), "one.test", server).map(drop).map_err(|error| error.to_string())
    };
    let expired = with(|params| params.not_after = rcgen::date_time_ymd(2023, 11, 1));
    let error = outcome(&expired, &server(&expired, vec![])).unwrap_err();
    assert!(error.contains("it, or the trusted root above it, expired 13 days ago"), "{error}");
    let early = with(|params| params.not_before = rcgen::date_time_ymd(2023, 12, 1));
    let error = outcome(&early, &server(&early, vec![])).unwrap_err();
    assert!(error.contains("it is valid only in 16 days"), "{error}");

    let short = with(|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    outcome(&short, &server(&short, vec![])).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "between");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let between = Authority(CertifiedIssuer::signed_by(params, key, &short.0).unwrap());
    let behind = server(&between, vec![between.0.der().clone()]);
    let error = outcome(&short, &behind).unwrap_err();
    assert!(error.contains("(its path length)"), "{error}");
    // An intermediate authority that is named as a root is trusted.
    outcome(&between, &behind).unwrap();
}

/// `openssl req -x509` makes an authority, and with `-subj /CN=NAME` alone nothing but a common
/// name.
#[test]
fn root_shown_as_own_certificate_is_accepted() {
    let key = KeyPair::generate().unwrap();
    let made = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(vec!["one.test".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&key).unwrap()
    };
    let is_accepted = |own: &rcgen::Certificate, roots: &[&rcgen::Certificate]| {
        let roots: Vec<&[u8]> = roots.iter().map(|root| root.der().as_ref()).collect();
        let roots = Roots::from_der("roots", &roots).unwrap();
        let options =
            ClientOptions { groups: vec![Group::X25519], ..ClientOptions::trusting(roots) };
        let slot = ContextSlot::new(ClientContexts::new().context(&options).unwrap());
        let server = Authority::server_with(own.der(), &key, None);
        connect(&mut lane(&slot), "one.test", &server).is_ok()
    };
    let by_common_name = |params: &mut CertificateParams| {
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, "ONE.test");
    };
    let other = made(&|params| params.distinguished_name.push(DnType::CommonName, "other"));
    let issuer = Authority::new("issuer");
    let params = CertificateParams::new(vec!["one.test".to_owned()]).unwrap();
    let issued = params.signed_by(&key, &issuer.0).unwrap();
    for own in [&made(&|_| ()), &made(&by_common_name), &issued] {
        assert!(is_accepted(own, &[own]) && is_accepted(own, &[&other, own]));
        assert!(!is_accepted(own, &[&other]), "it is no root");
    }
    let changes: [fn(&mut CertificateParams); 5] = [
        |params| params.not_after = rcgen::date_time_ymd(2023, 11, 1),
        |params| params.not_before = rcgen::date_time_ymd(2023, 12, 1),
        |params| params.subject_alt_names = vec![SanType::DnsName("b.test".try_into().unwrap())],
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        |params| {
            params.subject_alt_names = vec![SanType::DnsName("b.test".try_into().unwrap())];
            params.distinguished_name.push(DnType::CommonName, "one.test");
        },
    ];
    for change in changes {
        let own = made(&change);
        assert!(!is_accepted(&own, &[&own]));
    }
}

/// A backend must not issue certificates for another one.
#[test]
fn root_that_is_no_authority_issues_none() {
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
        let mut params = CertificateParams::new(vec!["two.test".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a backend");
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let own = Authority(CertifiedIssuer::self_signed(params, key).unwrap());
        let roots = [own.roots(), Authority::new("another").roots()];
        let roots = Roots::joined(&roots).unwrap();
        let options =
            ClientOptions { groups: vec![Group::X25519], ..ClientOptions::trusting(roots) };
        let slot = ContextSlot::new(ClientContexts::new().context(&options).unwrap());
        for behind in [vec![], vec![own.0.der().clone()]] {
            let issued = server(&own, behind);
            refused(connect(&mut lane(&slot), "one.test", &issued));
        }
    }
}

/// A server for one.test that sends more than its certificate.
fn server(issuer: &Authority, behind: Vec<CertificateDer<'static>>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["one.test".to_owned()]).unwrap();
    let own = params.signed_by(&key, &issuer.0).unwrap();
    let chain = [vec![own.der().clone()], behind].concat();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key.into()).unwrap())
}

/// A certificate of 32 KiB.
fn large() -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    let padding = vec![4; 32 * 1024];
    params
        .custom_extensions
        .push(rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], padding));
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}
