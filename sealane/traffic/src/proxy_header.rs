//! The PROXY protocol: a header ahead of everything else, which tells who the client is and how it
//! spoke.
//!
//! [`decode()`] reads a [`Header`] of version 1, a line of text, or 2, as a receiver does for
//! connections of strangers. [`encode()`] writes one for a backend; what version 2 says in it is
//! [`Facts`]. Layout and type numbers: the PROXY protocol specification by HAProxy. Two types of
//! the range for custom use are Sealane's own: [`TYPE_LANE`] and [`TYPE_RESUMED`].

mod addresses;
mod crc32c;
mod decode;
mod encode;
mod facts;
mod header;
mod line;
mod malformed;
pub mod source;
mod values;
mod writer;

pub use decode::decode;
pub use encode::{Announced, encode};
pub use facts::{ClientCertificate, Facts, Tls};
pub use header::{Header, Origin};
pub use malformed::Malformed;
pub use source::Source;
pub use values::{Value, Values};

pub use sealane_config::proxy_header::{
    TYPE_ALPN, TYPE_AUTHORITY, TYPE_CRC32C, TYPE_LANE, TYPE_NOOP, TYPE_RESUMED, TYPE_SSL,
    TYPE_UNIQUE_ID,
};

/// Bytes of version 1, its end included.
pub const LINE_BYTES_MAX: usize = 107;

/// Bytes of a host name that a reader takes.
pub const AUTHORITY_BYTES_MAX: usize = 255;
/// Bytes of what tells a connection from all others, by the specification.
pub const UNIQUE_ID_BYTES_MAX: usize = 128;

/// Announces a header of version 2.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// A header of version 1 that tells of nobody.
pub const V1_OF_NOBODY: &[u8] = b"PROXY UNKNOWN\r\n";
/// A header of version 2 that tells of nobody, whose connection is the sender's own.
pub const V2_OF_NOBODY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
/// Bytes before the address.
pub const FIXED_LEN: usize = 16;
/// Bytes behind those of version 2 that a reader takes, and that are written at most.
pub const REST_BYTES_MAX: usize = 2048;
/// Within the group: the TLS version.
pub const SUBTYPE_VERSION: u8 = 0x21;
/// Within the group: the common name in the client's certificate.
pub const SUBTYPE_COMMON_NAME: u8 = 0x22;
/// Within the group: the cipher suite.
pub const SUBTYPE_CIPHER: u8 = 0x23;
/// Within the group: how the certificate is signed that the client was served.
pub const SUBTYPE_SIGNATURE_ALGORITHM: u8 = 0x24;
/// Within the group: the kind and the bits of its key.
pub const SUBTYPE_KEY_ALGORITHM: u8 = 0x25;
/// Within the group: the key exchange group.
pub const SUBTYPE_GROUP: u8 = 0x26;
/// Within the group: how the server signed the handshake.
pub const SUBTYPE_SIGNATURE_SCHEME: u8 = 0x27;
/// Within the group: the client's certificate in DER.
pub const SUBTYPE_CLIENT_CERTIFICATE: u8 = 0x28;

const VERSION2_LOCAL: u8 = 0x20;
const VERSION2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const UDP_OVER_IPV4: u8 = 0x12;
const UDP_OVER_IPV6: u8 = 0x22;
const UNIX_DATAGRAM: u8 = 0x32;
const UNIX_STREAM: u8 = 0x31;
const UNSPECIFIED: u8 = 0x00;
const CLIENT_SPOKE_TLS: u8 = 0x01;
const CERTIFICATE_IN_CONNECTION: u8 = 0x02;
const CERTIFICATE_IN_SESSION: u8 = 0x04;
/// A certificate was shown, and is believed.
const VERIFIED: u32 = 0;
/// Not zero: no client certificate was verified.
const NOT_VERIFIED: u32 = 1;
