//! The command line is what its help says.

use sealane_config::{Admin, Tlvs};

use super::*;
use crate::commands::man;

fn serve(arguments: &[&str]) -> Result<ServeArguments, clap::Error> {
    let all = ["sealane", "serve"].iter().chain(arguments);
    Arguments::try_parse_from(all).map(|arguments| match arguments.command {
        Command::Serve(serve) => serve,
        other => panic!("{other:?}"),
    })
}

const SIMPLE: [&str; 6] =
    ["--listen", "127.0.0.1:443", "--backend", "localhost:80", "--certificates", "certs"];

#[test]
fn the_definition_is_consistent() {
    Arguments::full_command().debug_assert();
}

#[test]
fn flags_alone_make_a_configuration() {
    let mut arguments = SIMPLE.to_vec();
    arguments.extend(["--listen", "[::1]:443", "--backend", "unix:/a.sock", "--certificates", "b"]);
    arguments.extend(["--lanes", "3", "--admin", "unix:/admin.sock", "--listen", "*:444"]);
    arguments.extend(["--alpn", "h2,http/1.1", "--proxy-header"]);
    let config = serve(&arguments).unwrap().into_config().unwrap();
    let listener = &config.listeners[0];
    assert_eq!(listener.addresses.len(), 4);
    assert_eq!(listener.policy.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    let told = ProxyHeader::V2(Tlvs::default());
    assert_eq!(listener.destination.proxy_header, told);
    assert_eq!(listener.destination.backends.len(), 2);
    assert_eq!(listener.certificates.len(), 2);
    assert_eq!(config.lanes.get(), 3);
    assert_eq!(config.admin, Admin::from(Address::Unix("/admin.sock".into())));
}

#[test]
fn the_version_of_the_header_may_be_said() {
    for (said, header) in [
        (&["--proxy-header", "v1"][..], ProxyHeader::V1),
        (&["--proxy-header", "v2"], ProxyHeader::V2(Tlvs::default())),
        (&["--proxy-header=v1"], ProxyHeader::V1),
        (&[], ProxyHeader::Off),
    ] {
        let config = serve(&[said, &SIMPLE].concat()).unwrap().into_config().unwrap();
        assert_eq!(config.listeners[0].destination.proxy_header, header, "{said:?}");
    }
}

/// What the parser of the command line refuses, and the words it says.
#[test]
fn flags_that_are_refused() {
    for (arguments, expected) in [
        (vec![], "--listen <ADDR:PORT|unix:PATH>"),
        (SIMPLE[..4].to_vec(), "--certificates <PATH>"),
        ([&["--config", "f"], &SIMPLE[..]].concat(), "cannot be used with"),
        (vec!["--config", "f", "--lanes", "2"], "cannot be used with"),
        (vec!["--config", "f", "--alpn", "h2"], "cannot be used with"),
        (vec!["--config", "f", "--proxy-header"], "cannot be used with"),
        ([&SIMPLE[..], &["--alpn", "h2,"]].concat(), "a protocol name of 0 bytes"),
        ([&SIMPLE[..], &["--proxy-header", "v3"]].concat(), "neither v1 nor v2"),
        ([&SIMPLE[..], &["--lanes", "0"]].concat(), "\"0\" is not a number of lanes; 1 to 1024"),
        ([&SIMPLE[..], &["--lanes", "1025"]].concat(), "is not a number of lanes"),
        ([&SIMPLE[..], &["--listen", "443"]].concat(), "write ADDRESS:PORT"),
        ([&SIMPLE[..], &["--backend", "http://a"]].concat(), "is a URL"),
        ([&SIMPLE[..], &["--admin", "9180"]].concat(), "neither an address and port"),
    ] {
        let error = serve(&arguments).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
    }
}

/// What the package brings, and its unit serves.
#[test]
fn check_reads_the_configuration_of_the_service_if_none_is_named() {
    let Command::Check(check) = Arguments::try_parse_from(["sealane", "check"]).unwrap().command
    else {
        panic!("another command");
    };
    let unit = include_str!("../../../../packaging/sealane.service");
    let started = format!("ExecStart=/usr/bin/sealane serve --config {}", check.config.display());
    assert!(unit.lines().any(|line| line == started), "{started} in\n{unit}");
}

/// Every flag of every command, its defaults and its codes are in the help, the man page, and the
/// completions.
#[test]
fn nothing_is_left_out_of_the_help() {
    let mut top = Arguments::full_command();
    top.build();
    let mut scripts = Vec::new();
    for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
        let mut script = Vec::new();
        man::write_completions(shell, &mut script);
        scripts.push(String::from_utf8(script).unwrap());
    }
    for name in [
        "backends-drain",
        "backends-list",
        "backends-restore",
        "certificates-import",
        "certificates-list",
        "certificates-remove",
        "certificates-reseal",
        "certificates-show",
        "certificates-verify",
        "check",
        "completions",
        "config-schema",
        "connections-close",
        "connections-list",
        "convert",
        "demo",
        "man",
        "reload",
        "serve",
        "status",
    ] {
        let mut page = Vec::new();
        man::write_page(Some(name), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        assert!(!page.contains(".SH EXTRA"), "{page}");
        let parts = name.split('-');
        let command = parts.fold(&mut top, |at, part| at.find_subcommand_mut(part).unwrap());
        let help = command.render_long_help().to_string();
        for flag in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(help.contains(&format!("--{flag}")), "{name} --{flag} in\n{help}");
            assert!(page.contains(&format!("--{flag}")), "{name} --{flag} in\n{page}");
            for script in &scripts {
                assert!(script.contains(flag), "{name} --{flag} in\n{script}");
            }
        }
    }
    let help = top.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    for exit in Exit::OF_SERVE {
        assert!(help.contains(&format!("  {}  {}", exit.code(), exit.meaning())), "{help}");
    }
    for text in ["SIGHUP", "SIGTERM", "100000 in all", "handshake 10s", "every 12h", "Reload"] {
        assert!(help.contains(text), "{text} in\n{help}");
    }
}

#[test]
fn man_pages() {
    let mut page = Vec::new();
    man::write_page(None, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains(".TH sealane 1") && page.contains("sealane\\-serve(1)"), "{page}");
    let mut page = Vec::new();
    man::write_page(Some("check"), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    for section in [
        ".SH \"SYNOPSIS\"\n.nf\nsealane check [OPTIONS]\n.fi\n",
        ".SH \"EXIT STATUS\"\n.nf\n  0  valid",
        ".SH \"EXAMPLES\"\n.nf\n  runuser \\-u sealane \\-\\- sealane check",
    ] {
        assert!(page.contains(section), "{section} in\n{page}");
    }
    let error = man::write_page(Some("sevre"), &mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no command \"sevre\"; there are agent, backends, certificates, check, completions, \
         config, connections, convert, demo, fleet, man, reload, status, serve"
    );
}
