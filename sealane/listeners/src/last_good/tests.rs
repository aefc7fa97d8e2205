//! Each material: bad at the start, turned bad, and well again; and that neighbours go on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use sealane_engine::client::ClientContexts;
use sealane_engine::tickets::UnixSeconds;

use super::*;
use crate::stores::Stores;
use crate::{KnownClientRoots, Names, Surroundings, survey};

/// A folder with materials, and the state of them that a process keeps.
struct Rig {
    backend: &'static str,
    client_roots: KnownClientRoots,
    clients: ClientContexts,
    folder: tempfile::TempDir,
    last_good: LastGood,
    listener: String,
    names: Names,
    stores: Stores,
    top: String,
}

/// The result of a reading for a listener.
struct Read {
    /// Path, and whether the last good state is used, of each fault.
    faults: Vec<(String, bool)>,
    found: String,
}

impl Rig {
    /// With a good certificate `own.pem`, and further keys of the listener.
    fn new(listener: &str) -> Self {
        let rig = Self {
            backend: "127.0.0.1:2",
            client_roots: KnownClientRoots::default(),
            clients: ClientContexts::new(),
            folder: tempfile::tempdir().unwrap(),
            last_good: LastGood::default(),
            listener: listener.to_owned(),
            names: Names::default(),
            stores: Stores::default(),
            top: String::new(),
        };
        rig.write("own.pem", &leaf("own.test"));
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Reads everything, as a start or a reload does; `show` prints the result for the listener.
    fn read(&mut self, show: impl Fn(&Survey<'_>) -> String) -> Result<Read, Vec<String>> {
        let text = format!(
            "{}\n[[listener]]\naddress = \"127.0.0.1:1\"\nbackends = [{:?}]\n{}",
            self.top, self.backend, self.listener
        );
        let config = Config::parse(&self.path("sealane.toml"), &text).unwrap();
        let mut around = Surroundings {
            client_roots: &mut self.client_roots,
            clients: &mut self.clients,
            last_good: &mut self.last_good,
            names: &mut self.names,
            now: UnixSeconds(NOW_S),
            resolve: &|_| [].into_iter().collect(),
            stores: &mut self.stores,
        };
        let surveys = survey(&config, &mut around);
        let of_listener = &surveys.listeners[0];
        let errors = [surveys.errors.clone(), of_listener.errors.clone()].concat();
        if !errors.is_empty() {
            return Err(errors);
        }
        assert!(of_listener.contexts(&config).is_some(), "it is served");
        let all = surveys.faults.iter().chain(&of_listener.faults);
        let short = |fault: &Fault| {
            let path = fault.path.strip_prefix(self.folder.path()).unwrap_or(&fault.path);
            (path.display().to_string(), fault.without.is_none())
        };
        let read = Read { faults: all.map(short).collect(), found: show(of_listener) };
        self.last_good = surveys.last_good;
        Ok(read)
    }

    /// Tests the states of one material: a `bad` file at the start gives `without`, a `good` one
    /// gives `with`, and later `bad` ones keep `with`, through any number of readings.
    fn course(
        &mut self,
        file: &str,
        (bad, good): (&str, &str),
        show: impl Fn(&Survey<'_>) -> String,
        (without, with): (&str, &str),
    ) {
        let (none, fault, kept) =
            (vec![], vec![(file.to_owned(), false)], vec![(file.to_owned(), true)]);
        for (step, text, faults, found) in [
            ("bad at the start", bad, &fault, without),
            ("still bad", bad, &fault, without),
            ("good", good, &none, with),
            ("bad", bad, &kept, with),
            ("still bad", bad, &kept, with),
            ("well", good, &none, with),
        ] {
            self.write(file, text);
            let read = self.read(&show).unwrap();
            assert_eq!((&read.faults, &*read.found), (faults, found), "{file}: {step}");
        }
        fs::remove_file(self.path(file)).unwrap();
        let read = self.read(&show).unwrap();
        assert_eq!((read.faults, &*read.found), (kept, with), "{file}: missing");
    }
}

const TLS: &str = "tls://127.0.0.1:2";
const NOW_S: u64 = 1_800_000_000;

fn leaf(name: &str) -> String {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    made.cert.pem() + &made.signing_key.serialize_pem()
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn list_until(issuer: &CertifiedIssuer<'static, KeyPair>, year: i32) -> String {
    list_for(issuer, &|params| params.next_update = date_time_ymd(year, 1, 1))
}

fn list_for(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    change: &dyn Fn(&mut CertificateRevocationListParams),
) -> String {
    let mut params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2030, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    change(&mut params);
    params.signed_by(issuer).unwrap().pem().unwrap()
}

fn names(survey: &Survey<'_>) -> String {
    let index = survey.certificates.as_ref().unwrap();
    let mut names: Vec<_> = index.iter().flat_map(|each| each.names().to_vec()).collect();
    names.sort();
    names.join(" ")
}

/// Which of three clients come in.
fn admitted(survey: &Survey<'_>) -> String {
    let clients = ["10.0.0.1", "192.0.2.1", "198.51.100.1"];
    let admits = |client: &&str| survey.access.admits(client.parse().unwrap());
    clients.into_iter().filter(admits).collect::<Vec<_>>().join(" ")
}

/// Authorities of clients, and those of them that have a list.
fn believed(survey: &Survey<'_>) -> String {
    let roots = survey.clients[0].roots.as_ref().unwrap();
    let (all, unlisted) = (roots.subjects().len(), roots.unlisted().len());
    match roots.has_no_authority() {
        true => "nobody".into(),
        false => format!("{all} authorities, {} lists, {unlisted} unlisted", roots.lists(0).len()),
    }
}

fn backend(survey: &Survey<'_>) -> String {
    let with = survey.backend_tls[0].as_ref().map_or("no context", |_| "context");
    format!("{with}, {} backends", survey.backends[0].len())
}

#[test]
fn bad_certificate_leaves_its_neighbours_alone() {
    let own = "certificates = [\"own.pem\", \"a.pem\"]";
    let a = leaf("a.test");
    let chain = a.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
    for bad in [chain, "", "<html>", &a.replace("PRIVATE", "PUBLIC")] {
        Rig::new(own).course("a.pem", (bad, &a), names, ("own.test", "a.test own.test"));
    }
}

#[test]
fn listener_without_a_certificate_serves_no_client() {
    let mut rig = Rig::new("certificates = [\"a.pem\"]");
    rig.write("a.pem", "");
    let serves = |survey: &Survey<'_>| survey.can_serve().to_string();
    assert_eq!(rig.read(serves).unwrap().found, "false");
    rig.write("a.pem", &leaf("a.test"));
    assert_eq!(rig.read(serves).unwrap().found, "true");
    rig.write("a.pem", "");
    assert_eq!(rig.read(serves).unwrap().found, "true");
}

#[test]
fn bad_networks_fail_closed() {
    let own = "certificates = [\"own.pem\"]\n";
    let bad = "10.0.0.0/8\n10.0.0.300\n";
    let deny = format!("{own}deny = [\"198.51.100.1\", \"file:list\"]");
    let of_deny = ("", "192.0.2.1");
    Rig::new(&deny).course("list", (bad, "10.0.0.0/8"), admitted, of_deny);
    let allow = format!("{own}allow = [\"198.51.100.1\", \"file:list\"]");
    let of_allow = ("198.51.100.1", "10.0.0.1 198.51.100.1");
    Rig::new(&allow).course("list", (bad, "10.0.0.0/8"), admitted, of_allow);
    let only = format!("{own}allow = [\"file:list\"]");
    Rig::new(&only).course("list", ("# none", "10.0.0.0/8"), admitted, ("", "10.0.0.1"));
}

/// A last good list that does not fit next to its neighbour any more denies all clients.
#[test]
fn deny_list_that_does_not_fit_fails_closed() {
    let deny = "certificates = [\"own.pem\"]\ndeny = [\"file:a\", \"file:b\"]";
    let networks = |first: usize, count: usize| -> String {
        (first..first + count)
            .map(|n| format!("11.{}.{}.{}\n", n >> 16, n >> 8 & 255, n & 255))
            .collect()
    };
    let mut rig = Rig::new(deny);
    rig.write("a", &networks(0, 70_000));
    rig.write("b", &(networks(80_000, 29_999) + "10.0.0.1\n"));
    assert_eq!(rig.read(admitted).unwrap().found, "192.0.2.1 198.51.100.1");
    rig.write("a", &networks(0, 75_000));
    let read = rig.read(admitted).unwrap();
    assert_eq!((read.faults, &*read.found), (vec![("b".to_owned(), false)], ""));
}

#[test]
fn bad_client_authorities_fail_closed() {
    let [one, other] = ["one", "other"].map(authority);
    let keys = |roots: &str| {
        format!(
            "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
             roots = [{roots}]"
        )
    };
    let with = "1 authorities, 0 lists, 0 unlisted";
    let bad = ("<html>", &*one.pem());
    Rig::new(&keys("\"roots\"")).course("roots", bad, believed, ("nobody", with));
    let mut rig = Rig::new(&keys("\"roots\", \"other\""));
    rig.write("other", &other.pem());
    rig.course("roots", bad, believed, (with, "2 authorities, 0 lists, 0 unlisted"));
}

/// An intermediate authority alone verifies no client.
#[test]
fn roots_without_a_root_are_warned_of() {
    let one = authority("one");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "between");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let between = params.signed_by(&KeyPair::generate().unwrap(), &one).unwrap().pem();
    let mut rig = Rig::new(
        "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
         roots = [\"roots\"]",
    );
    let warned = |survey: &Survey<'_>| {
        let warnings = survey.warnings.concat().concat();
        warnings.contains("only intermediate authorities").to_string()
    };
    for (roots, expected) in [(between.clone(), "true"), (between + &one.pem(), "false")] {
        rig.write("roots", &roots);
        assert_eq!(rig.read(warned).unwrap().found, expected);
    }
}

#[test]
fn bad_list_fails_closed() {
    let [one, other] = ["one", "other"].map(authority);
    let keys = |crls: &str| {
        format!(
            "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
             roots = [\"roots\"]\ncrls = [{crls}]"
        )
    };
    let (html, good) = ("<html>", list_until(&one, 2030));
    let with = "2 authorities, 1 lists, 1 unlisted";
    let mut rig = Rig::new(&keys("\"one.crl\""));
    rig.write("roots", &(one.pem() + &other.pem()));
    rig.course("one.crl", (html, &good), believed, ("nobody", with));
    // An older list of the lost one's issuer may be among the others, so none of them counts.
    let mut rig = Rig::new(&keys("\"one.crl\", \"other.crl\""));
    rig.write("roots", &(one.pem() + &other.pem()));
    rig.write("other.crl", &list_until(&other, 2030));
    let both = "2 authorities, 2 lists, 0 unlisted";
    rig.course("one.crl", (html, &good), believed, ("nobody", both));
    // Its neighbour is renewed.
    rig.write("other.crl", &list_until(&other, 2031));
    let renewed = |survey: &Survey<'_>| {
        let lists = &survey.clients[0].lists;
        lists.iter().map(|list| list.next_update_s).max().unwrap().to_string()
    };
    assert_eq!(rig.read(renewed).unwrap().found, "1924992000");
    // In a folder that is replaced as a whole between two readings.
    let mut rig = Rig::new(&keys("\"lists\""));
    rig.write("roots", &(one.pem() + &other.pem()));
    fs::create_dir(rig.path("lists")).unwrap();
    rig.write("lists/other.crl", &list_until(&other, 2030));
    rig.write("lists/one.crl", &good);
    assert_eq!(rig.read(believed).unwrap().found, both);
    fs::rename(rig.path("lists"), rig.path("away")).unwrap();
    let read = rig.read(believed).unwrap();
    assert_eq!((read.faults, &*read.found), (vec![("lists".to_owned(), true)], both));
    // A file in a deeper folder is not in the folder.
    fs::rename(rig.path("away"), rig.path("lists")).unwrap();
    fs::create_dir(rig.path("lists/deeper")).unwrap();
    fs::rename(rig.path("lists/one.crl"), rig.path("lists/deeper/one.crl")).unwrap();
    rig.listener = keys("\"lists\"")
        + "\n[[listener.route]]\nnames = [\"b.test\"]\nbackends = [\"127.0.0.1:3\"]\nclients = \
           { certificates = \"required\", roots = [\"roots\"], crls = [\"lists/deeper\"] }";
    assert_eq!(rig.read(believed).unwrap().found, with);
    fs::rename(rig.path("lists"), rig.path("away")).unwrap();
    assert_eq!(rig.read(believed).unwrap().found, with);
}

/// Half of a download, next to lists that count.
#[test]
fn new_bad_list_keeps_the_state_of_its_folder() {
    let [one, other] = ["one", "other"].map(authority);
    let mut rig = Rig::new(
        "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
         roots = [\"roots\"]\ncrls = [\"lists\"]",
    );
    rig.write("roots", &(one.pem() + &other.pem()));
    fs::create_dir(rig.path("lists")).unwrap();
    let (list, of_other) = (list_until(&one, 2030), list_until(&other, 2030));
    let half = &of_other[..of_other.len() / 2];
    let with = "2 authorities, 1 lists, 1 unlisted";
    // At the start nothing is known of the bad one: no list counts until it is in order or gone.
    rig.write("lists/one.crl", &list);
    rig.write("lists/other.crl", half);
    for _ in 0..2 {
        let read = rig.read(believed).unwrap();
        assert_eq!(
            (read.faults, &*read.found),
            (vec![("lists/other.crl".into(), false)], "nobody")
        );
    }
    fs::rename(rig.path("lists"), rig.path("away")).unwrap();
    assert_eq!(rig.read(believed).unwrap().found, "nobody");
    fs::rename(rig.path("away"), rig.path("lists")).unwrap();
    assert_eq!(rig.read(believed).unwrap().found, "nobody");
    fs::remove_file(rig.path("lists/other.crl")).unwrap();
    assert_eq!(rig.read(believed).unwrap().found, with);
    // While one counts, it counts on, also where it is gone by then.
    rig.write("lists/other.crl", half);
    for is_gone in [false, true] {
        if is_gone {
            fs::remove_file(rig.path("lists/one.crl")).unwrap();
        }
        let read = rig.read(believed).unwrap();
        assert_eq!((read.faults, &*read.found), (vec![("lists/other.crl".into(), true)], with));
    }
    rig.write("lists/one.crl", &list);
    rig.write("lists/other.crl", &of_other);
    let read = rig.read(believed).unwrap();
    assert_eq!((read.faults, &*read.found), (vec![], "2 authorities, 2 lists, 0 unlisted"));
}

/// An expired authority is reported as an expired list is.
#[test]
fn expired_authority_of_clients_is_a_fault() {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ended");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2026, 1, 1);
    let ended = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut rig = Rig::new(
        "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
         roots = [\"roots\"]",
    );
    for (pem, faults) in [(ended.pem(), 1), (authority("one").pem(), 0)] {
        rig.write("roots", &pem);
        assert_eq!(rig.read(believed).unwrap().faults.len(), faults);
    }
}

/// Editors on Windows write a byte order mark, or UTF-16.
#[test]
fn network_file_may_have_a_byte_order_mark() {
    let mut rig = Rig::new("certificates = [\"own.pem\"]\ndeny = [\"file:list\"]");
    rig.write("list", "\u{feff}10.0.0.1\r\n");
    let read = rig.read(admitted).unwrap();
    assert_eq!((read.faults, &*read.found), (vec![], "192.0.2.1 198.51.100.1"));
    let text = |survey: &Survey<'_>| survey.faults[0].text.clone();
    fs::write(rig.path("list"), b"\xff\xfe1\0").unwrap();
    let text = rig.read(text).unwrap().found;
    assert!(text.ends_with("/list: is UTF-16; save it as UTF-8"), "{text}");
}

/// An expired list is used, refuses its clients, and holds nothing up.
#[test]
fn ended_list_is_served_and_reported() {
    let one = authority("one");
    let mut rig = Rig::new(
        "certificates = [\"own.pem\"]\n[listener.clients]\ncertificates = \"required\"\n\
         roots = [\"roots\"]\ncrls = [\"one.crl\"]",
    );
    rig.write("roots", &one.pem());
    let with = "1 authorities, 1 lists, 0 unlisted";
    for (year, faults) in [(2026, 1), (2030, 0), (2026, 1)] {
        rig.write("one.crl", &list_until(&one, year));
        let read = rig.read(believed).unwrap();
        assert_eq!((read.faults.len(), &*read.found), (faults, with), "{year}");
    }
    // A reload that names it for the first time is accepted as well.
    let named = rig.listener.clone();
    rig.listener = named.replace("\ncrls = [\"one.crl\"]", "");
    rig.read(believed).unwrap();
    rig.listener = named;
    assert_eq!(rig.read(believed).unwrap().faults.len(), 1);
    // The verifier refuses it from the very second on in which the next one is due.
    for (later_s, faults) in [(0, 1), (1, 0)] {
        let due = date_time_ymd(2027, 1, 15) + Duration::from_secs(8 * 3_600 + later_s);
        rig.write("one.crl", &list_for(&one, &|params| params.next_update = due));
        assert_eq!(rig.read(believed).unwrap().faults.len(), faults, "{later_s}");
    }
}

#[test]
fn bad_backend_trust_never_means_plain_bytes() {
    let keys = |more: &str| {
        format!(
            "certificates = [\"own.pem\"]\n[listener.backend_tls]\nserver_name = \"a.test\"\n\
             roots = [\"roots\"]\n{more}"
        )
    };
    let roots = authority("one").pem();
    let without = "no context, 0 backends";
    let mut rig = Rig { backend: TLS, ..Rig::new(&keys("")) };
    rig.course("roots", ("<html>", &roots), backend, (without, "context, 1 backends"));
    let mut rig = Rig { backend: TLS, ..Rig::new(&keys("client_certificate = \"client.pem\"")) };
    rig.write("roots", &roots);
    let client = leaf("client.test");
    rig.course("client.pem", ("", &client), backend, (without, "context, 1 backends"));
}

#[test]
fn two_bad_materials_keep_their_own_state() {
    let mut rig = Rig::new("certificates = [\"own.pem\", \"a.pem\"]\ndeny = [\"file:list\"]");
    rig.write("a.pem", &leaf("a.test"));
    rig.write("list", "10.0.0.1");
    let show = |survey: &Survey<'_>| format!("{}; {}", names(survey), admitted(survey));
    let good = rig.read(show).unwrap();
    assert_eq!(good.found, "a.test own.test; 192.0.2.1 198.51.100.1");
    rig.write("a.pem", "");
    rig.write("list", "what?");
    rig.write("own.pem", &leaf("renewed.test"));
    for _ in 0..2 {
        let read = rig.read(show).unwrap();
        assert_eq!(read.faults, [("list".to_owned(), true), ("a.pem".to_owned(), true)]);
        assert_eq!(read.found, "a.test renewed.test; 192.0.2.1 198.51.100.1");
    }
    rig.write("list", "10.0.0.1\n192.0.2.1");
    let read = rig.read(show).unwrap();
    assert_eq!(read.faults, [("a.pem".to_owned(), true)]);
    assert_eq!(read.found, "a.test renewed.test; 198.51.100.1");
}

/// A bad change of the configuration changes nothing.
#[test]
fn material_named_for_the_first_time_must_do() {
    let mut rig = Rig::new("certificates = [\"own.pem\"]");
    rig.read(names).unwrap();
    let own = rig.listener.clone();
    rig.listener = "certificates = [\"own.pem\", \"absent.pem\"]".into();
    let errors = rig.read(names).err().unwrap();
    assert!(errors[0].contains("absent.pem: cannot be read"), "{errors:?}");
    rig.listener = format!("{own}\ndeny = [\"file:absent\"]");
    assert!(rig.read(names).err().unwrap()[0].contains("absent: cannot be read"));
    rig.listener = format!("{own}\ndefault_certificate = \"absent.test\"");
    assert!(rig.read(names).err().unwrap()[0].contains("default certificate \"absent.test\""));
    // Also where it is in a folder that the configuration named before.
    fs::create_dir(rig.path("folder")).unwrap();
    rig.write("folder/a.pem", &leaf("a.test"));
    rig.listener = "certificates = [\"own.pem\", \"folder\"]".into();
    rig.read(names).unwrap();
    rig.listener = "certificates = [\"own.pem\", \"folder\", \"folder/absent.pem\"]".into();
    assert!(rig.read(names).err().unwrap()[0].contains("absent.pem: cannot be read"));
    rig.listener = own;
    rig.read(names).unwrap();
}

/// At a start certificates beyond a limit are left out. A reload that would end names is refused.
#[test]
fn exceeded_limit_refuses_a_reload() {
    let mut rig = Rig::new("certificates = [\"own.pem\", \"a.pem\", \"b.pem\"]");
    rig.write("a.pem", &leaf("a.test"));
    rig.write("b.pem", &leaf("b.test"));
    rig.top = "limits.certificates = 2".into();
    let read = rig.read(names).unwrap();
    assert_eq!((read.faults, &*read.found), (vec![("b.pem".to_owned(), false)], "a.test own.test"));
    rig.top = "limits.names = 1".into();
    let errors = rig.read(names).err().unwrap();
    assert!(errors[0].contains("raise limits.names"), "{errors:?}");
    rig.top = "limits.certificates = 1".into();
    let errors = rig.read(names).err().unwrap();
    assert!(errors[0].contains("raise limits.certificates"), "{errors:?}");
}
