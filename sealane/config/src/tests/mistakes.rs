//! Configurations that are refused: too many, contradicting themselves, no configuration at all.

use sealane_operator::SETTINGS_BYTES_MAX;

use super::*;

/// The relay remembers which of them a connection has tried in 64 bits.
#[test]
fn no_listener_has_more_backends_than_the_relay_can_tell_apart() {
    let list = |count: usize| {
        let backends: Vec<_> = (1..=count).map(|port| format!("\"localhost:{port}\"")).collect();
        LISTENER.replace("\"localhost:80\"", &backends.join(", "))
    };
    assert_eq!(parse(&list(64)).unwrap().listeners[0].destination.backends.len(), 64);
    let mistakes = parse(&list(65)).unwrap_err().to_string();
    assert!(mistakes.contains("the list has 65 elements; write at most 64"), "{mistakes}");
    let simple = Simple {
        backends: (1..=65)
            .map(|port| value::backend(&format!("localhost:{port}")).unwrap())
            .collect(),
        certificates: vec!["certs".into()],
        listen: value::listen_addresses("0.0.0.0:443").unwrap().0,
        ..Simple::default()
    };
    let mistakes = Config::simple(simple).unwrap_err().to_string();
    assert_eq!(mistakes, "--backend: is given 65 times; give it at most 64 times");
}

/// What can be wrong in shares of backends, and in how they are checked.
#[test]
fn contradictions_of_backends() {
    let listener = |lines: &str| format!("{LISTENER}{lines}\n");
    let backends = |written: &str| LISTENER.replace("\"localhost:80\"", written);
    for (text, expected) in [
        (
            backends("{ address = \"a:80\", weight = 0 }"),
            "listener[0].backends: no backend gets a connection: all weights are 0; give one",
        ),
        (
            backends("{ address = \"a:80\", backup = true }"),
            "listener[0].backends: all backends are backups, and there is nothing that they stand",
        ),
        (
            backends("{ address = \"a:80\", weight = 257 }"),
            "listener[0].backends[0].weight: 257 is out of range; choose 0 to 256",
        ),
        (
            backends("{ weight = 2 }"),
            "listener[0].backends[0].address: is missing from [listener[0].backends[0]]; add",
        ),
        (
            backends("{ address = \"a:80\", weight = 2 }, \"a:80\""),
            "listener[0].backends[1]: \"a:80\" is written twice; remove one of the two",
        ),
        (
            listener("[listener.check]\nkind = \"tls\""),
            "listener[0].check.kind: not all backends of this listener and of its routes are spo",
        ),
        (
            listener("[listener.check]\nkind = \"proxy\""),
            "listener[0].check.kind: not all backends of this listener and of its routes get a PR",
        ),
        (
            listener("[listener.check]\nkind = { send = \"a\" }"),
            "listener[0].check.kind.expect: is missing from [listener[0].check.kind]; add expect",
        ),
        (
            listener("[listener.check]\nkind = { expect = \"\" }"),
            "listener[0].check.kind.expect: nothing is in every answer; write what a good one has",
        ),
        (
            listener("[listener.check]\nrise = 0\nevery = \"10ms\""),
            "listener[0].check.every: \"10ms\" is out of range; choose \"100ms\" to \"1h\"",
        ),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{text}\n{mistakes}");
    }
}

/// Who divides what is counted in all stands elsewhere in the file, or runs already.
#[test]
fn too_few_for_the_lanes_is_told_where_it_stands_with_all_else() {
    let text = |lanes: usize| {
        format!(
            r#"lanes = {lanes}
limits = {{ connections = 3, handshakes_in_flight = 2 }}
[[listener]]
address = "127.0.0.1:443"
certificates = ["certs"]
connections = 3
backends = [
  "a:80",
  {{ address = "b:80", connections = 3 }},
]
[[listener.route]]
names = ["a.example"]
backends = [{{ address = "c:80", connections = 3 }}]
bakends = []
"#
        )
    };
    let few = |lanes: &str| {
        [
            format!("2:26: limits.connections: 3 in all is less than the {lanes}"),
            format!("2:52: limits.handshakes_in_flight: 2 in all is less than the {lanes}"),
            format!("6:15: listener[0].connections: 3 in all is less than the {lanes}"),
            format!("9:37: listener[0].backends[1].connections: 3 in all is less than the {lanes}"),
            format!(
                "13:47: listener[0].route[0].backends[0].connections: 3 in all is less than the \
                 {lanes}"
            ),
            "14:1: listener[0].route[0].bakends: is not a known key; did you mean \"backends\"? \
             see docs/configuration.md#listener.backends"
                .to_owned(),
        ]
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    let load = |lanes: usize, running: Option<usize>| {
        std::fs::write(&file, text(lanes)).unwrap();
        let told = match running.map(|running| NonZeroUsize::new(running).unwrap()) {
            Some(running) => Config::load_anew(&file, running),
            None => Config::load(&file),
        };
        let told = told.unwrap_err().to_string();
        told.replace(&format!("{}:", file.display()), "").lines().map(str::to_owned).collect()
    };
    let written = "4 lanes that share it; each needs one: raise it, or lower lanes";
    let told: Vec<String> = load(4, None);
    assert_eq!(told, few(written));
    assert_eq!(load(4, Some(2)), told, "the next start would refuse it");
    let running = "5 lanes that run; each needs one: raise it, or restart, which changes the lanes";
    assert_eq!(load(1, Some(5)), few(running));
    let enough: Vec<String> = load(2, Some(2));
    assert_eq!(enough.len(), 1, "{enough:?}");
}

/// Each of these contradicts itself or another part of the file.
#[test]
fn contradictions_of_the_admin_address() {
    let with = |lines: &str| format!("{lines}\n{LISTENER}");
    for (text, expected) in [
        (
            with("[admin]\naddress = \"unix:/a\"\nhosts = [\"a\"]"),
            "admin.hosts: nobody is asked for a host on a unix socket; remove it",
        ),
        (
            with("[admin]\naddress = \"127.0.0.1:1\"\nhosts = [\"*.a\"]"),
            "\"*.a\" is every name under another; write each name in full",
        ),
        (with("[admin]\naddress = \"10.0.0.1:9180\""), "reachable from the network"),
        (
            with("[admin]\naddress = \"unix:/a\"\nsocket = \"/b\""),
            "admin.socket: address is a unix socket already; keep one of the two",
        ),
        (
            with("[admin]\naddress = \"127.0.0.1:1\"\nsocket_mode = \"0660\""),
            "admin.socket_mode: means nothing without a unix socket; remove it",
        ),
        (with("[admin]\nsocket_mode = \"0660\""), "admin.address: is missing"),
        (with("[admin]\naddress = \"127.0.0.1:443\""), "already the address of [admin]"),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{text}\n{mistakes}");
    }
}

#[test]
fn what_is_on_demand_has_one_store_with_room_for_a_socket() {
    let listener = |lines: &str| format!("{LISTENER}{lines}\n");
    for (text, expected) in [
        (listener("on_demand = true"), "on_demand: means nothing without a certificate store"),
        (
            LISTENER.replace("certs", "store:one")
                + "on_demand = true\n"
                + &LISTENER.replace("certs", "store:two").replace("443", "444")
                + "on_demand = true",
            "listener[1].on_demand: line 5 has it with another store, and the names of all go to",
        ),
        (
            LISTENER.replace("certs", &format!("store:/{}", "x".repeat(96))) + "on_demand = true",
            "names.sock is where names are told, and has 108 bytes; choose a store whose socket",
        ),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{text}\n{mistakes}");
    }
}

#[test]
fn contradictions() {
    let with = |lines: &str| format!("{lines}\n{LISTENER}");
    let listener = |lines: &str| format!("{LISTENER}{lines}\n");
    for (text, expected) in [
        (
            listener("proxy_tlvs = [\"alpn\"]"),
            "listener[0].proxy_tlvs: there is no header that could tell it; use proxy_header",
        ),
        (
            with("[limits]\nconnections = 5\nconnections_per_lane = 6"),
            "6 on one lane is more than 5",
        ),
        (
            with("lanes = 8\n[limits]\nconnections = 7"),
            "limits.connections: 7 in all is less than the 8 lanes that share it; each needs one",
        ),
        (
            with("lanes = 8\n[limits]\nhandshakes_in_flight = 1"),
            "limits.handshakes_in_flight: 1 in all is less than the 8 lanes that share it; each",
        ),
        (
            with("[limits]\ndrain_delay = \"5s\"\nhealth_delay = \"6s\""),
            "limits.health_delay: 6s is longer than drain_delay, 5s: /healthz would praise",
        ),
        (with("[limits]\nconnection_age = \"never\""), "\"never\" is not a duration"),
        (with("[limits]\nlisteners = 1") + LISTENER, "limits.listeners allows 1: raise it"),
        (listener(LISTENER), "already the address of the listener in line 1"),
        (listener("addresses = [\"127.0.0.1:1\"]"), "both address and addresses"),
        (
            listener("default_certificate = \"a.example\"\nunknown_names = \"refuse\""),
            "never served where unknown names are refused",
        ),
        (
            LISTENER.replace("127.0.0.1:443", ":443") + &LISTENER.replace("127.0.0.1", "[::]"),
            "[::]:443 is already the address of the listener in line 1",
        ),
        (with("[tickets]\nroot = \"store:s\""), "store_key: is missing; add [store_key] with file"),
        (with("[tickets]\nlifetime = \"600500ms\""), "a fraction of a second; write whole seconds"),
        (listener("name = \"a b\""), "is not a name for a listener"),
        (
            listener("name = \"a\"") + &LISTENER.replace("443", "444") + "name = \"a\"",
            "line 5 has a listener of the name \"a\" already",
        ),
        (LISTENER.replace("[[listener]]", "[listener]"), "write [[listener]] in double brackets"),
        (LISTENER.replace("certs", "store:s"), "store_key: is missing; add [store_key] with file"),
        (
            "[[listener]]\naddress = \"127.0.0.1:80\"\nplain = \"redirect\"\n\
             acme_responder = \"store:s\"\n"
                .to_owned(),
            "store_key: is missing; add [store_key] with file",
        ),
        (
            with("store_key = { file = \"k\" }").replace("certs\"", "store:a\", \"store:b\""),
            "two stores are named; import into one store",
        ),
        (with("store_key = { file = \"k\", credential = \"c\" }"), "keep one of file, credential"),
        (with("store_key = {}"), "store_key.file: is missing"),
        (with("store_key = { credential = \"../c\" }"), "is not the name of a credential"),
        (with("store_key = { command = [] }"), "the list is empty"),
        (String::new(), "listener: is missing; add a [[listener]] with address"),
        ("[[listener]]".into(), "listener[0].address: is missing from [listener[0]]"),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{text}\n{mistakes}");
    }
}

#[test]
fn contradictions_about_tls() {
    let listener = |lines: &str| format!("{LISTENER}{lines}\n");
    for (text, expected) in [
        (listener("groups = [\"X25519MLKEM768\"]"), "TLS 1.2 has no group to use"),
        (
            listener("suites = [\"TLS_AES_128_GCM_SHA256\"]"),
            "suites: no suite of TLS 1.2 is among suites; add one, such as \"ECDHE-ECDSA",
        ),
        (
            listener(
                "versions = [\"1.3\"]\nsuites = [\"TLS_AES_128_GCM_SHA256\"]\n\
                 [[listener.route]]\nnames = [\"a.example\"]\nversions = [\"1.2\"]",
            ),
            "listener[0].route[0].versions: no suite of TLS 1.2 is among suites; add one",
        ),
        (
            listener("versions = [\"1.3\"]\nsuites = [\"ECDHE-RSA-AES128-GCM-SHA256\"]"),
            "suites[0]: TLS 1.2, for which this suite is, is not among versions; remove it",
        ),
        (
            listener("suites = [\"AES128-SHA\"]"),
            "\"AES128-SHA\" is no suite that Sealane has; choose among TLS_AES_128_GCM_SHA256, TLS",
        ),
        (listener("schemes = [\"rsa\"]"), "\"rsa\" is not a choice; choose \"ecdsa_secp256r1"),
        (listener("versions = [\"1.3\", \"1.3\"]"), "is written twice"),
        (listener("alpn = [\"\"]"), "a protocol name of 0 bytes"),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{text}\n{mistakes}");
    }
    let only_13 = listener("groups = [\"X25519MLKEM768\"]\nversions = [\"1.3\"]");
    assert!(parse(&only_13).is_ok());
}

#[test]
fn files_that_are_no_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let load = |name: &str, contents: Option<&[u8]>| {
        let file = dir.path().join(name);
        if let Some(contents) = contents {
            std::fs::write(&file, contents).unwrap();
        }
        Config::load(&file).unwrap_err().to_string()
    };
    assert!(load("absent", None).contains("absent: cannot be read: No such file"));
    assert!(load("latin1", Some(b"# \xe9")).contains("is not UTF-8 at byte 2"));
    assert!(
        load("large", Some(&vec![b'#'; SETTINGS_BYTES_MAX + 1])).contains("larger than 8388608")
    );
    assert!(load("nothing", Some(b"")).contains("nothing:1:1: listener: is missing"));
    assert!(load("", None).contains("cannot be read: it is a directory"));
}
