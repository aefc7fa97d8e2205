//! TLS settings in OpenSSL's words, which all four programs use: [`Tls`].

use sealane_engine::policy::{Group, Suite};

use super::remark::{Line, Remarks};

/// The TLS settings. `None` leaves one to Sealane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// Whether the client's order of suites decides where the server has named some.
    pub(super) client_order: bool,
    pub(super) groups: Option<Vec<Group>>,
    suites12: Option<Vec<Suite>>,
    suites13: Option<Vec<Suite>>,
    /// TLS 1.2 and 1.3.
    pub(super) versions: Option<[bool; 2]>,
    /// The suites to write, after [`Tls::settle`].
    pub(super) suites: Option<Vec<Suite>>,
}

/// Versions of which some are spoken, in the order of [`VERSIONS`].
pub(super) type Spoken = [bool; VERSIONS.len()];

/// Versions as OpenSSL names them.
pub(super) const VERSIONS: [&str; 5] = ["SSLv3", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

/// The place of a version in [`VERSIONS`].
pub(super) fn version(name: &str) -> Option<usize> {
    let name = if name.eq_ignore_ascii_case("TLSv1") { "TLSv1.0" } else { name };
    VERSIONS.iter().position(|version| version.eq_ignore_ascii_case(name))
}

impl Tls {
    /// Takes the versions that a line names.
    pub(super) fn set_versions(&mut self, spoken: Spoken, line: &Line, remarks: &mut Remarks) {
        self.versions = versions(spoken, "versions", line, remarks);
    }

    /// Takes a list of suites for TLS up to 1.2, in the language of ciphers(1).
    pub(super) fn set_ciphers(&mut self, list: &str, line: &Line, remarks: &mut Remarks) {
        let read = cipher_list(list);
        if read.suites.is_empty() && !read.is_understood {
            let why =
                format!("{list:?} names no suite that is known; here are all of Sealane's: {HAS}");
            remarks.left_out(line, "suites", why);
            self.suites12 = None;
            return;
        }
        if !read.foreign.is_empty() {
            let foreign = shortened(&read.foreign);
            let why = match read.foreign.as_slice() {
                [_] => format!("{foreign} is, or stands for more than, what Sealane has: {HAS}"),
                _ => format!("{foreign} are, or stand for more than, what Sealane has: {HAS}"),
            };
            remarks.left_out(line, "suites", why);
        }
        self.suites12 = Some(read.suites);
    }

    /// Takes a list of suites for TLS 1.3.
    pub(super) fn set_ciphersuites(&mut self, list: &str, line: &Line, remarks: &mut Remarks) {
        let (suites, foreign) = named(list, |name| {
            Suite::ALL.into_iter().find(|suite| suite.is_tls13() && suite.name() == name)
        });
        if !foreign.is_empty() {
            let why = format!("{} is no suite that Sealane has", shortened(&foreign));
            remarks.left_out(line, "suites", why);
        }
        self.suites13 = Some(suites);
    }

    /// Takes a list of groups, or `auto`.
    pub(super) fn set_groups(&mut self, list: &str, line: &Line, remarks: &mut Remarks) {
        if list.eq_ignore_ascii_case("auto") {
            return;
        }
        let (groups, foreign) = named(list, group);
        if !foreign.is_empty() {
            let why = format!(
                "{}: Sealane has X25519MLKEM768, X25519, secp256r1 and secp384r1",
                shortened(&foreign)
            );
            remarks.left_out(line, "groups", why);
        }
        self.groups = Some(groups).filter(|groups| !groups.is_empty());
    }

    /// Makes versions and suites agree, as a configuration of Sealane must.
    pub(super) fn settle(&mut self, remarks: &mut Remarks) {
        if self.versions == Some([false; 2]) {
            remarks.about_default("versions", "nothing that was spoken is left: both versions");
            self.versions = None;
        }
        let mut spoken = self.versions.unwrap_or([true; 2]);
        let is_left = |suites: &Option<Vec<Suite>>| !suites.as_ref().is_some_and(Vec::is_empty);
        let left = [is_left(&self.suites12), is_left(&self.suites13)];
        if !(0..2).any(|index| spoken[index] && left[index]) {
            let text = "no suite that was spoken is left: all of Sealane's, in the same versions";
            remarks.about_default("versions", text);
            self.suites12 = self.suites12.take().filter(|suites| !suites.is_empty());
            self.suites13 = self.suites13.take().filter(|suites| !suites.is_empty());
        } else {
            for (index, name) in ["1.2", "1.3"].into_iter().enumerate() {
                if spoken[index] && !left[index] {
                    let text = format!("TLS {name} goes, because none of its suites is left");
                    remarks.about_default("versions", text);
                    spoken[index] = false;
                    self.versions = Some(spoken);
                }
            }
        }
        if self.suites12.is_none() && self.suites13.is_none() {
            return;
        }
        let own = |is_tls13| Suite::ALL.into_iter().filter(move |s| s.is_tls13() == is_tls13);
        let mut suites = Vec::new();
        if spoken[1] {
            suites.extend(self.suites13.clone().unwrap_or_else(|| own(true).collect()));
        }
        if spoken[0] {
            suites.extend(self.suites12.clone().unwrap_or_else(|| own(false).collect()));
        }
        if self.client_order {
            remarks.about_default("suites", "the client's order decided; now that of this list");
        }
        if spoken[0] && self.groups.as_deref() == Some(&[Group::X25519MlKem768]) {
            remarks.about_default("groups", "X25519 as well: TLS 1.2 cannot use the other");
            self.groups = Some(vec![Group::X25519MlKem768, Group::X25519]);
        }
        self.suites = Some(suites);
    }
}

/// Those of TLS 1.2 and 1.3 among the versions in a line. Older ones are left out.
pub(super) fn versions(
    spoken: Spoken,
    key: &'static str,
    line: &Line,
    remarks: &mut Remarks,
) -> Option<[bool; 2]> {
    let old: Vec<_> = (0..3).filter(|version| spoken[*version]).map(|v| VERSIONS[v]).collect();
    if !old.is_empty() {
        let old = old.join(", ");
        remarks.left_out(line, key, format!("{old}: Sealane speaks TLS 1.2 and 1.3 alone"));
    }
    Some([spoken[3], spoken[4]])
}

/// The suites of TLS 1.2 that a list means, and its words for other suites.
struct CipherList {
    foreign: Vec<String>,
    /// Whether a rule that adds suites has a word that is known, or a suite's name.
    is_understood: bool,
    suites: Vec<Suite>,
}

/// Reads the language of ciphers(1): rules that add, move or remove suites, one after the other.
fn cipher_list(list: &str) -> CipherList {
    let mut inactive: Vec<Suite> = OPENSSL_ORDER.to_vec();
    let mut active = Vec::new();
    let mut foreign = Vec::new();
    let mut is_understood = false;
    for rule in rules(list) {
        if let Some(special) = rule.strip_prefix('@') {
            if special == "STRENGTH" {
                active.sort_by_key(|suite| is_aes128(*suite));
            }
            continue;
        }
        let bare = rule.trim_start_matches(['!', '-', '+']);
        let selects = |suite: &Suite| {
            bare.split('+').all(|keyword| has_keyword(*suite, keyword).unwrap_or(false))
        };
        match rule.as_bytes()[0] {
            // Removed for good: no later rule adds it again.
            b'!' => {
                inactive.retain(|suite| !selects(suite));
                active.retain(|suite| !selects(suite));
            }
            // Removed, but a later rule may add it again. OpenSSL then puts it before the others.
            b'-' => {
                let (mut removed, kept): (Vec<_>, _) = active.into_iter().partition(selects);
                active = kept;
                removed.append(&mut inactive);
                inactive = removed;
            }
            // Moved to the end. Nothing is added.
            b'+' => {
                let (mut moved, kept): (Vec<_>, _) = active.into_iter().partition(selects);
                active = kept;
                active.append(&mut moved);
            }
            _ => {
                let (mut added, left): (Vec<_>, _) = inactive.into_iter().partition(selects);
                inactive = left;
                active.append(&mut added);
                is_understood |= bare.split('+').all(is_word);
                if !is_ours_alone(bare) {
                    foreign.push(rule.to_owned());
                }
            }
        }
    }
    CipherList { foreign, is_understood, suites: active }
}

/// The rules of a list; one that begins with `@` needs nothing before it.
fn rules(list: &str) -> impl Iterator<Item = &str> {
    let parts = list.split([':', ',', ' ', ';']);
    let at = |part: &'_ str| part.find('@').unwrap_or(part.len());
    let each = parts.flat_map(move |part| <[&str; 2]>::from(part.split_at(at(part))));
    each.filter(|rule| !rule.is_empty())
}

/// Whether OpenSSL knows a word, as far as is known here. That is a keyword of the table, or a name
/// with a hyphen or `TLS_` in it, as suites have.
fn is_word(word: &str) -> bool {
    has_keyword(OPENSSL_ORDER[0], word).is_some() || word.contains('-') || word.starts_with("TLS_")
}

/// Whether a rule means no suite that Sealane lacks: a suite of ours, or ephemeral keys with
/// authenticated encryption.
fn is_ours_alone(rule: &str) -> bool {
    let has = |names: &[&str]| rule.split('+').any(|keyword| names.contains(&keyword));
    tls12_suite(rule).is_some()
        || has(&["ECDH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "aECDSA", "ECDSA"])
            && has(&["AESGCM", "CHACHA20"])
}

/// Whether a keyword means a suite, perhaps among others. `None` for an unknown keyword.
fn has_keyword(suite: Suite, keyword: &str) -> Option<bool> {
    let name = suite.openssl_name();
    Some(match keyword {
        "ALL"
        | "DEFAULT"
        | "COMPLEMENTOFDEFAULT"
        | "HIGH"
        | "FIPS"
        | "TLSv1.2"
        | "ECDHE"
        | "EECDH"
        | "ECDH"
        | "kECDHE"
        | "kEECDH" => {
            keyword != "COMPLEMENTOFDEFAULT" && (keyword != "FIPS" || !name.contains("CHACHA"))
        }
        "aECDSA" | "ECDSA" => name.contains("ECDSA"),
        "aRSA" => name.contains("-RSA-"),
        "AES" | "AESGCM" => name.contains("AES"),
        "AES128" => is_aes128(suite),
        "AES256" => name.contains("AES256"),
        "CHACHA20" => name.contains("CHACHA20"),
        _ => return tls12_suite(keyword).map(|named| named == suite),
    })
}

fn tls12_suite(name: &str) -> Option<Suite> {
    let is_named = |suite: &Suite| [suite.openssl_name(), suite.name()].contains(&name);
    OPENSSL_ORDER.into_iter().find(is_named)
}

fn is_aes128(suite: Suite) -> bool {
    suite.openssl_name().contains("AES128")
}

fn group(name: &str) -> Option<Group> {
    match name.to_ascii_lowercase().as_str() {
        "p-256" | "prime256v1" | "secp256r1" => Some(Group::Secp256r1),
        "p-384" | "secp384r1" => Some(Group::Secp384r1),
        "x25519" => Some(Group::X25519),
        "x25519mlkem768" => Some(Group::X25519MlKem768),
        _ => None,
    }
}

/// The values of the names in a list, each once, and the names without a value.
fn named<T: PartialEq>(list: &str, known: impl Fn(&str) -> Option<T>) -> (Vec<T>, Vec<String>) {
    let (mut found, mut foreign) = (Vec::new(), Vec::new());
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        match known(name) {
            Some(known) if found.contains(&known) => {}
            Some(known) => found.push(known),
            None => foreign.push(name.to_owned()),
        }
    }
    (found, foreign)
}

/// The first of many.
fn shortened(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMES_SHOWN_MAX)].join(", ");
    if names.len() > NAMES_SHOWN_MAX {
        text.push_str(" and more");
    }
    text
}

/// Suites of TLS 1.2 that Sealane has, in OpenSSL's default order.
const OPENSSL_ORDER: [Suite; 6] = [
    Suite::EcdheEcdsaAes256GcmSha384,
    Suite::EcdheRsaAes256GcmSha384,
    Suite::EcdheEcdsaChacha20Poly1305Sha256,
    Suite::EcdheRsaChacha20Poly1305Sha256,
    Suite::EcdheEcdsaAes128GcmSha256,
    Suite::EcdheRsaAes128GcmSha256,
];
const HAS: &str = "ECDHE with AES-GCM or ChaCha20-Poly1305, and nothing with CBC, RSA key exchange \
                   or finite-field Diffie-Hellman";
const NAMES_SHOWN_MAX: usize = 4;

#[cfg(test)]
mod tests;
