//! The secret that ticket keys come from: its own and one epoch at a time, with those that take its
//! place and a text form, or shared by whoever has it.

use std::{fmt, fmt::Write as _, time::Duration};

use hkdf::HkdfExtract;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::{policy::PolicyDigest, tickets::UnixSeconds};

/// The secret of one epoch; those of later epochs follow from it, those of earlier ones do not. Or
/// secrets that are [shared](Self::shared), from which the keys of any epoch follow.
///
/// Others may be [announced](Self::announce), each to hold from an epoch on: the keys of an epoch
/// come from the youngest one that holds by then. Whoever has the same ones changes to the same key
/// at the same instant.
///
/// Whoever holds it opens every ticket of its epoch and of all that come. It is zeroed when it is
/// dropped or advanced; only the hash function's working copies on the stack are left to be
/// overwritten by later calls.
#[derive(Clone)]
pub struct TicketRoot {
    epoch: Epoch,
    lifetime_s: u32,
    secrets: Secrets,
    /// By the epochs from which they hold, which are after the root's own.
    announced: Vec<Announced>,
}

/// A secret that holds from a later epoch on.
#[derive(Clone)]
struct Announced {
    epoch: Epoch,
    secret: Box<Secret>,
}

/// Boxed so that moving the root leaves no copy behind.
#[derive(Clone)]
enum Secrets {
    /// The secret of the root's epoch.
    Ratchet(Box<Secret>),
    /// What was extracted from each shared secret; the root's epoch is the first.
    Shared(Box<[Secret]>),
}

impl TicketRoot {
    /// A new root for the epoch of `now`, from 32 bytes of `random`.
    pub fn generate(
        lifetime: Duration,
        now: UnixSeconds,
        mut random: impl FnMut(&mut [u8]),
    ) -> Result<Self, TicketRootError> {
        let lifetime_s = lifetime_in_range(lifetime.as_secs())?;
        if lifetime.subsec_nanos() != 0 {
            return Err(TicketRootError::Lifetime);
        }
        let mut secret = Box::new(Secret::default());
        random(secret.as_mut_slice());
        Ok(Self::ratchet(epoch_at(now, lifetime_s), lifetime_s, secret))
    }

    /// A root of `secrets` that somebody else keeps and gives to every process that is to open
    /// the others' tickets. Tickets are sealed with the first and open with any, so that a new one
    /// is put before the old ones, which are dropped one or two lifetimes later.
    ///
    /// It does not advance: whoever learns one of the secrets opens every ticket ever sealed with
    /// it. So replace them often. They are random bytes; the caller zeroes its own copy.
    ///
    /// # Errors
    /// There is no secret, or more than [`SHARED_KEYS_MAX`], or `lifetime_s` is out of range.
    pub fn shared(secrets: &[[u8; 48]], lifetime_s: u32) -> Result<Self, TicketRootError> {
        if !(1..=SHARED_KEYS_MAX).contains(&secrets.len()) {
            return Err(TicketRootError::SharedCount { count: secrets.len() });
        }
        if !(1..=LIFETIME_S_MAX).contains(&lifetime_s) {
            return Err(TicketRootError::SharedLifetime { lifetime_s });
        }
        let secrets = Secrets::Shared(secrets.iter().map(extract).collect());
        Ok(Self { epoch: Epoch(0), lifetime_s, secrets, announced: Vec::new() })
    }

    fn ratchet(epoch: Epoch, lifetime_s: u32, secret: Box<Secret>) -> Self {
        Self { epoch, lifetime_s, secrets: Secrets::Ratchet(secret), announced: Vec::new() }
    }

    /// Reads the text form, `sealane-ticket-root 1 <lifetime_s> <epoch> <hex>`, and such a line for
    /// each root that is announced, by their epochs.
    ///
    /// No error quotes what was read: with a field too few, any word may be the secret.
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

    /// The text form, a line with its end for each root; the caller writes it where only its user
    /// can read.
    ///
    /// # Errors
    /// The root is shared: who gave its secrets keeps them.
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

    /// Has a new root, from 32 bytes of `random`, hold from `epoch` on, in the place of those that
    /// were to hold from then or later. Until all who share this root have the new one as well, it
    /// should not hold.
    ///
    /// # Errors
    /// The epoch is not after this root's, there are [`ROOTS_MAX`], or the root is
    /// [shared](Self::shared).
    pub fn announce(
        &mut self,
        epoch: Epoch,
        mut random: impl FnMut(&mut [u8]),
    ) -> Result<(), TicketRootError> {
        if matches!(self.secrets, Secrets::Shared(_)) {
            return Err(TicketRootError::SharedText);
        }
        if epoch <= self.epoch {
            return Err(TicketRootError::Order);
        }
        let mut secret = Box::new(Secret::default());
        random(secret.as_mut_slice());
        self.announced.retain(|one| one.epoch < epoch);
        self.put(Announced { epoch, secret })
    }

    fn put(&mut self, announced: Announced) -> Result<(), TicketRootError> {
        if self.announced.len() + 1 >= ROOTS_MAX {
            return Err(TicketRootError::Roots);
        }
        self.announced.push(announced);
        Ok(())
    }

    fn youngest(&self) -> Epoch {
        self.announced.last().map_or(self.epoch, |one| one.epoch)
    }

    /// From when on each announced root holds, the next one first.
    pub fn announced(&self) -> impl Iterator<Item = Epoch> {
        self.announced.iter().map(|one| one.epoch)
    }

    /// Whether both give the same keys from the epoch on that both have.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let from = self.epoch.max(other.epoch);
        let text = |root: &Self| {
            let mut root = root.clone();
            root.advance_to(from).and_then(|()| root.to_text()).ok()
        };
        self.lifetime_s == other.lifetime_s
            && text(self).is_some_and(|own| Some(own) == text(other))
    }

    /// The epoch whose secret this is: the oldest one whose tickets it can open, which is the
    /// first of all for a shared root.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch of a time.
    pub fn epoch_at(&self, now: UnixSeconds) -> Epoch {
        epoch_at(now, self.lifetime_s)
    }

    /// The oldest epoch whose tickets are accepted at a time: what to [`advance_to`], and no
    /// further, before the root is stored, or a restart loses the tickets of the last epoch.
    ///
    /// [`advance_to`]: Self::advance_to
    pub fn oldest_accepted_at(&self, now: UnixSeconds) -> Epoch {
        self.epoch_at(now).previous()
    }

    /// When the epoch of a time ends.
    pub fn epoch_end(&self, now: UnixSeconds) -> UnixSeconds {
        epoch_end(now, self.lifetime_s)
    }

    /// How long an epoch lasts.
    pub fn lifetime_s(&self) -> u32 {
        self.lifetime_s
    }

    /// Replaces the secret by that of a later epoch and erases it, and with it those of roots that
    /// another has taken the place of by then. An epoch that is not later changes nothing, and nor
    /// does one that is more than [`RATCHET_STEPS_MAX`] ahead. A shared root never changes.
    pub fn advance_to(&mut self, epoch: Epoch) -> Result<(), TicketRootError> {
        let Secrets::Ratchet(secret) = &mut self.secrets else { return Ok(()) };
        let over = self.announced.iter().take_while(|one| one.epoch <= epoch).count();
        let holds = over.checked_sub(1).and_then(|last| self.announced.get(last));
        let from = holds.map_or(self.epoch, |one| one.epoch);
        let steps = epoch.0.saturating_sub(from.0);
        if steps > RATCHET_STEPS_MAX {
            return Err(TicketRootError::ClockAhead { root: self.epoch, clock: epoch });
        }
        if let Some(holds) = self.announced.drain(..over).next_back() {
            (self.epoch, *secret) = (holds.epoch, holds.secret);
        }
        for _ in 0..steps {
            let next = derive(secret, LABEL_NEXT, &[]);
            secret.copy_from_slice(next.as_slice());
            self.epoch = self.epoch.next();
        }
        Ok(())
    }

    /// How many secrets there are to seal with, of which the first does, and to open with.
    pub(super) fn secrets(&self) -> usize {
        match &self.secrets {
            Secrets::Ratchet(_) => 1,
            Secrets::Shared(secrets) => secrets.len(),
        }
    }

    /// The key of the secret with this number for the tickets of an epoch and a policy; none if
    /// its root is erased. A later epoch's is derived without advancing this root.
    pub(super) fn key(
        &self,
        epoch: Epoch,
        number: usize,
        policy: &PolicyDigest,
    ) -> Result<Option<Secret>, TicketRootError> {
        let secret = match &self.secrets {
            Secrets::Ratchet(secret) => secret,
            Secrets::Shared(secrets) => {
                let secret = secrets.get(number);
                return Ok(secret.map(|secret| derive(secret, &epoch.0.to_be_bytes(), &policy.0)));
            }
        };
        if epoch < self.epoch {
            return Ok(None);
        }
        if epoch == self.epoch {
            return Ok(Some(derive(secret, LABEL_KEY, &policy.0)));
        }
        let mut ahead = self.clone();
        ahead.advance_to(epoch)?;
        ahead.key(epoch, number, policy)
    }
}

impl fmt::Debug for TicketRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketRoot")
            .field("epoch", &self.epoch)
            .field("lifetime_s", &self.lifetime_s)
            .finish_non_exhaustive()
    }
}

/// A span of one lifetime, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The one before; before the first there is none.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The one after; after the last there is none.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What is wrong with a ticket root, or with the clock that it is used under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketRootError {
    /// The machine's clock is too far ahead of the root: a wrong clock, or a root long unused.
    #[error(
        "ticket root: it is of epoch {}, the clock asks for epoch {}, more than \
         {RATCHET_STEPS_MAX} ahead; no tickets until the clock is set right or the root is \
         replaced by a new one",
        root.0, clock.0
    )]
    ClockAhead {
        /// The root's epoch.
        root: Epoch,
        /// The epoch that the clock asks for.
        clock: Epoch,
    },
    /// The machine's clock is behind the root: a wrong clock now, or when the root was advanced.
    #[error(
        "ticket root: it is of epoch {}, the clock says epoch {}, whose keys are erased; no \
         tickets until the clock is set right or the root is replaced by a new one",
        root.0, clock.0
    )]
    ClockBehind {
        /// The root's epoch.
        root: Epoch,
        /// The clock's epoch.
        clock: Epoch,
    },
    /// The operator's text has an epoch that is no number.
    #[error("ticket root: field 4, the epoch, is not a whole number; write the root anew")]
    Epoch,
    /// The operator's text has too many or too few fields.
    #[error(
        "ticket root: expected five fields, `{TEXT_TITLE} {TEXT_VERSION} <lifetime_s> <epoch> \
         <hex>`; write the root anew"
    )]
    Fields,
    /// The operator's text has a lifetime, or the caller gave one, that is out of range.
    #[error(
        "ticket root: the lifetime (field 3) must be {LIFETIME_S_MIN} to {LIFETIME_S_MAX} whole \
         seconds"
    )]
    Lifetime,
    /// The operator's text has roots that disagree on how long an epoch lasts.
    #[error("ticket root: its lines have different lifetimes (field 3); write all of them anew")]
    Lifetimes,
    /// A root is announced for an epoch that is not after those before it.
    #[error(
        "ticket root: the epoch (field 4) of a root that is announced must be after that of the \
         root before it; put the lines in their order"
    )]
    Order,
    /// There are too many roots.
    #[error("ticket root: more than {ROOTS_MAX} roots; wait until those announced hold")]
    Roots,
    /// The caller shares no secret, or too many.
    #[error("ticket root: {count} shared secrets; give 1 to {SHARED_KEYS_MAX}, the newest first")]
    SharedCount {
        /// Secrets given.
        count: usize,
    },
    /// The caller's lifetime for a shared root is out of range.
    #[error("ticket root: a lifetime of {lifetime_s} s; it must be 1 to {LIFETIME_S_MAX} s")]
    SharedLifetime {
        /// What was given.
        lifetime_s: u32,
    },
    /// The text form of a root whose secrets somebody else keeps: a fault of the caller.
    #[error("ticket root: a shared one has no text form; keep its secrets where they came from")]
    SharedText,
    /// The operator's text has a secret that is not 64 hexadecimal digits.
    #[error("ticket root: field 5, the secret, is not 64 hexadecimal digits; write the root anew")]
    Secret,
    /// The operator's text is something else.
    #[error("ticket root: it does not begin with `{TEXT_TITLE}`; is it another file?")]
    Title,
    /// The operator's text is longer than any root.
    #[error("ticket root: longer than {TEXT_BYTES_MAX} bytes; is it another file?")]
    TooLong,
    /// The operator's text was written by another version of the program.
    #[error("ticket root: field 2, the version, is not {TEXT_VERSION}; write the root anew")]
    Version,
}

/// 256 bits that are zeroed when dropped.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// HKDF-Extract (RFC 5869) of SHA-256 from a shared secret.
fn extract(secret: &[u8; 48]) -> Secret {
    let mut hmac = HkdfExtract::<Sha256>::new(Some(LABEL_SHARED));
    hmac.input_ikm(secret);
    let (mut block, _) = hmac.finalize();
    let extracted = Zeroizing::new(block.into());
    block.as_mut_slice().zeroize();
    extracted
}

/// HKDF-Expand (RFC 5869) of SHA-256, keyed by `secret`, to its first block.
pub(super) fn derive(secret: &[u8; 32], label: &[u8], context: &[u8]) -> Secret {
    // The first block is HMAC(secret, info | 1), which is what Extract computes with the secret as
    // its salt; unlike the library's Expand it has no length that it could refuse.
    let mut hmac = HkdfExtract::<Sha256>::new(Some(secret.as_slice()));
    hmac.input_ikm(label);
    hmac.input_ikm(context);
    hmac.input_ikm(&[1]);
    let (mut block, _) = hmac.finalize();
    let derived = Zeroizing::new(block.into());
    block.as_mut_slice().zeroize();
    derived
}

fn epoch_at(now: UnixSeconds, lifetime_s: u32) -> Epoch {
    Epoch(now.0 / u64::from(lifetime_s))
}

pub(super) fn epoch_end(now: UnixSeconds, lifetime_s: u32) -> UnixSeconds {
    UnixSeconds(epoch_at(now, lifetime_s).next().0.saturating_mul(lifetime_s.into()))
}

fn lifetime_in_range(lifetime_s: u64) -> Result<u32, TicketRootError> {
    match u32::try_from(lifetime_s) {
        Ok(lifetime_s) if (LIFETIME_S_MIN..=LIFETIME_S_MAX).contains(&lifetime_s) => Ok(lifetime_s),
        _ => Err(TicketRootError::Lifetime),
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

/// How long an epoch lasts unless the operator says otherwise: 12 h.
pub const LIFETIME_DEFAULT_S: u32 = 43_200;

/// The longest epoch: 7 days, the longest hint that RFC 8446, 4.6.1 allows.
pub const LIFETIME_S_MAX: u32 = 604_800;

/// The shortest epoch: below, clocks a few minutes apart lose tickets.
pub const LIFETIME_S_MIN: u32 = 600;

/// How many epochs a root advances at once; at 12 h each it is more than five years.
pub const RATCHET_STEPS_MAX: u64 = 4_096;

/// Secrets of a shared root: the one in use, the next, and those of the last few days.
pub const SHARED_KEYS_MAX: usize = 8;

/// Roots, at most: the one that holds and those announced.
pub const ROOTS_MAX: usize = 8;

/// The longest text form.
pub const TEXT_BYTES_MAX: usize = ROOTS_MAX * LINE_BYTES_MAX;

/// The longest line of it.
const LINE_BYTES_MAX: usize = 128;
const LABEL_KEY: &[u8] = b"sealane ticket 1 key";
const LABEL_NEXT: &[u8] = b"sealane ticket 1 next";
const LABEL_SHARED: &[u8] = b"sealane ticket 1 shared";
const TEXT_TITLE: &str = "sealane-ticket-root";
const TEXT_VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use hkdf::Hkdf;
    use proptest::prelude::*;

    use super::*;

    const POLICY: PolicyDigest = PolicyDigest([7; 32]);

    fn root_at(epoch: u64) -> TicketRoot {
        let now = UnixSeconds(epoch * u64::from(LIFETIME_DEFAULT_S));
        let lifetime = Duration::from_secs(LIFETIME_DEFAULT_S.into());
        TicketRoot::generate(lifetime, now, |bytes| bytes.fill(0xa5)).unwrap()
    }

    fn key(root: &TicketRoot, epoch: u64) -> Option<Secret> {
        root.key(Epoch(epoch), 0, &POLICY).unwrap()
    }

    #[test]
    fn derivation_is_hkdf_expand() {
        let secret = Zeroizing::new([0x5a; 32]);
        let mut expected = [0; 32];
        let hkdf = Hkdf::<Sha256>::from_prk(secret.as_slice()).unwrap();
        hkdf.expand_multi_info(&[LABEL_KEY, &POLICY.0], &mut expected).unwrap();
        assert_eq!(*derive(&secret, LABEL_KEY, &POLICY.0), expected);
    }

    #[test]
    fn keys_of_shared_secrets_are_hkdf() {
        let secrets = [[0x5a; 48], [0xa5; 48]];
        let root = TicketRoot::shared(&secrets, LIFETIME_DEFAULT_S).unwrap();
        for (number, secret) in secrets.iter().enumerate() {
            let mut expected = [0; 32];
            let hkdf = Hkdf::<Sha256>::new(Some(LABEL_SHARED), secret);
            hkdf.expand_multi_info(&[&10_u64.to_be_bytes(), &POLICY.0], &mut expected).unwrap();
            assert_eq!(**root.key(Epoch(10), number, &POLICY).unwrap().as_ref().unwrap(), expected);
        }
        assert!(root.key(Epoch(10), secrets.len(), &POLICY).unwrap().is_none());
    }

    #[test]
    fn an_epoch_begins_on_the_second() {
        let root = root_at(10);
        let start = 10 * u64::from(LIFETIME_DEFAULT_S);
        assert_eq!(root.epoch_at(UnixSeconds(start - 1)), Epoch(9));
        assert_eq!(root.epoch_at(UnixSeconds(start)), Epoch(10));
        assert_eq!(root.epoch_end(UnixSeconds(start)).0, start + u64::from(LIFETIME_DEFAULT_S));
        assert_eq!(root.oldest_accepted_at(UnixSeconds(0)), Epoch(0));
    }

    #[test]
    fn looking_ahead_gives_the_keys_that_advancing_gives() {
        let root = root_at(10);
        let mut advanced = root.clone();
        advanced.advance_to(Epoch(12)).unwrap();
        assert_eq!(key(&root, 12).unwrap(), key(&advanced, 12).unwrap());
        assert_eq!(root.epoch(), Epoch(10));
        let keys = [10, 11, 12].map(|epoch| key(&root, epoch).unwrap());
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        let other = root.key(Epoch(10), 0, &PolicyDigest([8; 32])).unwrap().unwrap();
        assert_ne!(other, keys[0]);
    }

    #[test]
    fn advancing_erases_and_never_goes_back() {
        let mut root = root_at(10);
        let Secrets::Ratchet(before) = root.secrets.clone() else { panic!() };
        root.advance_to(Epoch(11)).unwrap();
        assert!(matches!(&root.secrets, Secrets::Ratchet(after) if *after != before));
        assert!(key(&root, 10).is_none());
        let advanced = root.to_text().unwrap();
        root.advance_to(Epoch(10)).unwrap();
        assert_eq!(root.to_text().unwrap(), advanced);
    }

    #[test]
    fn advances_to_the_limit_and_beyond_it_changes_nothing() {
        let mut root = root_at(10);
        let before = root.to_text().unwrap();
        let beyond = Epoch(10 + RATCHET_STEPS_MAX + 1);
        assert_eq!(
            root.advance_to(beyond),
            Err(TicketRootError::ClockAhead { root: Epoch(10), clock: beyond })
        );
        assert!(root.advance_to(Epoch(u64::MAX)).is_err());
        assert_eq!(root.to_text().unwrap(), before);
        root.advance_to(Epoch(10 + RATCHET_STEPS_MAX)).unwrap();
        assert_eq!(root.epoch(), Epoch(10 + RATCHET_STEPS_MAX));
    }

    #[test]
    fn lifetimes_outside_the_range_are_refused() {
        for (lifetime_ms, good) in [
            (599_000, false),
            (600_000, true),
            (600_001, false),
            (604_800_000, true),
            (604_801_000, false),
            (u64::MAX, false),
        ] {
            let lifetime = Duration::from_millis(lifetime_ms);
            let root = TicketRoot::generate(lifetime, UnixSeconds(0), |_| ());
            assert_eq!(root.is_ok(), good, "{lifetime_ms}");
        }
    }

    #[test]
    fn text_round_trip() {
        let root = root_at(40_000);
        let text = root.to_text().unwrap();
        assert_eq!(*text, format!("sealane-ticket-root 1 43200 40000 {}\n", "a5".repeat(32)));
        let read = TicketRoot::from_text(
            &text.to_uppercase().replace("SEALANE-TICKET-ROOT", "sealane-ticket-root"),
        );
        assert_eq!(read.unwrap().to_text().unwrap(), text);
        let last = TicketRoot { epoch: Epoch(u64::MAX), lifetime_s: LIFETIME_S_MAX, ..root };
        assert!(last.to_text().unwrap().len() <= TEXT_BYTES_MAX);
        assert_eq!(
            TicketRoot::from_text(&last.to_text().unwrap()).unwrap().to_text().unwrap(),
            last.to_text().unwrap()
        );
    }

    #[test]
    fn each_fault_of_a_text_has_its_error() {
        let hex = "a5".repeat(32);
        let line = format!("sealane-ticket-root 1 43200 4 {hex}\n");
        let each = |at| format!("sealane-ticket-root 1 43200 {at} {hex}\n");
        let many: String = (1..=ROOTS_MAX as u64 + 1).map(each).collect();
        let cases = [
            (String::new(), TicketRootError::Title),
            (format!("sealane-root 1 43200 4 {hex}"), TicketRootError::Title),
            ("sealane-ticket-root".into(), TicketRootError::Fields),
            (format!("sealane-ticket-root 2 43200 4 {hex}"), TicketRootError::Version),
            (format!("sealane-ticket-root 1 43200 {hex}"), TicketRootError::Fields),
            (format!("sealane-ticket-root 1 43200 4 {hex} x"), TicketRootError::Fields),
            (format!("sealane-ticket-root 1 12h 4 {hex}"), TicketRootError::Lifetime),
            (format!("sealane-ticket-root 1 599 4 {hex}"), TicketRootError::Lifetime),
            (format!("sealane-ticket-root 1 43200 -4 {hex}"), TicketRootError::Epoch),
            (format!("sealane-ticket-root 1 43200 4 {}", &hex[1..]), TicketRootError::Secret),
            (format!("sealane-ticket-root 1 43200 4 {}g", &hex[1..]), TicketRootError::Secret),
            (format!("sealane-ticket-root 1 43200 4 {}", "é".repeat(32)), TicketRootError::Secret),
            (" ".repeat(TEXT_BYTES_MAX + 1), TicketRootError::TooLong),
            (format!("{}{line}", " ".repeat(LINE_BYTES_MAX)), TicketRootError::TooLong),
            (format!("{line}{line}"), TicketRootError::Order),
            (format!("{line}sealane-ticket-root 1 600 5 {hex}\n"), TicketRootError::Lifetimes),
            (format!("{line}\n{} x", line.trim_end()), TicketRootError::Fields),
            (many, TicketRootError::Roots),
        ];
        for (text, expected) in cases {
            let error = TicketRoot::from_text(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("a5"), "{error}");
        }
    }

    #[test]
    fn debug_hides_the_secret() {
        let shown = format!("{:?}", root_at(10));
        assert_eq!(shown, "TicketRoot { epoch: Epoch(10), lifetime_s: 43200, .. }");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(sealane-ticket-root )?\\PC{0,140}") {
            let _ = TicketRoot::from_text(&text);
        }
    }
}
