//! A check that the header matches Rust's exports: names and types of functions, and the layout of
//! shared structs.

use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use crate::exports::Counts;
use crate::failure::{ERROR_TEXT_BYTES, Error, Status};
use crate::options::{self, Options};
use crate::session;

#[test]
fn functions_of_the_header_are_those_that_are_exported() {
    let exported: Vec<String> = EXPORTS
        .split("extern \"C\" fn ")
        .skip(1)
        .map(|rest| prototype(rest.split(" {\n").next().unwrap()))
        .collect();
    let declared: Vec<String> = words(&without_comments(HEADER))
        .split(['{', '}', ';'])
        .map(|statement| statement.rsplit("\"C\"").next().unwrap().trim().to_owned())
        .filter(|statement| statement.contains('(') && !statement.contains('#'))
        .collect();
    assert_eq!(exported.len(), FUNCTIONS);
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    assert_eq!(sorted(declared), sorted(exported));
}

#[test]
fn numbers_and_layouts_of_the_header_are_those_of_rust() {
    let mut program = String::from("#include <sealane_client.h>\n");
    let mut same = |header: &str, rust: usize| {
        writeln!(program, "_Static_assert(({header}) == {rust}, \"{header}\");").unwrap();
    };
    for (name, status) in [
        ("OK", Status::Ok),
        ("CLOSED", Status::Closed),
        ("FULL", Status::Full),
        ("INTERNAL", Status::Internal),
        ("INVALID_ARGUMENT", Status::InvalidArgument),
        ("NOT_ESTABLISHED", Status::NotEstablished),
        ("OPTIONS", Status::Options),
        ("REFUSED", Status::Refused),
        ("TRUNCATED", Status::Truncated),
    ] {
        same(&format!("SEALANE_{name}"), status as usize);
    }
    for (name, number) in [
        ("CIPHERTEXT_WAITS", session::CIPHERTEXT_WAITS),
        ("ESTABLISHED", session::ESTABLISHED),
        ("FAILED", session::FAILED),
        ("LOCAL_CLOSED", session::CLOSED),
        ("PEER_CLOSED", session::PEER_CLOSED),
        ("PLAINTEXT_WAITS", session::PLAINTEXT_WAITS),
        ("TLS12", options::TLS12),
        ("TLS12_AND_TLS13", options::TLS12_AND_TLS13),
        ("TLS13", options::TLS13),
    ] {
        same(&format!("SEALANE_{name}"), number as usize);
    }
    same("SEALANE_ERROR_TEXT_BYTES", ERROR_TEXT_BYTES);
    same("sizeof(sealane_status)", size_of::<Status>());
    macro_rules! layout {
        ($rust:ident, $c:literal, $($field:ident)*) => {
            same(concat!("sizeof(", $c, ")"), size_of::<$rust>());
            $(same(
                concat!("offsetof(", $c, ", ", stringify!($field), ")"),
                offset_of!($rust, $field),
            );)*
        };
    }
    layout!(Counts, "sealane_counts", built freed roots_parsed);
    layout!(Error, "sealane_error", status text);
    layout!(Options, "sealane_options", size roots_pem roots_pem_len certificate_pem
        certificate_pem_len key_pem key_pem_len alpn alpn_len versions roots_system
        without_resumption);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    std::fs::write(&source, program).unwrap();
    for language in ["-xc", "-xc++"] {
        let mut compile = Command::new("cc");
        compile.args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-D_Static_assert=static_assert",
        ]);
        compile.args(["-include", "assert.h", "-I", INCLUDE, language]).arg(&source);
        assert!(compile.status().expect("cc; install gcc and g++").success(), "{language}");
    }
}

/// The header's form of a Rust function's `name(arguments) -> type`.
fn prototype(rust: &str) -> String {
    let (signature, result) = rust.split_once(" -> ").unwrap_or((rust, "()"));
    let (name, arguments) = signature.split_once('(').unwrap();
    let arguments: Vec<String> = arguments
        .trim_end()
        .trim_end_matches(')')
        .split(',')
        .filter_map(|argument| argument.trim().split_once(": "))
        .map(|(name, of_rust)| declaration(of_rust, name))
        .collect();
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    format!("{}({arguments})", declaration(result.trim(), name))
}

fn declaration(of_rust: &str, name: &str) -> String {
    let (start, inner, star) = if let Some(inner) = of_rust.strip_prefix("*const ") {
        ("const ", inner, "*")
    } else if let Some(inner) = of_rust.strip_prefix("*mut ") {
        ("", inner, "*")
    } else {
        ("", of_rust, "")
    };
    let in_c = match inner {
        "()" => "void",
        "c_char" => "char",
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "usize" => "size_t",
        "Client" => "sealane_client",
        "Contexts" => "sealane_contexts",
        "Counts" => "sealane_counts",
        "Error" => "sealane_error",
        "Options" => "sealane_options",
        "Session" => "sealane_session",
        "Status" => "sealane_status",
        other => panic!("the header has no word for {other}"),
    };
    format!("{start}{in_c} {star}{name}")
}

fn without_comments(text: &str) -> String {
    let code = text.split("/*").enumerate().map(|(index, part)| match index {
        0 => part,
        _ => part.split_once("*/").unwrap().1,
    });
    code.collect::<String>()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n")
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const EXPORTS: &str = include_str!("exports.rs");
const HEADER: &str = include_str!("../include/sealane_client.h");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
/// The count of functions, so that the test fails if it does not find them.
const FUNCTIONS: usize = 16;
