//! What two ends agreed on, read back from the library: [`Agreed`].

use std::{ffi::c_int, ptr};

use crate::{
    Connection,
    api::{Pkey, number},
    connection::{VERIFIED, text},
    context::{GROUPS, TLS_1_2},
};

/// What was agreed on, as the library tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The version on the wire: `0x0303` for TLS 1.2.
    pub version: u16,
    /// The suite's IANA name.
    pub suite: String,
    /// The group's IANA number; `None` where the library cannot tell, or there was none.
    pub group: Option<u16>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Whether the peer showed a certificate and the library verified its chain.
    pub peer_verified: bool,
}

impl Connection {
    /// What both ends agreed on; meaningful once the handshake is done.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        let api = &self.library.api;
        // SAFETY: `ssl` is alive; each call only reads it.
        let (version, resumed) = unsafe {
            let resumed = match api.SSL_session_reused {
                Some(function) => function(self.ssl).into(),
                None => {
                    let number = number::SSL_CTRL_GET_SESSION_REUSED;
                    api.control(self.ssl, number, 0, ptr::null_mut())
                }
            };
            ((api.SSL_version)(self.ssl), resumed == 1)
        };
        let suite = self.suite();
        let version = u16::try_from(version).unwrap_or(0);
        // A session of TLS 1.2 is resumed without a key exchange; some tell the old one's group.
        let group = if resumed && version == TLS_1_2 { None } else { self.group() };
        Agreed { version, suite, group, resumed, peer_verified: self.peer_verified() }
    }

    /// By its IANA name, which LibreSSL does not tell.
    fn suite(&self) -> String {
        let api = &self.library.api;
        // SAFETY: `ssl` is alive; each call only reads it, and the suite's name is never freed.
        unsafe {
            let suite = (api.SSL_get_current_cipher)(self.ssl);
            if suite.is_null() {
                return String::new();
            }
            match api.SSL_CIPHER_standard_name {
                Some(function) => text(function(suite)),
                // Behind what SSL 3 had in front.
                None => named(((api.SSL_CIPHER_get_id)(suite) & 0xffff) as u16),
            }
        }
    }

    fn peer_verified(&self) -> bool {
        let api = &self.library.api;
        let Some(function) = api.SSL_get1_peer_certificate.or(api.SSL_get_peer_certificate) else {
            return false;
        };
        // SAFETY: `ssl` is alive; the certificate is a reference of our own, given back at once.
        unsafe {
            let certificate = function(self.ssl);
            if certificate.is_null() {
                return false;
            }
            (api.X509_free)(certificate);
            (api.SSL_get_verify_result)(self.ssl) == VERIFIED
        }
    }

    fn group(&self) -> Option<u16> {
        let api = &self.library.api;
        if let Some(function) = api.SSL_get_group_id {
            // SAFETY: `ssl` is alive and only read.
            let group = unsafe { function(self.ssl) };
            return (group != 0).then_some(group);
        }
        // SAFETY: `ssl` is alive; this number takes nothing. 0 where it is not known.
        let group = unsafe {
            api.control(self.ssl, number::SSL_CTRL_GET_NEGOTIATED_GROUP, 0, ptr::null_mut())
        };
        // A group that has no number in OpenSSL's list of objects comes by its IANA number.
        match u32::try_from(group).ok()? {
            0 => self.group_of_peer_key(),
            found if found & UNLISTED != 0 => u16::try_from(found & !UNLISTED).ok(),
            found => iana_group(c_int::try_from(found).ok()?),
        }
    }

    /// From the peer's ephemeral key: OpenSSL 1.1.1 tells in no other way.
    fn group_of_peer_key(&self) -> Option<u16> {
        let api = &self.library.api;
        let (kind_of, free) = (api.EVP_PKEY_id?, api.EVP_PKEY_free?);
        let mut key: *mut Pkey = ptr::null_mut();
        // SAFETY: `ssl` is alive; this number writes one reference to where it is told, which is
        // given back here; the curve belongs to the key.
        unsafe {
            let place = (&raw mut key).cast();
            if api.control(self.ssl, number::SSL_CTRL_GET_PEER_TMP_KEY, 0, place) != 1 {
                return None;
            }
            let mut kind = kind_of(key);
            if kind == NID_EC_PUBLIC_KEY
                && let Some(curve) = api.EVP_PKEY_get0_EC_KEY.map(|of| of(key))
                && let Some(group) = api.EC_KEY_get0_group.map(|of| of(curve))
                && let Some(name) = api.EC_GROUP_get_curve_name.map(|of| of(group))
            {
                kind = name;
            }
            free(key);
            iana_group(kind)
        }
    }
}

/// The IANA name of a suite, or its number if nobody here uses it.
pub(crate) fn named(suite: u16) -> String {
    let found = SUITES.iter().find(|(number, _)| *number == suite);
    found.map_or_else(|| format!("{suite:#06x}"), |(_, name)| (*name).to_owned())
}

fn iana_group(nid: c_int) -> Option<u16> {
    let (_, name) = GROUP_NIDS.iter().find(|(number, _)| *number == nid)?;
    GROUPS.iter().find(|(_, group)| group == name).map(|(iana, _)| *iana)
}

/// Suites by their IANA numbers.
const SUITES: [(u16, &str); 9] = [
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];
/// OpenSSL's numbers of curves, and LibreSSL's of X25519.
const GROUP_NIDS: [(c_int, &str); 4] =
    [(415, "P-256"), (715, "P-384"), (950, "X25519"), (1034, "X25519")];
const NID_EC_PUBLIC_KEY: c_int = 408;
/// Set in what stands for a group by its IANA number.
const UNLISTED: u32 = 0x0100_0000;
