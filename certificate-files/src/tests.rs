//! Real directories, files, links and devices.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;

use sealane_engine::policy::Policy;
use sealane_engine::provider::{ProviderChoice, lane_provider};

use super::*;

const NOW_S: i64 = 1_800_000_000;

fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn load_with(
    sources: &[CertificateSource],
    default: DefaultCertificate<'_>,
    bounds: Bounds,
) -> LoadedCertificates {
    let policy = Policy::default();
    let provider = lane_provider(ProviderChoice::AwsLc, &policy.groups).unwrap();
    load(sources, default, bounds, &provider.crypto, NOW_S, &[])
}

fn bounds(certificates: usize, names: usize) -> Bounds {
    let bound = |max, remedy| Bound { max, remedy };
    Bounds { certificates: bound(certificates, "buy more"), names: bound(names, "ask for more") }
}

fn load_path(path: &Path) -> LoadedCertificates {
    let source = CertificateSource::Path(path.to_owned());
    load_with(&[source], DefaultCertificate::First, bounds(100, 100))
}

/// Errors as text, without the directory.
fn errors(loaded: &LoadedCertificates, directory: &Path) -> Vec<String> {
    let directory = format!("{}/", directory.display());
    loaded.faults.iter().map(|error| error.to_string().replace(&directory, "")).collect()
}

fn directory(files: &HashMap<&str, String>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn a_directory_takes_pem_files_and_pairs_in_order() {
    let (a_chain, a_key) = certificate("a.test");
    let (b_chain, b_key) = certificate("b.test");
    let directory = directory(&HashMap::from([
        ("b.pem", b_chain + &b_key),
        ("a.crt", a_chain),
        ("a.key", a_key),
        ("README", "not a certificate".into()),
        ("waiting.key", "not looked at".into()),
        (".hidden.pem", "not looked at".into()),
    ]));
    fs::create_dir(directory.path().join("more")).unwrap();
    let loaded = load_path(directory.path());
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    let labels: Vec<_> = loaded.index.iter().map(|c| c.label().to_owned()).collect();
    let expected = ["a.crt", "b.pem"].map(|name| directory.path().join(name).display().to_string());
    assert_eq!(labels, expected);
    assert_eq!(loaded.index.find("b.test").len(), 1);
    assert_eq!(&*loaded.index.default_certificates()[0].names()[0], "a.test");
}

/// One bad file does not hide another, nor the good ones.
#[test]
fn every_problem_of_a_directory_is_reported() {
    let (chain, key) = certificate("good.test");
    let directory = directory(&HashMap::from([
        ("a.crt", chain.clone()),
        ("b.pem", chain.clone()),
        ("c.pem", "nothing".into()),
        ("good.pem", chain + &key),
        ("large.pem", "x".repeat(PEM_BYTES_MAX + 1)),
    ]));
    std::os::unix::fs::symlink("/nonexistent", directory.path().join("gone.pem")).unwrap();
    let loaded = load_path(directory.path());
    let errors = errors(&loaded, directory.path());
    for expected in [
        "a.crt: its key a.key is missing",
        "b.pem: no private key in it",
        "c.pem: neither a certificate nor a private key: no PEM section in it",
        "gone.pem: cannot be read: No such file",
        "large.pem: 262145 bytes",
    ] {
        assert!(errors.iter().any(|error| error.starts_with(expected)), "{expected}: {errors:#?}");
    }
    assert_eq!(errors.len(), 5, "{errors:#?}");
    assert_eq!(loaded.index.find("good.test").len(), 1);
}

#[test]
fn sources_that_hold_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| errors(&load_path(&directory.path().join(name)), directory.path());
    assert_eq!(at("absent").len(), 1);
    assert!(at("absent")[0].starts_with("absent: cannot be read"), "{:?}", at("absent"));
    assert_eq!(at("").len(), 1, "{:?}", at(""));
    assert!(at("")[0].contains("no certificate in this directory"));
    let device = errors(&load_path(Path::new("/dev/zero")), directory.path());
    assert_eq!(device, ["/dev/zero: neither a file nor a directory; name one"]);
}

#[test]
fn pairs_and_defaults_are_taken_as_asked() {
    let (a_chain, a_key) = certificate("a.test");
    let (b_chain, b_key) = certificate("*.b.test");
    let files = [("1", a_chain), ("2", a_key), ("3", b_chain), ("4", b_key)];
    let directory = directory(&HashMap::from(files));
    let path = |name: &str| directory.path().join(name);
    let pair = |chain, key| CertificateSource::Pair { chain: path(chain), key: path(key) };
    let bounds = bounds(2, 2);
    for (default, expected) in [
        (DefaultCertificate::First, Some("a.test")),
        (DefaultCertificate::Name("a.test"), Some("a.test")),
        (DefaultCertificate::Name("x.b.test"), Some("*.b.test")),
        (DefaultCertificate::Name("*.b.test"), Some("*.b.test")),
        (DefaultCertificate::Name("c.test"), None),
    ] {
        let loaded = load_with(&[pair("1", "2"), pair("3", "4")], default, bounds);
        let served = loaded.index.default_certificates().first().map(|c| c.names()[0].to_string());
        assert_eq!(served.as_deref(), expected);
        assert_eq!(loaded.faults.is_empty(), expected.is_some(), "{:?}", loaded.faults);
    }
    let swapped = [pair("1", "4"), pair("3", "9")];
    let swapped = load_with(&swapped, DefaultCertificate::First, bounds);
    let errors = errors(&swapped, directory.path());
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].starts_with("4: this private key does not belong"), "{errors:#?}");
    assert!(errors[1].starts_with("9: cannot be read"), "{errors:#?}");
}

#[test]
fn bounds_hold_and_say_what_to_do() {
    let (a_chain, a_key) = certificate("a.test");
    let (b_chain, b_key) = certificate("b.test");
    let files = [("a.pem", a_chain + &a_key), ("b.pem", b_chain + &b_key)];
    let directory = directory(&HashMap::from(files));
    let sources = [CertificateSource::Path(directory.path().to_owned())];
    let load = |bounds: Bounds| {
        let loaded = load_with(&sources, DefaultCertificate::First, bounds);
        (loaded.index.len(), errors(&loaded, directory.path()))
    };
    assert_eq!(load(bounds(2, 2)), (2, vec![]));
    let (loaded, errors) = load(bounds(1, 2));
    assert_eq!(loaded, 1);
    assert_eq!(errors, ["more than 1 certificates for one listener; buy more"]);
    let (loaded, errors) = load(bounds(2, 1));
    assert_eq!(loaded, 1, "those that fit are served");
    assert_eq!(errors, ["2 names for one listener, 1 are allowed; ask for more"]);
}

/// A large RSA key is the operator's own choice, also where there are more names than may be.
#[test]
fn slow_keys_are_taken_from_files() {
    let slow = concat!(
        include_str!("../../testdata/certificates/rsa5120.crt"),
        include_str!("../../testdata/certificates/rsa5120.pkcs8.key")
    );
    let (chain, key) = certificate("z.test");
    let directory = directory(&HashMap::from([("a.pem", slow.into()), ("z.pem", chain + &key)]));
    let source = CertificateSource::Path(directory.path().to_owned());
    for (names_max, labels) in [(100, 2), (1, 1)] {
        let sources = [source.clone()];
        let loaded = load_with(&sources, DefaultCertificate::First, bounds(100, names_max));
        assert_eq!((loaded.index.len(), loaded.faults.len()), (labels, 2 - labels));
        assert!(loaded.index.iter().next().unwrap().label().ends_with("/a.pem"));
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert!(warnings.iter().any(|text| text.contains("RSA key of 5120 bits")), "{warnings:?}");
    }
}

#[test]
fn of_a_private_key_that_everybody_may_read_the_operator_is_warned() {
    let (a_chain, a_key) = certificate("a.test");
    let (b_chain, b_key) = certificate("b.test");
    let directory = directory(&HashMap::from([
        ("a.crt", a_chain),
        ("a.key", a_key),
        ("b.pem", b_chain + &b_key),
    ]));
    let set = |name: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(directory.path().join(name), permissions).unwrap();
    };
    let exposed = || {
        let loaded = load_path(directory.path());
        assert_eq!(errors(&loaded, directory.path()), [""; 0]);
        let of = |warning: &CertificateFileWarning| match warning {
            CertificateFileWarning::Exposed(Exposed { path, mode }) => {
                let name = path.file_name().unwrap().to_str().unwrap();
                Some(format!("{name} {mode:o}"))
            }
            CertificateFileWarning::Certificate(_) | CertificateFileWarning::PassedOver(_) => None,
        };
        loaded.warnings.iter().filter_map(of).collect::<Vec<_>>()
    };
    set("a.crt", 0o644);
    for (folder, key, pem, expected) in [
        (0o755, 0o600, 0o640, &[][..]),
        (0o755, 0o440, 0o400, &[]),
        (0o755, 0o644, 0o600, &["a.key 644"]),
        (0o755, 0o600, 0o604, &["b.pem 604"]),
        (0o711, 0o602, 0o666, &["a.key 602", "b.pem 666"]),
        // No other user can reach them.
        (0o750, 0o644, 0o666, &[]),
    ] {
        set("", folder);
        set("a.key", key);
        set("b.pem", pem);
        assert_eq!(exposed(), expected, "{folder:o}");
    }
    // A link is as open as its target.
    set("", 0o755);
    let private = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(directory.path(), private.path().join("link")).unwrap();
    let loaded = load_path(&private.path().join("link/b.pem"));
    assert!(matches!(loaded.warnings[..], [CertificateFileWarning::Exposed(_)]));
}

/// Faults come and go; the neighbours of a bad file are read as they are now.
#[test]
fn faulty_file_keeps_its_last_good_state() {
    let texts = ["a.test", "b.test"].map(certificate).map(|(c, k)| (c.clone(), c + &k));
    let [(a_chain, a), (_, b)] = texts;
    let directory = directory(&HashMap::from([("a.pem", a.clone()), ("b.pem", b)]));
    let source = CertificateSource::Path(directory.path().to_owned());
    let provider = lane_provider(ProviderChoice::AwsLc, &Policy::default().groups).unwrap();
    let load = |before: &[Arc<CertificateIndex>]| {
        let (first, bounds) = (DefaultCertificate::First, bounds(9, 9));
        load(std::slice::from_ref(&source), first, bounds, &provider.crypto, NOW_S, before)
    };
    let digests = |loaded: &LoadedCertificates| {
        ["a.test", "b.test"].map(|name| loaded.index.find(name).first().map(|c| c.digest()))
    };
    let first = load(&[]);
    let served = digests(&first);
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.pem", &a_chain);
    let (b_chain, b_key) = certificate("b.test");
    write("b.pem", &(b_chain + &b_key));
    let cold = load(&[]);
    assert_eq!(digests(&cold)[0], None, "nothing is known of it");
    assert!(!cold.faults[0].is_kept);
    let mut before = Arc::new(first.index);
    for _ in 0..3 {
        let loaded = load(&[Arc::clone(&before)]);
        let [fault] = &loaded.faults[..] else { panic!("{:?}", loaded.faults) };
        assert!(fault.is_kept && fault.path.ends_with("a.pem"), "{fault:?}");
        assert_eq!(fault.source, directory.path());
        assert_eq!(digests(&loaded)[0], served[0]);
        assert!(digests(&loaded)[1] != served[1], "its neighbour is renewed");
        assert_eq!(loaded.index.default_certificates()[0].label(), fault.path.to_str().unwrap());
        before = Arc::new(loaded.index);
    }
    // A folder that is gone takes nothing with it; a file that was removed is gone.
    let away = directory.path().with_extension("away");
    fs::rename(directory.path(), &away).unwrap();
    let loaded = load(&[Arc::clone(&before)]);
    assert_eq!((loaded.faults.len(), loaded.index.len()), (1, 2));
    fs::rename(&away, directory.path()).unwrap();
    fs::remove_file(directory.path().join("a.pem")).unwrap();
    let loaded = load(&[Arc::clone(&before)]);
    assert_eq!((loaded.faults.len(), loaded.index.len()), (0, 1));
    write("a.pem", &a);
    let loaded = load(&[before]);
    assert_eq!((loaded.faults.len(), digests(&loaded)[0]), (0, served[0]));
}

/// A folder that cannot be read keeps its own certificates, and takes none of the folders below it.
#[test]
fn closed_folder_keeps_its_own_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("certs").join(name);
    let mut own = vec![CertificateSource::Path(at(""))];
    for (file, name) in [
        ("a.pem", "a.test"),
        ("live/fullchain.pem", "live.test"),
        ("others/b.pem", "b.test"),
        ("others/deep/fullchain.pem", "deep.test"),
    ] {
        fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        let (chain, key) = certificate(name);
        fs::write(at(file), chain + &key).unwrap();
    }
    let provider = lane_provider(ProviderChoice::AwsLc, &Policy::default().groups).unwrap();
    let load = |sources: &[CertificateSource], before: &[Arc<CertificateIndex>]| {
        let (first, bounds) = (DefaultCertificate::First, bounds(9, 9));
        load(sources, first, bounds, &provider.crypto, NOW_S, before).index
    };
    let others = ["others/b.pem", "others/deep/fullchain.pem"];
    let others = others.map(|file| CertificateSource::Path(at(file)));
    let before = [&own[..], &others].map(|sources| Arc::new(load(sources, &[])));
    assert_eq!(before.each_ref().map(|index| index.len()), [2, 2]);
    fs::rename(at(""), folder.path().join("away")).unwrap();
    let kept = load(&own, &before);
    let labels: Vec<_> = kept.iter().map(|each| Path::new(each.label()).to_owned()).collect();
    assert_eq!(labels, [at("a.pem"), at("live/fullchain.pem")]);
    own[0] = CertificateSource::Path(at("others"));
    assert_eq!(load(&own, &before).len(), 2, "a folder and what it has of clients");
}
