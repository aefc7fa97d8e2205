//! The reference, the example file and the JSON Schema: each is written from the declarations.

use std::collections::HashSet;
use std::path::PathBuf;

use sealane_operator::key::{
    Group, Key, broken_links, in_example, incomplete_keys, page, table_in_example, tables, wrapped,
    write_or_compare,
};

use super::*;
use crate::file::TOP;
use crate::listener::GROUP as LISTENER_GROUP;
use crate::spoken::{ACME_RESPONDER, ALLOW_REMOTE, PLAIN, STARTTLS};

#[test]
fn page_is_written_from_the_keys() {
    is_current("docs/configuration.md", &format!("{PAGE_HEAD}\n{}", page(&TOP)));
}

#[test]
fn example_is_written_from_the_keys() {
    is_current("packaging/sealane.toml", &example());
}

#[test]
fn keys_have_text_example_and_links() {
    assert_eq!(broken_links(&TOP), Vec::<String>::new());
    assert_eq!(incomplete_keys(&TOP), Vec::<String>::new());
}

/// The examples of whole tables are configurations.
#[test]
fn examples_of_tables_are_in_order() {
    let examples = tables(&TOP).into_iter().map(|group| group.example);
    for example in examples.filter(|example| !example.is_empty()) {
        assert!(parse(example).is_ok(), "{example}");
    }
    assert!(page(&TOP).contains("\n[[listener.route]]\nnames = "));
}

/// A draft that editors know, with each key and nothing else.
#[test]
fn schema_has_every_key() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let listener = &schema["properties"]["listener"]["items"];
    for (group, schema) in [(&TOP, &schema), (&LISTENER_GROUP, listener)] {
        let properties = schema["properties"].as_object().unwrap();
        let names: HashSet<&str> = group.all().map(|key| key.name).collect();
        assert_eq!(properties.keys().map(String::as_str).collect::<HashSet<_>>(), names);
        assert_eq!(schema["additionalProperties"], false);
    }
    assert_eq!(listener["properties"]["idle_timeout"]["type"], "string");
    assert_eq!(schema["properties"]["lanes"]["maximum"], LANES_MAX);
    // Defaults of each kind; the one of lanes is in words.
    assert_eq!(listener["properties"]["idle_timeout"]["default"], "5m");
    assert_eq!(listener["properties"]["versions"]["default"][0], "1.2");
    assert_eq!(schema["properties"]["watch"]["default"], true);
    assert!(schema["properties"]["lanes"].get("default").is_none());
}

fn is_current(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    assert_eq!(write_or_compare(&path, text), Ok(()));
}

fn example() -> String {
    let mut text = EXAMPLE_HEAD.trim_start().to_owned();
    let mut is_first = true;
    for group in tables(&TOP) {
        match group.path {
            "listener" => break,
            "" => {}
            path => text += &format!("\n{}[{path}]\n", wrapped(group.doc, "# ", "# ")),
        }
        for key in group.keys.iter().filter(|key| !key.doc.is_empty()) {
            let is_needed = NEEDED.contains(&&*group.anchor(key.name));
            let of_key = in_example(key, is_needed);
            text += if is_first || !group.path.is_empty() { "" } else { "\n" };
            text += &of_key;
            is_first = false;
        }
    }
    text + &listeners()
}

fn listeners() -> String {
    let group = |path: &str| tables(&TOP).into_iter().find(|group| group.path == path).unwrap();
    let route = |name: &str| {
        let key = group("listener.route").keys.iter().find(|key| key.name == name);
        in_example(key.unwrap(), true)
    };
    let shared = |group: &Group| wrapped(group.shared.as_ref().unwrap().doc, "# ", "# ");
    let whole =
        |path: &str| format!("\n{}", table_in_example(group(path), &format!("[{path}]"), &[]));
    let elsewhere: [&Key; 5] =
        [&PLAIN, &ACME_RESPONDER, &ALLOW_REMOTE, &STARTTLS, &addresses::ADDRESS];
    let is_here = |key: &&&Key| {
        !key.doc.is_empty() && !elsewhere.iter().any(|other| std::ptr::addr_eq(*other, **key))
    };
    let of_first = LISTENER_GROUP.keys.iter().filter(is_here);
    let of_first = of_first
        .map(|key| in_example(key, NEEDED.contains(&&*LISTENER_GROUP.anchor(key.name))))
        .collect::<String>();
    let timeouts = LISTENER_GROUP.shared.as_ref().unwrap().keys.iter().map(|key| {
        let default = key.kind.default_text().unwrap();
        format!("# {} = {default}\n", key.name)
    });
    [
        format!("\n{}[[listener]]\n{of_first}", wrapped(LISTENER_GROUP.doc, "# ", "# ")),
        shared(&LISTENER_GROUP),
        timeouts.collect(),
        format!("\n{}[[listener.route]]\n", wrapped(group("listener.route").doc, "# ", "# ")),
        route("names"),
        shared(group("listener.route")),
        "versions = [\"1.3\"]\nbackends = [\"127.0.0.1:8081\"]\n# proxy_header = false\n".into(),
        "\n[[listener.route]]\nnames = [\"api.example.com\"]\n".into(),
        route("alpn"),
        "backends = [\"127.0.0.1:8082\"]\n".into(),
        "\n[[listener.route]]\nnames = [\"mail.example.com\"]\n".into(),
        route("passthrough"),
        "backends = [\"127.0.0.1:8443\"]\n".into(),
        whole("listener.check"),
        whole("listener.clients"),
        "\n# Plain HTTP.\n[[listener]]\naddress = \"0.0.0.0:80\"\n".into(),
        in_example(&PLAIN, true),
        in_example(&ACME_RESPONDER, false),
        "\n# Client mode: programs on this machine speak plain Redis, the server speaks TLS.\n"
            .into(),
        "[[listener]]\naddress = \"127.0.0.1:6379\"\nplain = \"relay\"\n".into(),
        in_example(&ALLOW_REMOTE, true),
        "backends = [\"tls://redis.example.com:6380\"]\n".into(),
        "\n# PostgreSQL.\n[[listener]]\naddress = \"0.0.0.0:5432\"\n".into(),
        "certificates = [\"/etc/sealane/certificates\"]\n".into(),
        in_example(&STARTTLS, true),
        "# Clients with sslnegotiation=direct need this.\nalpn = [\"postgresql\"]\n".into(),
        "backends = [\"127.0.0.1:5433\"]\n".into(),
        "\n# TLS to the backends too.\n[[listener]]\nname = \"sealed\"\n".into(),
        "address = \"0.0.0.0:8443\"\ncertificates = [\"/etc/sealane/certificates\"]\n".into(),
        "backends = [\"tls://app.example.com:8443\", \"tls://192.0.2.7:8443\"]\n".into(),
        whole("listener.backend_tls"),
    ]
    .concat()
}

/// Keys that the example sets although they have no default.
const NEEDED: [&str; 12] = [
    "access_log.path",
    "admin.address",
    "admin.socket",
    "listener.addresses",
    "listener.alpn",
    "listener.backends",
    "listener.certificates",
    "listener.default_certificate",
    "listener.name",
    "listener.schemes",
    "listener.suites",
    "store_key.file",
];

const EXAMPLE_HEAD: &str = r#"
# Sealane's configuration: every key, with its default where it has one. docs/configuration.md has
# the same keys as a reference. Both are written from the declarations in sealane/config/src.
#
# `sealane check --config FILE` reports every mistake and estimates the resource use.
# Durations are "500ms", "10s", "2m", "12h" or "7d"; sizes "16KiB" or "1MiB". A relative path
# starts in the folder of this file. SIGHUP, or a change of this file or of a certificate, reloads.

"#;

const PAGE_HEAD: &str = r#"# Configuration reference

This page has every key of a configuration file of Sealane: its type, its bounds, its default, and
whether a change takes effect at a reload or at the next start. The keys of the agent are in
[agent-configuration.md](agent-configuration.md).
[packaging/sealane.toml](../packaging/sealane.toml) has the same keys as one file with comments,
which packages install in /usr/share/doc/sealane/examples. `sealane config schema` prints a JSON
Schema, with which editors complete and check keys. `sealane check --config FILE` reports every
mistake in a file.

The file is [TOML](https://toml.io). Durations are "500ms", "10s", "2m", "12h" or "7d". Sizes are
"512B", "16KiB", "1MiB" or "1GiB". A relative path starts in the folder of the file.

An editor with a TOML language server that knows JSON Schema, such as Taplo, takes the schema from
a first line `#:schema ./sealane.schema.json`:

```sh
sealane config schema > sealane.schema.json
```

This page is written from the declarations in `sealane/config/src`.
"#;
