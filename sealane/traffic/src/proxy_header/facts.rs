//! What is told of a connection, beside whose it is: written for backends, and read by those of our
//! own.

use std::net::SocketAddr;

use super::addresses::Ips;
use super::decode::decode;
use super::header::text;
use super::malformed::Malformed;
use super::values::{Reader, Value};
use super::writer::Writer;
use super::{
    CERTIFICATE_IN_CONNECTION, CERTIFICATE_IN_SESSION, CLIENT_SPOKE_TLS, NOT_VERIFIED,
    SUBTYPE_CIPHER, SUBTYPE_CLIENT_CERTIFICATE, SUBTYPE_COMMON_NAME, SUBTYPE_GROUP,
    SUBTYPE_KEY_ALGORITHM, SUBTYPE_SIGNATURE_ALGORITHM, SUBTYPE_SIGNATURE_SCHEME, SUBTYPE_VERSION,
    TCP_OVER_IPV4, TCP_OVER_IPV6, TYPE_ALPN, TYPE_AUTHORITY, TYPE_CRC32C, TYPE_LANE, TYPE_NOOP,
    TYPE_RESUMED, TYPE_SSL, TYPE_UNIQUE_ID, UNSPECIFIED, VERIFIED,
};

/// What a header says of a connection; nothing of what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The client's address and the one that it connected to.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The application protocol that was agreed on.
    pub alpn: Option<&'a [u8]>,
    /// Whether the header has a checksum.
    pub checksum: bool,
    /// The lane's number.
    pub lane: Option<u16>,
    /// Whether a ticket replaced the full handshake.
    pub resumed: Option<bool>,
    /// The server name that the client asked for.
    pub server_name: Option<&'a str>,
    /// How the client spoke TLS, if it did.
    pub tls: Option<Tls<'a>>,
    /// What tells the connection from all others, across hops.
    pub unique_id: Option<&'a [u8]>,
}

/// What was agreed on in a TLS handshake, by names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls<'a> {
    /// What the client showed of itself, if it did.
    pub client: Option<ClientCertificate<'a>>,
    /// The key exchange group; none in a resumed session of TLS 1.2.
    pub group: Option<&'a str>,
    /// The kind of key of the certificate that the client was served, with its bits.
    pub key: Option<&'a str>,
    /// How the handshake was signed with that key, by IANA's name; none in a resumed session.
    pub scheme: Option<&'a str>,
    /// How that certificate is signed.
    pub signature: Option<&'a str>,
    /// The cipher suite, by the name that OpenSSL gives it: what the specification shows, and what
    /// HAProxy and hitch send.
    pub suite: Option<&'a str>,
    /// The protocol version.
    pub version: Option<&'a str>,
}

/// What a client showed of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate<'a> {
    /// The common name in its certificate.
    pub common_name: Option<&'a str>,
    /// The certificate itself, without its issuers.
    pub der: Option<&'a [u8]>,
    /// Whether it showed it in an earlier connection, which this one continues.
    pub is_of_session_only: bool,
    /// Whether it, its issuers included, is believed.
    pub is_verified: bool,
}

impl<'a> Facts<'a> {
    /// Reads the header at the front of `bytes`, and says how long it is; `None` as long as it is
    /// unfinished.
    ///
    /// # Errors
    /// The sender's fault; no further byte can mend it.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(header) = decode(bytes)? else { return Ok(None) };
        let mut facts = Self {
            addresses: header.client().zip(header.local()),
            server_name: header.authority(),
            unique_id: header.unique_id(),
            ..Self::default()
        };
        for Value { kind, bytes, .. } in header.values() {
            let mut reader = Reader::new(bytes);
            match kind {
                TYPE_ALPN => facts.alpn = Some(bytes),
                TYPE_CRC32C => facts.checksum = true,
                TYPE_LANE => facts.lane = Some(reader.u16()?),
                TYPE_RESUMED => facts.resumed = Some(bytes == [1]),
                TYPE_SSL => facts.tls = Tls::read(reader)?,
                _ => {}
            }
        }
        Ok(Some((facts, header.len)))
    }

    /// The bytes to send ahead of everything else, with the values that are `passed` on: these
    /// first, and none of ours of the same type.
    ///
    /// They are never more than a reader takes. What has no room is left out; that is the client's
    /// certificate first, because it is written last.
    pub fn encode<'v>(&self, passed: &(impl Iterator<Item = Value<'v>> + Clone)) -> Vec<u8> {
        let mut writer = self.begin();
        if self.checksum {
            writer.append_checksum();
        }
        // A checksum is that of another header.
        let is_passed = |value: &Value<'_>| ![TYPE_CRC32C, TYPE_NOOP].contains(&value.kind);
        for Value { kind, bytes, .. } in passed.clone().filter(is_passed) {
            writer.append(kind, bytes);
        }
        let is_ours = |kind| passed.clone().filter(is_passed).all(|value| value.kind != kind);
        let resumed = self.resumed.map(|resumed| [u8::from(resumed)]);
        for (kind, fact) in [
            (TYPE_UNIQUE_ID, self.unique_id),
            (TYPE_ALPN, self.alpn),
            (TYPE_AUTHORITY, self.server_name.map(str::as_bytes)),
            (TYPE_LANE, self.lane.map(u16::to_be_bytes).as_ref().map(<[u8; 2]>::as_slice)),
            (TYPE_RESUMED, resumed.as_ref().map(<[u8; 1]>::as_slice)),
        ] {
            if let Some(fact) = fact.filter(|_| is_ours(kind)) {
                writer.append(kind, fact);
            }
        }
        if let Some(tls) = self.tls.filter(|_| is_ours(TYPE_SSL)) {
            tls.append_to(&mut writer);
        }
        writer.finish()
    }

    /// What stands before all values.
    fn begin(&self) -> Writer {
        let Some((client, local)) = self.addresses else { return Writer::new(UNSPECIFIED, &[]) };
        let [client_port, local_port] = [client, local].map(|each| each.port().to_be_bytes());
        match Ips::of(client, local) {
            Ips::V4(client, local) => Writer::new(
                TCP_OVER_IPV4,
                &[&client.octets(), &local.octets(), &client_port, &local_port],
            ),
            Ips::V6(client, local) => Writer::new(
                TCP_OVER_IPV6,
                &[&client.octets(), &local.octets(), &client_port, &local_port],
            ),
        }
    }
}

impl<'a> Tls<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Option<Self>, Malformed> {
        let [client, verify @ ..] = reader.array::<5>()?;
        let mut tls = Self::default();
        let mut certificate = ClientCertificate {
            is_of_session_only: client & CERTIFICATE_IN_CONNECTION == 0,
            is_verified: u32::from_be_bytes(verify) == VERIFIED,
            ..ClientCertificate::default()
        };
        while let Some(Value { kind, bytes, .. }) = reader.value()? {
            match kind {
                SUBTYPE_CIPHER => tls.suite = Some(text(bytes)?),
                SUBTYPE_CLIENT_CERTIFICATE => certificate.der = Some(bytes),
                SUBTYPE_COMMON_NAME => certificate.common_name = Some(text(bytes)?),
                SUBTYPE_GROUP => tls.group = Some(text(bytes)?),
                SUBTYPE_KEY_ALGORITHM => tls.key = Some(text(bytes)?),
                SUBTYPE_SIGNATURE_ALGORITHM => tls.signature = Some(text(bytes)?),
                SUBTYPE_SIGNATURE_SCHEME => tls.scheme = Some(text(bytes)?),
                SUBTYPE_VERSION => tls.version = Some(text(bytes)?),
                _ => {}
            }
        }
        tls.client = (client & CERTIFICATE_IN_SESSION != 0).then_some(certificate);
        Ok((client & CLIENT_SPOKE_TLS != 0).then_some(tls))
    }

    fn append_to(&self, writer: &mut Writer) {
        let (flags, verify) = match self.client {
            None => (CLIENT_SPOKE_TLS, NOT_VERIFIED),
            Some(client) => {
                let verify = if client.is_verified { VERIFIED } else { NOT_VERIFIED };
                let shown = if client.is_of_session_only { 0 } else { CERTIFICATE_IN_CONNECTION };
                (CLIENT_SPOKE_TLS | CERTIFICATE_IN_SESSION | shown, verify)
            }
        };
        let [a, b, c, d] = verify.to_be_bytes();
        let client = self.client.unwrap_or_default();
        writer.append_group(TYPE_SSL, &[flags, a, b, c, d], |writer| {
            for (kind, fact) in [
                (SUBTYPE_VERSION, self.version.map(str::as_bytes)),
                (SUBTYPE_CIPHER, self.suite.map(str::as_bytes)),
                (SUBTYPE_GROUP, self.group.map(str::as_bytes)),
                (SUBTYPE_KEY_ALGORITHM, self.key.map(str::as_bytes)),
                (SUBTYPE_SIGNATURE_ALGORITHM, self.signature.map(str::as_bytes)),
                (SUBTYPE_SIGNATURE_SCHEME, self.scheme.map(str::as_bytes)),
                (SUBTYPE_COMMON_NAME, client.common_name.map(str::as_bytes)),
                (SUBTYPE_CLIENT_CERTIFICATE, client.der),
            ] {
                if let Some(fact) = fact {
                    writer.append(kind, fact);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
