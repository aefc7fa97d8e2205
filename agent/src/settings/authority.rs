//! The tables `[[authority]]`: certificate authorities.

use std::collections::HashMap;
use std::path::PathBuf;

use sealane_operator::reader::Table;
use sealane_operator::{Place, Problem, value};

use super::parts::{ROOTS_MAX, RootSource, refuse_second, root_source};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on P-256.
    #[default]
    P256,
    /// ECDSA on P-384.
    P384,
    /// RSA of 2,048 bits.
    Rsa2048,
}

pub(super) fn authority(
    table: &mut Table<'_>,
    directories: &mut HashMap<String, Place>,
) -> Option<Authority> {
    let written = table.required("directory", DIRECTORY_EXAMPLE);
    let directory = written.as_ref().and_then(|value| value.parsed(directory_url));
    if let (Some(written), Some(directory)) = (&written, &directory) {
        refuse_second(directories, directory.clone(), written, directory);
    }
    match table.required("agree_to_terms", "agree_to_terms = true, once you have read them") {
        Some(agreed) if agreed.boolean() == Some(false) => {
            let what = "is false, and no CA has an account for whoever does not agree";
            agreed.wrong(Problem::new(what, "read its terms and write true, or remove the table"));
        }
        _ => {}
    }
    let contact = table
        .value("contact")
        .and_then(|value| value.set(CONTACTS_MAX, |each| each.parsed(contact_url)));
    let roots = table.value("roots").and_then(|value| value.set(ROOTS_MAX, root_source));
    let key = table.value("key").and_then(|value| value.choice(&KEYS));
    let profile = table.value("profile").and_then(|value| value.parsed(profile_name));
    let external_account = table.table("external_account", external_account);
    Some(Authority {
        contact: contact.unwrap_or_default(),
        directory: directory?,
        external_account,
        key: key.unwrap_or_default(),
        profile,
        roots: roots.unwrap_or_else(|| vec![RootSource::System]),
    })
}

fn external_account(table: &mut Table<'_>) -> Option<ExternalAccount> {
    let kid = table.required("kid", "kid = \"...\", as the CA has told it");
    let kid = kid.and_then(|value| value.parsed(value::word));
    let file = table.required("key_file", "key_file = \"/etc/sealane/eab.key\"");
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
const KEYS: [(&str, KeyKind); 3] =
    [("p256", KeyKind::P256), ("p384", KeyKind::P384), ("rsa2048", KeyKind::Rsa2048)];
/// Authorities that are asked one after the other.
pub(super) const AUTHORITIES_MAX: usize = 8;
/// URLs that a CA may write to.
const CONTACTS_MAX: usize = 8;
