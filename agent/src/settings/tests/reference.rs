//! The reference, the example file and the JSON Schema: each is written from the declarations.

use std::path::PathBuf;

use sealane_operator::key::{
    Group, broken_links, incomplete_keys, page, table_in_example, tables, write_or_compare,
};

use super::file::KEYS;
use super::parse;

#[test]
fn page_is_written_from_the_keys() {
    is_current(KEYS.page, &format!("{PAGE_HEAD}\n{}", page(KEYS.top)));
}

#[test]
fn example_is_written_from_the_keys() {
    is_current("packaging/agent.toml", &example());
}

#[test]
fn keys_have_text_example_and_links() {
    assert_eq!(broken_links(KEYS.top), Vec::<String>::new());
    assert_eq!(incomplete_keys(KEYS.top), Vec::<String>::new());
}

/// The examples of tables are a configuration together.
#[test]
fn examples_of_tables_are_in_order() {
    let examples: Vec<_> = tables(KEYS.top).into_iter().map(|group| group.example).collect();
    let top = "store = \"store\"\nstore_key = { file = \"store.key\" }\n";
    let push = "[push]\naddress = \"127.0.0.1:1\"\ncertificate = \"a\"\nkey = \"b\"\n\
                client_roots = [\"c\"]\n";
    let text = top.to_owned()
        + &examples.concat().replace("[[push.role]]", &(push.to_owned() + "[[push.role]]"));
    let settings = parse(&text).unwrap();
    assert!(settings.on_demand.is_some() && settings.push.is_some(), "{text}");
}

fn is_current(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    assert_eq!(write_or_compare(&path, text), Ok(()));
}

fn example() -> String {
    let group = |path: &str| tables(KEYS.top).into_iter().find(|group| group.path == path).unwrap();
    let table = |path: &str| table_in_example(group(path), &format!("[{path}]"), &NEEDED);
    let list = |path: &str| table_in_example(group(path), &format!("[[{path}]]"), &NEEDED);
    let top = in_file(group(""));
    [
        EXAMPLE_HEAD.trim_start(),
        &top,
        "\n",
        &table("store_key"),
        "\n",
        &list("authority"),
        ACCOUNT,
        "\n",
        &list("certificate"),
        OTHER_CERTIFICATES,
        "\n",
        &commented(&(table("on_demand") + DEMAND_CHALLENGE)),
        "\n",
        &commented(&table("fleet")),
        "\n",
        &commented(&table("push")),
        "\n",
        &commented(&list("push.role")),
    ]
    .concat()
}

/// The keys above the first table.
fn in_file(top: &'static Group) -> String {
    let text = table_in_example(top, "", &NEEDED);
    text.split_once("\n\n").unwrap().1.to_owned()
}

fn commented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("# {line}\n"),
    });
    lines.collect()
}

/// Keys that the example sets although they have no default.
const NEEDED: [&str; 6] = [
    "authority.agree_to_terms",
    "authority.directory",
    "certificate.challenge",
    "certificate.names",
    "store",
    "store_key.file",
];

const ACCOUNT: &str = r#"
# A CA where you have an account already.
# [[authority]]
# directory = "https://acme.example.net/directory"
# agree_to_terms = true
# external_account = { kid = "kid-1", key_file = "/etc/sealane/eab.key" }
"#;

const OTHER_CERTIFICATES: &str = r#"
# Many certificates, one on each line of a file.
# [[certificate]]
# names_from = "/etc/sealane/names"
# challenge = "tls-alpn-01"

# A wildcard.
# [[certificate]]
# names = ["example.org", "*.example.org"]
# challenge = "dns-01"
# dns_command = ["/etc/sealane/dns-hook"]
"#;

const DEMAND_CHALLENGE: &str = r#"# As in [[certificate]]. Required.
challenge = "tls-alpn-01"
#   dns_command = ["/etc/sealane/dns-hook"]
"#;

const EXAMPLE_HEAD: &str = r#"
# Configuration of Sealane's agent, which obtains certificates by ACME and keeps them in the
# certificate store of `sealane serve`: every key, with its default where it has one.
# docs/agent-configuration.md has the same keys as a reference. Both are written from the
# declarations in agent/src/settings.
#
# `sealane agent check` reports every mistake. `systemctl reload sealane-agent` reloads.
# Durations are "500ms", "10s", "2m", "12h" or "7d". A relative path starts in the folder of this
# file.

"#;

const PAGE_HEAD: &str = r#"# Configuration of the agent

This page has every key of the agent's configuration, `/etc/sealane/agent.toml`, with type, bounds
and default. It also lists the keys that need a restart.
[packaging/agent.toml](../packaging/agent.toml) has the same keys as one file with comments.
[certificates.md](certificates.md) explains how to set up the agent, and
[configuration.md](configuration.md) has the keys of `sealane.toml`. `sealane agent check` reports
every mistake in a file.

The file is [TOML](https://toml.io). Durations are "500ms", "10s", "2m", "12h" or "7d". A relative
path starts in the folder of the file.

An editor with a TOML language server that knows JSON Schema, such as Taplo, takes the schema from
a first line `#:schema ./agent.schema.json`:

```sh
sealane agent config schema > agent.schema.json
```

This page is written from the declarations in `agent/src/settings`.
"#;
