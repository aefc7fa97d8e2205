//! Trust, identity, versions and protocols of a client, in C's layout.
#![expect(unsafe_code, reason = "what C hands over is read behind its pointers")]

use std::ffi::c_char;

use sealane_engine::client::{
    ALPN_PROTOCOLS_MAX, ClientIdentity, ClientOptions, ROOTS_BYTES_MAX, Roots,
};
use sealane_engine::policy::Versions;

use crate::exports::{bytes, text};
use crate::failure::{Failure, Status};
use crate::system_roots;

/// The TLS settings of a client: `sealane_options`.
#[repr(C)]
pub struct Options {
    /// Bytes of this struct as the caller knows it.
    pub size: usize,
    /// Authorities, as PEM.
    pub roots_pem: *const u8,
    /// Bytes of `roots_pem`.
    pub roots_pem_len: usize,
    /// The chain to show to a server that asks for one, as PEM.
    pub certificate_pem: *const u8,
    /// Bytes of `certificate_pem`.
    pub certificate_pem_len: usize,
    /// The private key of the first certificate in that chain, as PEM.
    pub key_pem: *const u8,
    /// Bytes of `key_pem`.
    pub key_pem_len: usize,
    /// Protocols to offer, the best first.
    pub alpn: *const *const c_char,
    /// The count of protocols.
    pub alpn_len: usize,
    /// Versions to offer: `SEALANE_TLS12_AND_TLS13` and its neighbours.
    pub versions: u32,
    /// Whether the system's authorities are believed as well.
    pub roots_system: u32,
    /// Whether earlier sessions are forgotten.
    pub without_resumption: u32,
}

impl Options {
    /// Reads the options.
    ///
    /// # Safety
    /// `options` is null, or points to as many bytes as the `size` in it. Each pointer in it is
    /// null or follows the header's rules.
    pub(crate) unsafe fn read(options: *const Self) -> Result<ClientOptions, Failure> {
        if options.is_null() {
            return Err(Failure::null("options"));
        }
        // SAFETY: every form of the struct begins with its size, so that much is there.
        let size = unsafe { (&raw const (*options).size).read() };
        if size != size_of::<Self>() {
            let text = format!(
                "options: size is {size}, and this library's is {}: begin with \
                 SEALANE_OPTIONS_INIT, and compile against the header of this library",
                size_of::<Self>()
            );
            return Err(Failure::new(Status::InvalidArgument, text));
        }
        // SAFETY: it is as long as this struct, by its `size`.
        let written = unsafe { &*options };
        let versions = match written.versions {
            TLS12_AND_TLS13 => Versions::Tls12AndTls13,
            TLS12 => Versions::Tls12,
            TLS13 => Versions::Tls13,
            other => {
                let text = format!(
                    "versions: {other} is none of SEALANE_TLS12_AND_TLS13, \
                     SEALANE_TLS12 and SEALANE_TLS13"
                );
                return Err(Failure::new(Status::Options, text));
            }
        };
        // SAFETY: the caller vouches for the pointers in it.
        let (roots, identity, alpn) =
            unsafe { (written.roots()?, written.identity()?, written.protocols()?) };
        let resumption = written.without_resumption == 0;
        Ok(ClientOptions { alpn, identity, resumption, versions, ..ClientOptions::trusting(roots) })
    }

    unsafe fn roots(&self) -> Result<Roots, Failure> {
        // SAFETY: as the caller promises.
        let pem = unsafe { bytes("roots_pem", self.roots_pem, self.roots_pem_len)? };
        let mut sources = Vec::new();
        if !self.roots_pem.is_null() {
            sources.push(Roots::from_pem("roots_pem", pem)?);
        }
        if self.roots_system != 0 {
            sources.push(system_roots::read()?);
        }
        Ok(Roots::joined(&sources)?)
    }

    unsafe fn identity(&self) -> Result<Option<ClientIdentity>, Failure> {
        let pem = |field, start, len| {
            // SAFETY: as the caller promises.
            let pem = unsafe { bytes(field, start, len)? };
            match pem.len() {
                len if len > ROOTS_BYTES_MAX => {
                    let text = format!("{field}: {len} bytes; at most {ROOTS_BYTES_MAX} are read");
                    Err(Failure::new(Status::Options, text))
                }
                _ => Ok(pem),
            }
        };
        let chain = pem("certificate_pem", self.certificate_pem, self.certificate_pem_len)?;
        let key = pem("key_pem", self.key_pem, self.key_pem_len)?;
        if self.certificate_pem.is_null() && self.key_pem.is_null() {
            return Ok(None);
        }
        let pair = (("certificate_pem", chain), ("key_pem", key));
        Ok(Some(ClientIdentity::from_pem_pair(pair.0, pair.1)?))
    }

    unsafe fn protocols(&self) -> Result<Vec<Vec<u8>>, Failure> {
        if self.alpn_len == 0 {
            return Ok(Vec::new());
        }
        if self.alpn.is_null() {
            return Err(Failure::null("alpn"));
        }
        if self.alpn_len > ALPN_PROTOCOLS_MAX {
            let text = format!(
                "alpn: {} protocols; at most {ALPN_PROTOCOLS_MAX} are offered",
                self.alpn_len
            );
            return Err(Failure::new(Status::Options, text));
        }
        let protocol = |index| {
            // SAFETY: there are `alpn_len` pointers, each to a text, as the caller promises.
            let text = unsafe { text("alpn", *self.alpn.add(index), ALPN_BYTES_MAX)? };
            Ok(text.as_bytes().to_vec())
        };
        (0..self.alpn_len).map(protocol).collect()
    }
}

/// Bytes of a protocol's name.
const ALPN_BYTES_MAX: usize = 255;
pub(crate) const TLS12_AND_TLS13: u32 = 0;
pub(crate) const TLS12: u32 = 12;
pub(crate) const TLS13: u32 = 13;
