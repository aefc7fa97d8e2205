//! The tables `[[authority]]`: certificate authorities.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::key::{
    Bool, Choice, Group, Key, Or, PathKind, Set, TableKind, TableList, Text,
};
use sealane_operator::reader::Table;
use sealane_operator::{Place, Problem, value};

use super::parts::{RootSource, Roots, refuse_second, roots, roots_key};

/// A certificate authority, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Whom it writes to, as URLs.
    pub contact: Vec<String>,
    /// The URL of its directory.
    pub directory: String,
    /// An account with it that the agent's is bound to.
    pub external_account: Option<ExternalAccount>,
    /// The kind of key that certificates of it have.
    pub key: KeyKind,
    /// The kind of certificate that is asked for, by its name in the directory.
    pub profile: Option<String>,
    /// Whom its own server's certificate is held against.
    pub roots: Vec<RootSource>,
}

/// An account that an authority has made otherwise, for whoever has its key (RFC 8555, 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The name of the key.
    pub kid: String,
    /// The file with the key, in base64url.
    pub key_file: PathBuf,
}

/// A kind of key that certificates have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// RSA of 2,048 bits.
    Rsa2048,
}

/// Reads a table.
pub(super) fn authority(
    table: &Table<'_>,
    directories: &mut HashMap<String, Place>,
) -> Option<Authority> {
    let written = table.required(&DIRECTORY, DIRECTORY_EXAMPLE);
    let directory = written.as_ref().and_then(|value| DIRECTORY.read(value));
    if let (Some(written), Some(directory)) = (&written, &directory) {
        refuse_second(directories, directory.clone(), written, directory);
    }
    match table.required(&AGREE_TO_TERMS, "agree_to_terms = true, once you have read them") {
        Some(agreed) if AGREE_TO_TERMS.read(&agreed) == Some(false) => {
            let what = "is false, and no CA has an account for whoever does not agree";
            agreed.wrong(Problem::new(what, "read its terms and write true, or remove the table"));
        }
        _ => {}
    }
    let contact = table.read(&CONTACT).unwrap_or_default();
    let (key, profile) = (table.get(&KEY), table.read(&PROFILE));
    let roots = roots(table, &ROOTS).unwrap_or_else(|| vec![RootSource::System]);
    let external_account = table.subtable(&EXTERNAL_ACCOUNT, external_account);
    Some(Authority { contact, directory: directory?, external_account, key, profile, roots })
}

fn external_account(table: &Table<'_>) -> Option<ExternalAccount> {
    let kid = table.required(&KID, "kid = \"...\", as the CA has told it");
    let kid = kid.and_then(|value| KID.read(&value));
    let file = table.required(&KEY_FILE, "key_file = \"/etc/sealane/eab.key\"");
    let key_file = file.and_then(|value| value.path());
    Some(ExternalAccount { kid: kid?, key_file: key_file? })
}

fn directory_url(text: &str) -> Result<String, Problem> {
    let host = text.strip_prefix("https://").and_then(|rest| rest.split('/').next());
    let is_url = text.parse::<http::Uri>().is_ok() && host.is_some_and(|host| !host.is_empty());
    match is_url {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} is not a URL that begins with https://");
            Err(Problem::new(what, format!("write the CA's, such as {DIRECTORY_EXAMPLE}")))
        }
    }
}

fn contact_url(text: &str) -> Result<String, Problem> {
    let is_address = text.split_once(':').is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.contains(char::is_whitespace)
    });
    match is_address {
        true => Ok(text.to_owned()),
        false => {
            let what = format!("{text:?} is not a URL of somebody");
            Err(Problem::new(what, "write it with mailto:, such as \"mailto:ops@example.com\""))
        }
    }
}

fn profile_name(text: &str) -> Result<String, Problem> {
    match text.is_empty() {
        true => Err(Problem::new("is empty", "name a profile of the CA, or remove the key")),
        false => Ok(text.to_owned()),
    }
}

const DIRECTORY_EXAMPLE: &str =
    "directory = \"https://acme-v02.api.letsencrypt.org/directory\", which is Let's Encrypt's";

pub(super) static AUTHORITY: Key<TableList> = Key::new("authority", TableList(&GROUP, 8), "");

static GROUP: Group = Group::new(
    "authority",
    "Certificate authorities (CAs) that issue certificates by ACME, up to 8. The agent asks them \
     in this order: the next one if a CA refuses, or if a certificate would expire while a CA is \
     away. Required, unless [push] is the only source of certificates.",
    &[&DIRECTORY, &AGREE_TO_TERMS, &CONTACT, &PROFILE, &ROOTS, &KEY, &EXTERNAL_ACCOUNT],
)
.example(
    "[[authority]]\ndirectory = \"https://acme-v02.api.letsencrypt.org/directory\"\n\
     agree_to_terms = true\ncontact = [\"mailto:ops@example.com\"]\n",
);

static DIRECTORY: Key<Text<String>> = Key::new(
    "directory",
    Text("URL that begins with https://", directory_url),
    "The URL of the CA's directory. The example is Let's Encrypt's.",
)
.examples(&["\"https://acme-v02.api.letsencrypt.org/directory\""])
.required();

static AGREE_TO_TERMS: Key<Bool> = Key::new(
    "agree_to_terms",
    Bool,
    "Must be true: you have read the CA's terms of service and agree to them.",
)
.examples(&["true"])
.required();

static CONTACT: Key<Set<Text<String>>> = Key::new(
    "contact",
    Set(Text("URL such as \"mailto:ops@example.com\"", contact_url), 8),
    "Addresses to which the CA may write.",
)
.examples(&["[\"mailto:ops@example.com\"]"])
.without("no address");

static PROFILE: Key<Text<String>> = Key::new(
    "profile",
    Text("name of a profile", profile_name),
    "The certificate profile, one of those in the CA's directory.",
)
.examples(&["\"tlsserver\""])
.without("the CA's default");

static ROOTS: Key<Roots> = roots_key(
    "Roots of trust for the CA's own server: \"system\" and PEM files. A changed file is read \
     again.",
);

static KEY: Key<Or<Choice<KeyKind>>> = Key::new(
    "key",
    Or(
        Choice(&[("p256", KeyKind::P256), ("p384", KeyKind::P384), ("rsa2048", KeyKind::Rsa2048)]),
        KeyKind::P256,
    ),
    "The type of certificate keys. Each renewal makes a new key.",
);

static EXTERNAL_ACCOUNT: Key<TableKind> = Key::new(
    "external_account",
    TableKind(&ACCOUNT_GROUP),
    "External account binding (RFC 8555, 7.3.4), for a CA where you have an account already.",
)
.examples(&["{ kid = \"kid-1\", key_file = \"/etc/sealane/eab.key\" }"])
.without("no binding");

static ACCOUNT_GROUP: Group = Group::new(
    "authority.external_account",
    "The key that the CA has given you for the account.",
    &[&KID, &KEY_FILE],
);

static KID: Key<Text<String>> =
    Key::new("kid", Text("text", value::word), "The identifier of the key.")
        .examples(&["\"kid-1\""])
        .required();

static KEY_FILE: Key<PathKind> = Key::new(
    "key_file",
    PathKind,
    "A file with the key in base64url. Other users must not be able to read it.",
)
.examples(&["\"/etc/sealane/eab.key\""])
.required();
