//! Cases that are in no file of the table in `tests/convert`: broken texts, too long ones, and
//! properties of all dialects for any text.

mod access;
mod haproxy;
mod nginx;
mod stunnel;

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const DIALECTS: [Dialect; 4] =
    [Dialect::Haproxy, Dialect::Hitch, Dialect::NginxStream, Dialect::Stunnel];

fn toml(dialect: Dialect, text: &str) -> String {
    convert_text(dialect, Path::new("f"), text).unwrap().toml
}

/// Numbers of the lines of the file of which something was not carried over.
fn lost(toml: &str) -> Vec<usize> {
    let numbers = toml.lines().filter_map(|line| {
        let place = line.strip_prefix("# NOT CARRIED OVER: f:")?;
        place.split(':').next()?.parse().ok()
    });
    numbers.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// The lines of a result that are no comments, without those of `also`.
fn keys(toml: &str, also: &[&str]) -> String {
    let is_key = |line: &&str| {
        !line.starts_with(['#', '[']) && !also.iter().any(|prefix| line.starts_with(prefix))
    };
    toml.lines().filter(|line| !line.is_empty()).filter(is_key).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_is_broken_is_refused_with_its_line() {
    for (dialect, text, expected) in [
        (Dialect::Haproxy, "\n  bind :443\n", "f:2: no section begins with it"),
        (Dialect::Haproxy, "defaults\n mode 'tcp\n", "f:2: the text in quotes has no end"),
        (Dialect::Hitch, "frontend = {\n host = \"*\"\n", "f:2: the block has no end"),
        (Dialect::Hitch, "workers 4\n", "f:1: a setting has = behind its name"),
        (Dialect::Hitch, "\n}\n", "f:2: a setting begins with its name"),
        (Dialect::NginxStream, "stream {\n server {\n", "the file ends within a directive"),
        (Dialect::NginxStream, "stream {}\n}\n", "f:2: \"}\" closes nothing"),
        (Dialect::NginxStream, "user \"www\n;", "the text in quotes has no end"),
        (Dialect::Stunnel, "[a]\nwhat?\n", "f:2: neither OPTION = VALUE nor [SERVICE]"),
    ] {
        let mistake = convert_text(dialect, Path::new("f"), text).unwrap_err().to_string();
        assert!(mistake.contains(expected), "{mistake}");
    }
    let deep = "a {".repeat(100);
    let mistake = convert_text(Dialect::NginxStream, Path::new("f"), &deep).unwrap_err();
    assert!(mistake.to_string().contains("blocks within more blocks"), "{mistake}");
}

/// Nothing is put where Sealane does not take it.
#[test]
fn values_that_sealane_does_not_take_are_comments() {
    let text = "frontend = \"[example.com]:443\"\nbackend = \"[a b]:80\"\npem-file = \"a.pem\"\n\
                ssl-handshake-timeout = 600\nkeepalive = never\nworkers = 0\n";
    let toml = toml(Dialect::Hitch, text);
    for comment in [
        "# NOT CARRIED OVER: f:1: frontend",
        "# NOT CARRIED OVER: f:2: backend",
        "#   Sealane takes 100ms to 5m; 5m it is",
        "# NOT CARRIED OVER: f:5: keepalive = never",
        "# NOT CARRIED OVER: f:6: workers = 0",
    ] {
        assert!(toml.contains(comment), "{comment} in\n{toml}");
    }
    assert!(toml.contains("handshake_timeout = \"5m\"") && !toml.contains("example.com\""));
}

/// The errors that `sealane check` would report about the result are in the remarks.
#[test]
fn a_result_that_is_not_in_order_says_so() {
    let twice =
        "[a]\naccept = 443\nconnect = 80\ncert = a\n[b]\naccept = 443\nconnect = 81\ncert = a";
    let converted = convert_text(Dialect::Stunnel, Path::new("f"), twice).unwrap();
    assert_eq!(converted.left_out, 1, "{}", converted.toml);
    assert!(converted.toml.contains("# NOT CARRIED OVER: listener[1].address: "));
}

#[test]
fn a_missing_file_is_named() {
    let mistake = convert(Dialect::Hitch, Path::new("no-such-file")).unwrap_err().to_string();
    assert!(mistake.starts_with("no-such-file: cannot be read: "), "{mistake}");
}

/// The default of nginx for idle connections is written with a note.
#[test]
fn notes_about_defaults_are_counted() {
    let text = "stream { server { listen 443 ssl; ssl_certificate a; ssl_protocols TLSv1.3; \
                proxy_pass b:1; } }";
    let converted = convert_text(Dialect::NginxStream, Path::new("f"), text).unwrap();
    assert_eq!((converted.left_out, converted.noted), (0, 1), "{}", converted.toml);
}

/// A pipe has no end while a process may write into it.
#[test]
fn pipes_are_refused() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    for dialect in DIALECTS {
        let refused = convert(dialect, &pipe).unwrap_err().to_string();
        assert!(refused.contains("it is a named pipe, not a file"), "{refused}");
    }
    let at = pipe.display();
    let file = folder.path().join("f");
    for (dialect, text) in [
        (Dialect::NginxStream, format!("include {at};")),
        (Dialect::Haproxy, format!("listen l\nmode tcp\nbind :443 ssl crt-list {at}\n")),
        (Dialect::Haproxy, format!("listen l\nmode tcp\nbind :443 ssl crt {at}\n")),
        (Dialect::Hitch, format!("pem-dir = \"{at}\"\npem-file = \"{at}\"\nfrontend = \"*:1\"\n")),
        (Dialect::Stunnel, format!("include = {at}\n[a]\naccept = 1\nconnect = 2\ncert = {at}\n")),
    ] {
        std::fs::write(&file, text).unwrap();
        let _ = convert(dialect, &file);
    }
}

/// A frontend of hitch overrides the setting for all of them.
#[test]
fn a_frontend_may_serve_unknown_names() {
    let text = "sni-nomatch-abort = on\nbackend = \"[b]:1\"\npem-file = \"a\"\n\
                frontend = {\n host = \"*\"\n port = \"443\"\n sni-nomatch-abort = off\n}\n";
    let toml = toml(Dialect::Hitch, text);
    assert!(!toml.contains("unknown_names") && lost(&toml).is_empty(), "{toml}");
}

/// A line of the file cannot end the comment that shows it.
#[test]
fn comments_stay_comments() {
    let text = "evil = \"\n[admin]\naddress = '0.0.0.0:1'\r\u{85}\u{2028}\u{202e}\"";
    let toml = toml(Dialect::Hitch, text);
    assert!(!toml.lines().any(|line| line.starts_with("[admin]")), "{toml}");
    assert!(!toml.contains(['\r', '\u{85}', '\u{2028}', '\u{202e}']), "{toml}");
}

/// Any file may be named by mistake, or by a user that may not read it: a line is quoted only if
/// its first word is one of the dialect.
#[test]
fn lines_of_other_files_are_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("included")).unwrap();
    let inner = path("included/file");
    let (list, around) = (inner.display(), path("included").display().to_string());
    let including = [
        (Dialect::Haproxy, format!("listen l\nmode tcp\nbind :1 ssl crt-list {list}\n")),
        (
            Dialect::NginxStream,
            format!("stream {{ server {{ listen 1 ssl; include {list}; }} }}\n"),
        ),
        (Dialect::Stunnel, format!("[s]\naccept = 1\ninclude = {around}\n")),
    ];
    for secret in [
        "-----BEGIN PRIVATE KEY-----\nSECRET/+\nSECRET==\n-----END PRIVATE KEY-----\n",
        "SECRET/+\nSECRET==\n",
        "root:$6$SECRET$a.b/:19000:0:99999:7:::\n",
        "password=SECRET\nSECRET = 1\n",
        "[database]\npassword = \"SECRET\"\n",
        "<?php define('PASSWORD', 'SECRET'); $a = 'SECRET';\n",
        "machine a login b password SECRET;\nSECRET { a; }\n",
        "{ \"password\": \"SECRET\" }\n",
    ] {
        std::fs::write(&inner, secret).unwrap();
        let told = |dialect: Dialect, file: &Path| match convert(dialect, file) {
            Ok(converted) => converted.toml,
            Err(mistakes) => mistakes.to_string(),
        };
        for dialect in DIALECTS {
            let told = told(dialect, &inner);
            assert!(!told.contains("SECRET"), "{dialect:?} {secret}\n{told}");
        }
        for (dialect, text) in &including {
            std::fs::write(path("file"), text).unwrap();
            let told = told(*dialect, &path("file"));
            assert!(told.contains(&*inner.display().to_string()), "{told}");
            assert!(!told.contains("SECRET"), "{dialect:?} {secret}\n{told}");
        }
    }
}

/// `line` again and again, each time with another number in the place of N.
fn many(line: &str, count: usize) -> String {
    (0..count).map(|number| line.replace('N', &number.to_string())).collect()
}

fn hostile_haproxy(half: usize) -> Vec<(Dialect, String)> {
    let tls = "bind :443 ssl crt a\n";
    let front = format!("frontend f\nmode tcp\n{tls}");
    vec![
        (Dialect::Haproxy, front.clone() + &many("unknown N\n", 12 * half)),
        (Dialect::Haproxy, front.clone() + "unknown" + &many(" N", 30 * half)),
        (
            Dialect::Haproxy,
            format!("frontend f\nmode tcp\n{} {}", tls.trim(), many("N ", 30 * half)),
        ),
        (Dialect::Haproxy, front.clone() + &many("timeout client-fin Ns\n", 8 * half)),
        (
            Dialect::Haproxy,
            front.clone()
                + &many("use_backend b if { ssl_fc_sni N.a }\n", half)
                + "backend b\n"
                + &many("server sN h:1\n", half),
        ),
        (
            Dialect::Haproxy,
            front.clone()
                + &many("acl a ssl_fc_sni N.a\n", half)
                + &many("use_backend b if a\n", half)
                + "backend b\nserver s h:1\n",
        ),
        (
            Dialect::Haproxy,
            front
                + &many("bind :443 ssl crt N\n", half)
                + &many("use_backend b if { ssl_fc_sni N.a }\n", half)
                + "backend b\nserver s h:1\n",
        ),
        (Dialect::Haproxy, many("defaults dN\ndefaults dN from dN\n", half)),
        (
            Dialect::Haproxy,
            "defaults\n".to_owned() + &many("a N\n", half) + &many("listen N\n", half),
        ),
    ]
}

fn hostile_others(half: usize) -> Vec<(Dialect, String)> {
    vec![
        (Dialect::Hitch, many("x = N\n", half) + &many("frontend = \"[*]:N\"\n", half)),
        (Dialect::Hitch, many("pem-file = \"N\"\n", half) + &many("frontend = \"[*]:N\"\n", half)),
        (
            Dialect::NginxStream,
            format!("stream {{ {} {} }}", many("a N;", half), many("server { listen N; }", half)),
        ),
        (
            Dialect::NginxStream,
            format!(
                "stream {{ map $ssl_server_name $m {{ {} }} {} }}",
                many("N.a b:1;", half),
                many("server { listen N ssl; proxy_pass $m; }", half)
            ),
        ),
        (
            Dialect::NginxStream,
            format!(
                "stream {{ {} u {{ {} }} {} }}",
                concat!("up", "stream"),
                many("server h:N;", half),
                many("server { listen N ssl; proxy_pass u; }", half)
            ),
        ),
        (Dialect::NginxStream, format!("{};", many("N ", 30 * half))),
        (Dialect::Stunnel, many("a = N\n", half) + &many("[N]\naccept = N\n", half)),
        (Dialect::Stunnel, many("[N]\naccept = N\nsni = N:N.a\n", half)),
    ]
}

/// Hostile texts of up to a megabyte: each part refers to all others, or repeats the common
/// settings. A text that is read again for each of its lines would take minutes.
#[test]
fn large_hostile_files_end() {
    for (dialect, text) in [hostile_haproxy(2_000), hostile_others(2_000)].concat() {
        // Converted, or refused as too much: either is an end.
        if let Err(mistakes) = convert_text(dialect, Path::new("f"), &text) {
            let text = mistakes.to_string();
            assert!(text.contains("more than 2000000 steps; convert it in parts"), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Words of the dialects in any order: read or rejected, and the result is TOML.
    #[test]
    fn whatever_is_read_is_written_as_toml(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..40),
    ) {
        for dialect in DIALECTS {
            let mut text = String::new();
            for word in &words {
                let _ = write!(text, "{word} ");
            }
            if let Ok(converted) = convert_text(dialect, Path::new("f"), &text) {
                prop_assert!(toml::from_str::<toml::Table>(&converted.toml).is_ok());
                let says_so = converted.toml.contains("NOT CARRIED OVER\"");
                prop_assert_eq!(says_so, converted.left_out > 0);
            }
        }
    }
}

const WORDS: &[&str] = &[
    "\n",
    "\n",
    "\n",
    "{",
    "}",
    ";",
    ";",
    "=",
    "\"",
    "'",
    "\\",
    "#",
    "[a]",
    "frontend",
    "backend",
    "listen",
    "defaults",
    "global",
    "bind",
    ":443",
    "ssl",
    "crt",
    "a.pem",
    "server",
    "s",
    "127.0.0.1:80",
    "stream",
    "map",
    "$ssl_server_name",
    "$v",
    "proxy_pass",
    "default",
    "accept",
    "443",
    "connect",
    "80",
    "cert",
    "pem-file",
    "use_backend",
    "if",
    "ssl_fc_sni",
    "a.example",
    "*.example",
    "timeout",
    "client",
    "1s",
    "99999999999999999999",
    "ssl_ciphers",
    "HIGH:!aNULL",
    "alpn",
    "h2,http/1.1",
    "\u{7f}",
    "\u{2028}",
    "é",
    "deny",
    "all",
    "include",
];
