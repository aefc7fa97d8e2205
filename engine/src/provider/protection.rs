//! Protection of records by AWS-LC's ciphers, with keys that are expanded while they are in use.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce as AwsNonce};
use aws_lc_rs::error::Unspecified;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter,
    MessageEncrypter, NONCE_LEN, Nonce, OutboundOpaqueMessage, OutboundPlainMessage,
    PrefixedPayload, Tls12AeadAlgorithm, Tls13AeadAlgorithm, UnsupportedOperationError,
    make_tls12_aad, make_tls13_aad,
};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion};

use super::expanded::{Aead, RecordKey};
use super::last_word::last_word;
use super::messages::{Messages, finished_len};
use crate::record::{RECORD_HEADER_LEN, RECORD_PLAIN_MAX};

impl Tls13AeadAlgorithm for Aead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Tls13Direction::new(*self, &key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        let finished_len = finished_len(*self);
        let direction = Tls13Direction { key: RecordKey::blank(*self), iv, sequence: 0 };
        let mut opener = Box::new(Tls13Opener { direction, messages: Messages::new(finished_len) });
        opener.direction.key.fill(&key);
        opener
    }

    fn key_len(&self) -> usize {
        self.algorithm().key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(secrets(*self, key, iv))
    }
}

/// One direction of a TLS 1.3 connection, under one key at a time (RFC 8446 section 5.2).
pub(crate) struct Tls13Direction {
    key: RecordKey,
    iv: Iv,
    /// The number of the next record, for callers that do not count records themselves.
    sequence: u64,
}

impl Tls13Direction {
    fn new(aead: Aead, key: &AeadKey, iv: Iv) -> Box<Self> {
        let mut direction = Box::new(Self { key: RecordKey::blank(aead), iv, sequence: 0 });
        direction.key.fill(key);
        direction
    }

    /// One without a key, so that this need never be moved.
    pub(crate) fn blank() -> Self {
        Self { key: RecordKey::blank(Aead::Aes128Gcm), iv: Iv::default(), sequence: 0 }
    }

    /// Goes on under another key, from the record of this number on.
    ///
    /// # Errors
    /// It is for a cipher of no suite.
    pub(crate) fn take_on(
        &mut self,
        (sequence, secrets): &(u64, ConnectionTrafficSecrets),
    ) -> Result<(), Error> {
        let (aead, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Aead::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Aead::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (Aead::ChaCha20Poly1305, key, iv)
            }
            _ => return Err(Error::General("keys for an unknown cipher".into())),
        };
        self.key = RecordKey::blank(aead);
        self.key.fill(key);
        self.iv = joined(iv.as_ref(), &[]);
        self.sequence = *sequence;
        Ok(())
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Encrypts `inner`, content and type of the next record, behind its `header`; returns the tag.
    ///
    /// # Errors
    /// There is no memory, or no number left.
    pub(crate) fn seal_next(
        &mut self,
        header: &[u8],
        inner: &mut [u8],
    ) -> Result<[u8; TAG_LEN], Error> {
        let nonce = nonce_of(&self.iv, self.sequence);
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        seal(&mut self.key, nonce, header, inner)
    }

    /// Decrypts the next record, which ends in its tag. Returns the length of the plaintext.
    ///
    /// # Errors
    /// The peer has not sealed it so.
    pub(crate) fn open_next(&mut self, header: &[u8], sealed: &mut [u8]) -> Result<usize, Error> {
        let nonce = nonce_of(&self.iv, self.sequence);
        self.sequence = self.sequence.checked_add(1).ok_or(Error::DecryptError)?;
        open(&mut self.key, nonce, header, sealed)
    }
}

/// The header of a record of TLS 1.3 in which `sealed_len` bytes follow: all that is shown of it,
/// and authenticated.
pub(crate) fn tls13_header(sealed_len: usize) -> [u8; RECORD_HEADER_LEN] {
    make_tls13_aad(sealed_len)
}

impl MessageEncrypter for Tls13Direction {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let sealed_len = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(sealed_len);
        match last_word(&message) {
            Some(alert) => payload.extend_from_slice(&alert),
            None => payload.extend_from_chunks(&message.payload),
        }
        payload.extend_from_slice(&[message.typ.into()]);
        let nonce = nonce_of(&self.iv, sequence);
        let aad = make_tls13_aad(sealed_len);
        let tag = seal(&mut self.key, nonce, &aad, payload.as_mut())?;
        payload.extend_from_slice(&tag);
        // The type and version that TLS 1.3 shows (section 5.1).
        let (shown, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
        Ok(OutboundOpaqueMessage::new(shown, version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + CONTENT_TYPE_LEN + TAG_LEN
    }
}

/// Reader of TLS 1.3 records for rustls. It finds the faults for which rustls sends a wrong alert.
struct Tls13Opener {
    direction: Tls13Direction,
    messages: Messages,
}

impl MessageDecrypter for Tls13Opener {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        // rustls handles unencrypted records that are allowed under keys before this call.
        if message.typ != ContentType::ApplicationData {
            return Err(unexpected(message.typ));
        }
        let Self { direction, messages } = self;
        let aad = make_tls13_aad(message.payload.len());
        let nonce = nonce_of(&direction.iv, sequence);
        let plain_len = open(&mut direction.key, nonce, &aad, &mut message.payload)?;
        message.payload.truncate(plain_len);
        let opened = message.into_tls13_unpadded_message()?;
        match opened.typ {
            ContentType::ApplicationData => {}
            ContentType::Alert if !opened.payload.is_empty() => {}
            ContentType::Handshake if !opened.payload.is_empty() => {
                messages.take(opened.payload)?;
            }
            // RFC 8446 sections 5 and 5.4.
            typ => return Err(unexpected(typ)),
        }
        Ok(opened)
    }
}

impl Tls12AeadAlgorithm for Aead {
    fn encrypter(&self, key: AeadKey, iv: &[u8], explicit: &[u8]) -> Box<dyn MessageEncrypter> {
        Tls12Direction::new(*self, &key, iv, explicit)
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        Tls12Direction::new(*self, &key, iv, &[])
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        let explicit_nonce_len = explicit_len(*self);
        KeyBlockShape {
            enc_key_len: self.algorithm().key_len(),
            fixed_iv_len: NONCE_LEN - explicit_nonce_len,
            explicit_nonce_len,
        }
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(secrets(*self, key, joined(iv, explicit)))
    }
}

/// One direction of a TLS 1.2 connection: AES-GCM writes a part of each nonce in front of the
/// record (RFC 5288 section 3), ChaCha20-Poly1305 none (RFC 7905 section 2).
struct Tls12Direction {
    key: RecordKey,
    /// The start of each nonce, and the number from which our own records are counted.
    iv: Iv,
}

impl Tls12Direction {
    fn new(aead: Aead, key: &AeadKey, iv: &[u8], explicit: &[u8]) -> Box<Self> {
        let mut direction =
            Box::new(Self { key: RecordKey::blank(aead), iv: joined(iv, explicit) });
        direction.key.fill(key);
        direction
    }
}

impl MessageEncrypter for Tls12Direction {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let plain_len = message.payload.len();
        let explicit_len = explicit_len(self.key.aead());
        let nonce = nonce_of(&self.iv, sequence);
        let (_, explicit) = nonce.split_at(NONCE_LEN - explicit_len);
        let mut payload = PrefixedPayload::with_capacity(self.encrypted_payload_len(plain_len));
        payload.extend_from_slice(explicit);
        match last_word(&message) {
            Some(alert) => payload.extend_from_slice(&alert),
            None => payload.extend_from_chunks(&message.payload),
        }
        let aad = make_tls12_aad(sequence, message.typ, message.version, plain_len);
        let (_, plain) = payload.as_mut().split_at_mut(explicit_len);
        let tag = seal(&mut self.key, nonce, &aad, plain)?;
        payload.extend_from_slice(&tag);
        Ok(OutboundOpaqueMessage::new(message.typ, message.version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        explicit_len(self.key.aead()) + payload_len + TAG_LEN
    }
}

impl MessageDecrypter for Tls12Direction {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let explicit_len = explicit_len(self.key.aead());
        let overhead = explicit_len + TAG_LEN;
        let plain_len = message.payload.len().checked_sub(overhead).ok_or(Error::DecryptError)?;
        let aad = make_tls12_aad(sequence, message.typ, message.version, plain_len);
        let (explicit, sealed) = message.payload.split_at_mut(explicit_len);
        let mut nonce = nonce_of(&self.iv, if explicit.is_empty() { sequence } else { 0 });
        let (_, end) = nonce.split_at_mut(NONCE_LEN - explicit_len);
        end.copy_from_slice(explicit);
        open(&mut self.key, nonce, &aad, sealed)?;
        if plain_len > RECORD_PLAIN_MAX {
            return Err(Error::PeerSentOversizedRecord);
        }
        // RFC 5246 section 6; heartbeats are such.
        if let typ @ (ContentType::Heartbeat | ContentType::Unknown(_)) = message.typ {
            return Err(unexpected(typ));
        }
        Ok(message.into_plain_message_range(explicit_len..explicit_len + plain_len))
    }
}

/// A record that no peer may send.
fn unexpected(got_type: ContentType) -> Error {
    let expect_types = vec![ContentType::ApplicationData];
    Error::InappropriateMessage { expect_types, got_type }
}

/// Bytes of a nonce that TLS 1.2 writes in front of a record.
fn explicit_len(aead: Aead) -> usize {
    match aead {
        Aead::Aes128Gcm | Aead::Aes256Gcm => 8,
        Aead::ChaCha20Poly1305 => 0,
    }
}

/// The nonce of no record yet: its fixed part, and the part that each record shows.
fn joined(iv: &[u8], explicit: &[u8]) -> Iv {
    let mut bytes = [0; NONCE_LEN];
    bytes.iter_mut().zip(iv.iter().chain(explicit)).for_each(|(to, from)| *to = *from);
    Iv::new(bytes)
}

fn nonce_of(iv: &Iv, sequence: u64) -> [u8; NONCE_LEN] {
    Nonce::new(iv, sequence).0
}

/// Encrypts `plain` in place; returns the tag.
fn seal(
    key: &mut RecordKey,
    nonce: [u8; NONCE_LEN],
    aad: &[u8],
    plain: &mut [u8],
) -> Result<[u8; TAG_LEN], Error> {
    let sealed = key.expanded(|key: &LessSafeKey| {
        let nonce = AwsNonce::assume_unique_for_key(nonce);
        key.seal_in_place_separate_tag(nonce, Aad::from(aad), plain)
    });
    let tag = sealed.and_then(|tag| tag).map_err(|Unspecified| Error::EncryptError)?;
    tag.as_ref().try_into().map_err(|_| Error::EncryptError)
}

/// Decrypts `sealed`, which ends in its tag. Returns the length of the plaintext.
fn open(
    key: &mut RecordKey,
    nonce: [u8; NONCE_LEN],
    aad: &[u8],
    sealed: &mut [u8],
) -> Result<usize, Error> {
    let opened = key.expanded(|key: &LessSafeKey| {
        let nonce = AwsNonce::assume_unique_for_key(nonce);
        key.open_in_place(nonce, Aad::from(aad), sealed).map(|plain| plain.len())
    });
    opened.and_then(|len| len).map_err(|Unspecified| Error::DecryptError)
}

fn secrets(aead: Aead, key: AeadKey, iv: Iv) -> ConnectionTrafficSecrets {
    match aead {
        Aead::Aes128Gcm => ConnectionTrafficSecrets::Aes128Gcm { key, iv },
        Aead::Aes256Gcm => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
        Aead::ChaCha20Poly1305 => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
    }
}

/// The length of the type behind a record's content under TLS 1.3.
pub(crate) const CONTENT_TYPE_LEN: usize = 1;
/// Bytes of the tag of every cipher that TLS protects records with here.
pub(crate) const TAG_LEN: usize = 16;

#[cfg(test)]
mod tests;
