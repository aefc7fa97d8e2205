//! What a file may say, and what is said of mistakes in it.

use std::collections::HashSet;
use std::time::Duration;

use super::*;

mod reference;

const GOOD: &str = "store = \"store\"
store_key = { file = \"store.key\" }
[[authority]]
directory = \"https://ca.test/dir\"
agree_to_terms = true
[[certificate]]
names = [\"A.test.\", \"b.test\"]
challenge = \"http-01\"
";

fn parse(text: &str) -> Result<Settings, String> {
    Settings::parse(Path::new("/e/agent.toml"), text).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn what_is_not_written_has_a_default() {
    let settings = parse(GOOD).unwrap();
    assert_eq!(settings.store, Path::new("/e/store"));
    assert_eq!(settings.store_key, KeySource::File("/e/store.key".into()));
    let authority = Authority {
        contact: Vec::new(),
        directory: "https://ca.test/dir".into(),
        external_account: None,
        key: KeyKind::P256,
        profile: None,
        roots: vec![RootSource::System],
    };
    assert_eq!(settings.authorities, [authority]);
    let names = vec!["a.test".to_owned(), "b.test".to_owned()];
    let wanted = WantedCertificate { challenge: Challenge::Http01, names };
    assert_eq!(settings.certificates, [wanted]);
}

#[test]
fn the_example_is_in_order_and_says_every_key() {
    let text = include_str!("../../../packaging/agent.toml");
    let settings = parse(text).unwrap();
    assert_eq!(settings.authorities.len(), 1);
    // With all that is commented out, too.
    let every = uncommented(text);
    assert_eq!(left_out(&every), Vec::<String>::new());
    let settings = parse(&every).unwrap();
    let [authority, second] = &settings.authorities[..] else { panic!("{settings:?}") };
    assert!(authority.profile.is_some() && !authority.contact.is_empty());
    assert!(second.external_account.is_some());
    let push = settings.push.as_ref().unwrap();
    assert!(!push.revocation_lists.is_empty() && push.roles[0].may.len() == 3);
    assert!(settings.certificates.iter().any(|c| matches!(c.challenge, Challenge::Dns01(_))));
    let fleet = settings.fleet.as_ref().unwrap();
    assert!(fleet.etcd.identity.is_some() && fleet.etcd.login.is_some(), "{fleet:?}");
    assert_eq!((fleet.etcd.endpoints.len(), fleet.machine.as_str()), (3, "edge-1"));
    // What stands there is the default.
    let least = "[fleet]\netcd = [\"http://[::1]:1\"]\nprefix = \"/t/\"\nmachine = \"m\"\n";
    let least = parse(&format!("{GOOD}{least}")).unwrap().fleet.unwrap();
    let times = |one: &FleetSettings| (one.lease, one.ticket_lifetime, one.ticket_root_every);
    assert_eq!(times(fleet), times(&least));
    let on_demand = OnDemandSettings {
        admin: vec!["/var/lib/sealane/store/names.sock".into()],
        challenge: Challenge::TlsAlpn01,
        permission: Permission::Service {
            roots: vec![RootSource::System],
            url: "http://127.0.0.1:5555/ask".into(),
        },
        rate: (10, Duration::from_secs(60)),
        waiting_max: 100,
    };
    assert_eq!(settings.on_demand.as_ref(), Some(&on_demand));
    // What is written there are the defaults, and with it nothing need be listed.
    let from = GOOD.find("[[certificate]]").unwrap();
    let least = "[on_demand]\nask = \"http://127.0.0.1:5555/ask\"\nchallenge = \"tls-alpn-01\"\n";
    let settings = parse(&(GOOD[..from].to_owned() + least)).unwrap();
    let by_its_store = OnDemandSettings { admin: vec!["/e/store/names.sock".into()], ..on_demand };
    assert_eq!((settings.on_demand, settings.certificates), (Some(by_its_store), Vec::new()));
}

/// The example with each key that is commented out and each table.
fn uncommented(text: &str) -> String {
    let uncommented = text.lines().map(|line| {
        let key =
            line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || key(rest).is_some());
        format!("{}\n", key.unwrap_or(line))
    });
    uncommented.collect()
}

/// Keys that the settings know and the example does not say, each behind its table. What the
/// settings know they tell of a key that they do not.
fn left_out(example: &str) -> Vec<String> {
    let (mut table, mut said) = (String::new(), HashSet::new());
    let mut probed = format!("{UNKNOWN} = 1\n");
    for line in example.lines() {
        probed += &format!("{line}\n");
        if line.starts_with('[') {
            probed += &format!("{UNKNOWN} = 1\n");
            table = format!("{}.", line.trim_matches(['[', ']']));
            said.insert(table.trim_end_matches('.').to_owned());
        } else if let Some(key) = key(line.trim_start_matches(['#', ' '])) {
            said.insert(format!("{table}{key}"));
        }
    }
    let mut left_out = Vec::new();
    for mistake in Settings::parse(Path::new("/e/agent.toml"), &probed).unwrap_err().0 {
        // Which of several tables it is in makes no difference.
        let field: String = mistake.field.split(['[', ']']).step_by(2).collect();
        let table = field.strip_suffix(UNKNOWN).unwrap();
        let known = mistake.problem.known.iter().map(|key| format!("{table}{key}"));
        left_out.extend(known.filter(|key| !said.contains(key)));
    }
    left_out
}

/// The key of a line with a key and its value.
fn key(line: &str) -> Option<&str> {
    let key = line.split_once(" = ")?.0;
    key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(key)
}

/// A key that is like none that there is.
const UNKNOWN: &str = "zzzzzzzz";

#[test]
fn mistakes_are_told_all_at_once_with_place_and_remedy() {
    let without = |line: &str| GOOD.replace(line, "");
    let with = |more: &str| format!("{GOOD}{more}\n");
    let again = "[[certificate]]\nnames = [\"b.test\", \"a.test\"]\nchallenge = \"http-01\"";
    let demand = |more: &str| with(&format!("[on_demand]\nchallenge = \"http-01\"\n{more}"));
    let asked = |more: &str| demand(&format!("ask = \"http://[::1]/ask\"\n{more}"));
    let account = "[[authority]]\ndirectory = \"https://b.test/\"\nagree_to_terms = true\n";
    for (text, expected) in [
        (String::new(), "/e/agent.toml:1:1: store: is missing; add store = "),
        (with("[fleet]"), "fleet.etcd: is missing from [fleet]; add etcd = "),
        (with("[fleet]\netcd = [\"http://10.0.0.1:2379\"]"), "would carry the password and who"),
        (with("[fleet]\nprefix = \"a\""), "fleet.prefix: \"a\" does not begin and end with /"),
        (with("[fleet]\nuser = \"u\""), "fleet.password: is missing"),
        (with("[fleet]\nkey = \"k\""), "fleet.key: has no certificate"),
        (with("[fleet]\nlease = \"1s\""), "fleet.lease: "),
        (String::new(), "certificate: is missing; add [[certificate]] with names and a challenge"),
        (without("agree_to_terms = true\n"), "authority[0].agree_to_terms: is missing"),
        (GOOD.replace("= true", "= false"), "no CA has an account for whoever does not agree"),
        (
            GOOD.replace("https://", "http://"),
            "4:13: authority[0].directory: \"http://ca.test/dir\"",
        ),
        (with("dns_command = [\"x\"]"), "means nothing without challenge = \"dns-01\""),
        (GOOD.replace("http-01", "dns-01"), "certificate[0].dns_command: is missing"),
        (GOOD.replace("http-01", "dns-02"), "\"dns-02\" is not a choice; choose \"http-01\" or"),
        (GOOD.replace("A.test.", "*.test"), "7:10: certificate[0].names[0]: a wildcard, which CAs"),
        (GOOD.replace("b.test", "a.test"), "is written twice; remove one of the two"),
        (with(again), "a.test: the same is at /e/agent.toml:6:1; remove one of the two"),
        (with("name = \"c\""), "certificate[0].name: is not a known key; did you mean \"names\"?"),
        (with(&format!("{account}contact = [\"me\"]")), "write it with mailto:"),
        (with(&format!("{account}key = \"p521\"")), "\"p521\" is not a choice"),
        (with(&format!("{account}external_account = {{ kid = \"k\" }}")), "key_file: is missing"),
        (
            demand(""),
            "/e/agent.toml:9:1: on_demand: without ask, whoever connects with any name orders a \
             certificate; name the service that knows your names",
        ),
        (asked("rate = \"ten\""), "12:8: on_demand.rate: \"ten\" is no number from 1 to 10000"),
        (asked("waiting = 0"), "12:11: on_demand.waiting: "),
        (asked("ask_command = [\"x\"]"), "on_demand.ask: has no place beside ask_command"),
        (asked("wait = \"1s\""), "on_demand.wait: is not a known key"),
        (demand("ask_command = []"), "on_demand.ask_command: the list is empty"),
        (demand("ask = \"http://10.0.0.1/ask\""), "would be believed in clear"),
        (demand("ask = \"ask.example.com\""), "on_demand.ask: \"ask.example.com\" is not the URL"),
        (with("[on_demand]"), "on_demand.challenge: is missing"),
        (GOOD.replace("{ file", "{ fiel"), "store_key.fiel: is not a known key"),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.contains(expected), "{expected:?} is not in {said:?}");
    }
    let said = parse(&demand("rate = 1\nwaiting = 0\nadmin = 7")).unwrap_err();
    assert_eq!(said.lines().filter(|line| line.contains(" on_demand")).count(), 4, "{said}");
    let many: Vec<String> = (0..=NAMES_MAX).map(|n| format!("\"n{n}.test\"")).collect();
    let text = GOOD.replace("\"b.test\"", &many.join(","));
    assert!(parse(&text).unwrap_err().contains("the list has 102 elements; write at most 100"));
}

/// Settings with two lists of these texts, as `load` reads them.
fn load(lists: [&str; 2]) -> Result<Settings, String> {
    load_bytes(lists.map(str::as_bytes))
}

fn load_bytes(lists: [&[u8]; 2]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = GOOD.to_owned();
    for (name, list) in ["one", "two"].iter().zip(lists) {
        std::fs::write(folder.path().join(name), list).unwrap();
        text += &format!("[[certificate]]\nnames_from = {name:?}\nchallenge = \"http-01\"\n");
    }
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, text).unwrap();
    let folder = format!("{}/", folder.path().display());
    Settings::load(&file).map_err(|mistakes| mistakes.to_string().replace(&folder, ""))
}

#[test]
fn a_list_has_a_certificate_to_a_line() {
    let settings = load(["c.test  D.test. # both\n\n# none\n", "e.test"]).unwrap();
    let names: Vec<_> = settings.certificates.iter().map(|one| one.names.join(" ")).collect();
    assert_eq!(names, ["a.test b.test", "c.test d.test", "e.test"]);
    assert!(settings.certificates.iter().all(|one| one.challenge == Challenge::Http01));
}

/// A list may be any file, by mistake: none of them holds up the agent.
#[test]
fn lists_are_text_of_bounded_size() {
    assert!(load(["\u{feff}c.test\r\n", ""]).is_ok());
    for (bytes, expected) in [
        (b"\xff\xfec\0".to_vec(), "one: is UTF-16; save it as UTF-8"),
        (b"c.test\n\xff".to_vec(), "one: line 2 is not UTF-8; save it as UTF-8"),
        (vec![0; 1 << 20], "one: line 1 is longer than 65536 bytes; is it a list of names?"),
    ] {
        assert_eq!(load_bytes([&bytes, b""]).unwrap_err(), expected);
    }
    let text = format!("{GOOD}[[certificate]]\nnames_from = \"list\"\nchallenge = \"http-01\"\n");
    let folder = tempfile::tempdir().unwrap();
    let [file, list] = ["agent.toml", "list"].map(|name| folder.path().join(name));
    std::fs::write(&file, text).unwrap();
    let refusal = || Settings::load(&file).unwrap_err().to_string();
    rustix::fs::mkfifoat(rustix::fs::CWD, &list, rustix::fs::Mode::RWXU).unwrap();
    assert!(refusal().contains("list: cannot be read: it is a named pipe, not a file"));
    std::fs::remove_file(&list).unwrap();
    std::fs::File::create(&list).unwrap().set_len(8 << 30).unwrap();
    assert!(refusal().contains("list: is larger than 256 MiB"));
}

#[test]
fn every_mistake_of_every_list_is_told() {
    let said = load([
        "b.test a.test\n*.c.test\nd.test\nd.test d.test\n",
        "no name\n\u{e9}.test\nd.test\n",
    ]);
    let expected = "one:1: the same names are in a table; remove one of the two
one:2: has a wildcard, which CAs issue for a record of DNS alone; name each host, or list \\
it with dns-01
one:4: has a name twice; remove one
two:2: has a word that is not a host name; write it in its ASCII form (xn--...)
two:3: the same names are in one:3; remove one of the two";
    assert_eq!(said.unwrap_err(), expected.replace("\\\n", ""));
}

/// A key that takes a path may be given that of a private key.
#[test]
fn no_mistake_of_a_list_quotes_it() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let bare: String = key.lines().filter(|line| !line.starts_with('-')).collect();
    let short: Vec<&str> = bare.as_bytes().chunks(20).map(|c| str::from_utf8(c).unwrap()).collect();
    let (short, twice) = (short.join("\n"), format!("{0} {0}\n*.{0}", &bare[..10]));
    for list in [&key, &bare, &short, &twice] {
        let said = load([list, "-"]).unwrap_err();
        let is_quoted = |part: &[u8]| said.contains(str::from_utf8(part).unwrap());
        assert!(!bare.as_bytes().windows(10).any(is_quoted), "{said}");
    }
}

#[test]
fn a_list_of_mistakes_or_of_another_kind_ends() {
    let said = load([&"-.test\n".repeat(1_000), ""]).unwrap_err();
    assert_eq!(said.lines().count(), 101, "{said}");
    assert!(said.ends_with("one: may have more mistakes; mend these first"), "{said}");
    let many: String = (0..100).map(|number| format!("n{number}.test ")).collect();
    assert!(load([&many, ""]).is_ok());
    assert!(load([&(many + "more.test"), ""]).unwrap_err().contains("more than 100 names"));
    let text = GOOD.to_owned() + "[[certificate]]\nnames_from = \"absent\"\nnames = []\n";
    let said = parse(&text).unwrap_err();
    assert!(said.contains("names: has no place beside names_from; keep one of the two"), "{said}");
}
