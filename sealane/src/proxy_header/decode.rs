//! The reader's side, for backends of our own: bounded, and no byte of it is trusted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use super::{
    CLIENT_SPOKE_TLS, FIXED_LEN, Header, REST_BYTES_MAX, SIGNATURE, SUBTYPE_CIPHER, SUBTYPE_GROUP,
    SUBTYPE_VERSION, TCP_OVER_IPV4, TCP_OVER_IPV6, TYPE_ALPN, TYPE_AUTHORITY, TYPE_LANE,
    TYPE_RESUMED, TYPE_SSL, Tls, UNSPECIFIED, VERSION2_LOCAL, VERSION2_PROXY,
};

impl<'a> Header<'a> {
    /// Reads the header at the front of `bytes` and says how long it is; `None` as long as it is
    /// incomplete.
    ///
    /// Types that are not known are passed over, as the specification wants it.
    ///
    /// # Errors
    /// The sender's fault; no further byte can mend it.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let begun = bytes.len().min(SIGNATURE.len());
        if bytes[..begun] != SIGNATURE[..begun] {
            return Err(Malformed::Signature);
        }
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_LEN>() else { return Ok(None) };
        let [.., command, family, len_high, len_low] = *fixed;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        if len > REST_BYTES_MAX {
            return Err(Malformed::TooLong { len });
        }
        if ![VERSION2_LOCAL, VERSION2_PROXY].contains(&command) {
            return Err(Malformed::Command { command });
        }
        let Some(rest) = rest.get(..len) else { return Ok(None) };
        let header = match command {
            // A health check of the sender's own: what follows means nothing.
            VERSION2_LOCAL => Self::default(),
            _ => Self::read(family, Reader { rest })?,
        };
        Ok(Some((header, FIXED_LEN + len)))
    }

    fn read(family: u8, mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let addresses = match family {
            TCP_OVER_IPV4 => {
                let ips = [reader.array::<4>()?, reader.array::<4>()?].map(Ipv4Addr::from);
                Some((ips.map(Into::into), [reader.u16()?, reader.u16()?]))
            }
            TCP_OVER_IPV6 => {
                let ips = [reader.array::<16>()?, reader.array::<16>()?].map(Ipv6Addr::from);
                Some((ips.map(Into::into), [reader.u16()?, reader.u16()?]))
            }
            UNSPECIFIED => None,
            _ => return Err(Malformed::Family { family }),
        };
        let addresses = addresses.map(|([client, local], [client_port, local_port])| {
            (SocketAddr::new(client, client_port), SocketAddr::new(local, local_port))
        });
        let mut header = Self { addresses, ..Self::default() };
        while let Some((kind, mut value)) = reader.value()? {
            match kind {
                TYPE_ALPN => header.alpn = Some(value.rest),
                TYPE_AUTHORITY => header.server_name = Some(value.text()?),
                TYPE_LANE => header.lane = Some(value.u16()?),
                TYPE_RESUMED => header.resumed = Some(value.array() == Ok([1])),
                TYPE_SSL => header.tls = Tls::read(value)?,
                _ => {}
            }
        }
        Ok(header)
    }
}

impl<'a> Tls<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Option<Self>, Malformed> {
        let [client, _verified @ ..] = reader.array::<5>()?;
        let mut tls = Self::default();
        while let Some((kind, value)) = reader.value()? {
            match kind {
                SUBTYPE_CIPHER => tls.suite = Some(value.text()?),
                SUBTYPE_GROUP => tls.group = Some(value.text()?),
                SUBTYPE_VERSION => tls.version = Some(value.text()?),
                _ => {}
            }
        }
        Ok((client & CLIENT_SPOKE_TLS != 0).then_some(tls))
    }
}

/// Why bytes are no header. The fault is the sender's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// Neither LOCAL nor PROXY, or another version.
    #[error("version and command {command:#04x} of the PROXY header are not known")]
    Command {
        /// The byte for both.
        command: u8,
    },
    /// An address or a value is longer than what holds it.
    #[error("the PROXY header ends within an address or a value")]
    CutShort,
    /// Neither TCP nor unspecified.
    #[error("the address family {family:#04x} of the PROXY header is not known")]
    Family {
        /// The byte for family and transport.
        family: u8,
    },
    /// A name that is not UTF-8.
    #[error("a name in the PROXY header is not UTF-8")]
    NotText,
    /// It does not begin as it must.
    #[error("no PROXY header of version 2 comes first")]
    Signature,
    /// It announces more than [`REST_BYTES_MAX`].
    #[error("the PROXY header announces {len} bytes, at most {REST_BYTES_MAX} are taken")]
    TooLong {
        /// Bytes announced.
        len: usize,
    },
}

/// What is left to read of the header, or of a value in it.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(*array)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next type-length-value, if there is any.
    fn value(&mut self) -> Result<Option<(u8, Self)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [kind] = self.array()?;
        let len = usize::from(self.u16()?);
        let (value, rest) = self.rest.split_at_checked(len).ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(Some((kind, Self { rest: value })))
    }

    fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.rest).map_err(|_| Malformed::NotText)
    }
}
