//! What a file may say, and what is said of mistakes in it.

use super::*;

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
    let every: String = text
        .lines()
        .map(|line| {
            let key = line.strip_prefix("# ").filter(|rest| {
                let word = rest.split(' ').next().unwrap_or_default();
                rest.starts_with('[') || rest[word.len()..].starts_with(" = ")
            });
            format!("{}\n", key.unwrap_or(line))
        })
        .collect();
    let settings = parse(&every).unwrap();
    let [authority, second] = &settings.authorities[..] else { panic!("{settings:?}") };
    assert!(authority.profile.is_some() && !authority.contact.is_empty());
    assert!(second.external_account.is_some());
    assert!(settings.certificates.iter().any(|c| matches!(c.challenge, Challenge::Dns01(_))));
}

#[test]
fn mistakes_are_told_all_at_once_with_place_and_remedy() {
    let without = |line: &str| GOOD.replace(line, "");
    let with = |more: &str| format!("{GOOD}{more}\n");
    let again = "[[certificate]]\nnames = [\"b.test\", \"a.test\"]\nchallenge = \"http-01\"";
    let account = "[[authority]]\ndirectory = \"https://b.test/\"\nagree_to_terms = true\n";
    for (text, expected) in [
        (String::new(), "/e/agent.toml:1:1: store: is missing; add store = "),
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
        (GOOD.replace("{ file", "{ fiel"), "store_key.fiel: is not a known key"),
    ] {
        let said = parse(&text).unwrap_err();
        assert!(said.contains(expected), "{expected:?} is not in {said:?}");
    }
    let many: Vec<String> = (0..=NAMES_MAX).map(|n| format!("\"n{n}.test\"")).collect();
    let text = GOOD.replace("\"b.test\"", &many.join(","));
    assert!(parse(&text).unwrap_err().contains("the list has 102 elements; write at most 100"));
}
