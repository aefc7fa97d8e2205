//! Certificates and their keys as text: [`pem_text`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sealane_engine::certificates::{EncodedKey, KeyEncoding};
use zeroize::Zeroizing;

/// A chain in PEM, and behind it its key.
#[must_use]
pub fn pem_text<'d>(
    chain: impl Iterator<Item = &'d [u8]>,
    key: Option<&'d EncodedKey>,
) -> Zeroizing<Vec<u8>> {
    let key = key.map(|key| (label(key), key.der()));
    let sections: Vec<_> = chain.map(|der| ("CERTIFICATE", der)).chain(key).collect();
    // Enough for all of it: a text that grew would leave a copy of the key behind.
    let bytes = sections.iter().map(|(_, der)| der.len() * 3 / 2 + MARKS_BYTES).sum();
    let mut text = Zeroizing::new(Vec::with_capacity(bytes));
    for (label, der) in sections {
        // Into a buffer of ours: the encoder's own would keep a part of the key on the stack.
        let mut encoded = Zeroizing::new(vec![0; der.len().div_ceil(3) * 4]);
        let len = STANDARD.encode_slice(der, &mut encoded).unwrap_or_default();
        text.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
        for line in encoded[..len].chunks(LINE_BYTES) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    }
    text
}

fn label(key: &EncodedKey) -> &'static str {
    match key.encoding() {
        KeyEncoding::Pkcs1 => "RSA PRIVATE KEY",
        KeyEncoding::Pkcs8 => "PRIVATE KEY",
        KeyEncoding::Sec1 => "EC PRIVATE KEY",
    }
}

const LINE_BYTES: usize = 64;
/// The lines that begin and end a section.
const MARKS_BYTES: usize = 128;
