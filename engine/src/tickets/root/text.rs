//! The text form of a root: a line for the one that holds, and for each that is announced.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use crate::tickets::secret::Secret;

use super::{Announced, Epoch, ROOTS_MAX, Secrets, TicketRoot, TicketRootError, lifetime_in_range};

impl TicketRoot {
    /// Reads the text form, `sealane-ticket-root 1 <lifetime_s> <epoch> <hex>`, and such a line for
    /// each root that is announced, by their epochs.
    ///
    /// No error quotes the text: with a field too few, any word may be the secret.
    pub fn from_text(text: &str) -> Result<Self, TicketRootError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TicketRootError::TooLong);
        }
        let mut lines = text.lines().filter(|line| !line.trim_ascii().is_empty());
        let mut root = Self::from_line(lines.next().ok_or(TicketRootError::Title)?)?;
        for line in lines {
            let Self { epoch, lifetime_s, secrets, .. } = Self::from_line(line)?;
            if lifetime_s != root.lifetime_s {
                return Err(TicketRootError::Lifetimes);
            }
            let Secrets::Ratchet(secret) = secrets else { return Err(TicketRootError::Fields) };
            if epoch <= root.youngest() {
                return Err(TicketRootError::Order);
            }
            root.put(Announced { epoch, secret })?;
        }
        Ok(root)
    }

    fn from_line(line: &str) -> Result<Self, TicketRootError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(TicketRootError::TooLong);
        }
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some(TEXT_TITLE) {
            return Err(TicketRootError::Title);
        }
        if words.next().ok_or(TicketRootError::Fields)? != TEXT_VERSION {
            return Err(TicketRootError::Version);
        }
        let (Some(lifetime_s), Some(epoch), Some(hex), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(TicketRootError::Fields);
        };
        let lifetime_s = lifetime_s.parse().map_err(|_| TicketRootError::Lifetime)?;
        let epoch = epoch.parse().map_err(|_| TicketRootError::Epoch)?;
        let mut secret = Box::new(Secret::default());
        decode_hex(hex, &mut secret)?;
        Ok(Self::ratchet(Epoch(epoch), lifetime_in_range(lifetime_s)?, secret))
    }

    /// The text form, a line with its end for each root. The caller writes it to a file that only
    /// its user can read.
    ///
    /// # Errors
    /// The root is shared: its secrets are kept elsewhere.
    pub fn to_text(&self) -> Result<Zeroizing<String>, TicketRootError> {
        let Secrets::Ratchet(secret) = &self.secrets else {
            return Err(TicketRootError::SharedText);
        };
        let announced = self.announced.iter().map(|one| (one.epoch, &one.secret));
        // Reserved whole, so that no growing leaves part of a secret behind.
        let bytes = LINE_BYTES_MAX * (1 + self.announced.len());
        let mut text = Zeroizing::new(String::with_capacity(bytes));
        for (Epoch(epoch), secret) in std::iter::once((self.epoch, secret)).chain(announced) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{TEXT_TITLE} {TEXT_VERSION} {} {epoch} ", self.lifetime_s);
            for byte in secret.iter() {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn decode_hex(hex: &str, bytes: &mut Secret) -> Result<(), TicketRootError> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return Err(TicketRootError::Secret);
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Ok(())
}

fn hex_digit(digit: u8) -> Result<u8, TicketRootError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(TicketRootError::Secret),
    }
}

/// The longest text form.
pub const TEXT_BYTES_MAX: usize = ROOTS_MAX * LINE_BYTES_MAX;

/// The longest line of it.
pub(super) const LINE_BYTES_MAX: usize = 128;
pub(super) const TEXT_TITLE: &str = "sealane-ticket-root";
pub(super) const TEXT_VERSION: &str = "1";
