//! What an event is about, in the 64 bits that epoll carries.

/// A connection (by slot and generation of the slot), a listener, the door through which sockets
/// come, or the bell of the mailbox or of the service.
///
/// The generation of the slot tells an event for a connection that has just ended from one for the
/// connection that took its place within the same batch of events; the number of the attachment
/// does the same for the sockets that a connection attaches one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

/// What a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Bell,
    Connection {
        slot: usize,
        attachment: Option<u8>,
    },
    /// Descriptors may have come.
    Door,
    Listener(usize),
    /// The service's bell: there may be orders.
    Orders,
}

/// Names a connection of one lane, also after its end: the next one in its place has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The slot in the low 32 bits, and the generation of the slot in the others.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The id of these bits. One that was never given out names no connection.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn slot(self) -> usize {
        Token::from_bits(self.0).slot()
    }
}

/// Slots of a lane: more connections than that it never has.
pub(crate) const SLOTS_MAX: usize = (1 << ATTACHMENT_SHIFT) - 4;

const ATTACHMENT_SHIFT: u32 = 24;
const ATTACHMENT_MASK: u64 = 0xff << ATTACHMENT_SHIFT;
const GENERATION_SHIFT: u32 = 32;
const SLOT_MASK: u64 = (1 << ATTACHMENT_SHIFT) - 1;
/// What is no connection has the place of one that never is; a listener's number is its generation.
const SLOT_LISTENER: u64 = SLOT_MASK;
const SLOT_BELL: u64 = SLOT_MASK - 1;
const SLOT_ORDERS: u64 = SLOT_MASK - 2;
const SLOT_DOOR: u64 = SLOT_MASK - 3;

const _: () = assert!(SLOTS_MAX as u64 == SLOT_DOOR);

impl Token {
    pub(crate) const BELL: Self = Self(SLOT_BELL);
    pub(crate) const DOOR: Self = Self(SLOT_DOOR);
    pub(crate) const ORDERS: Self = Self(SLOT_ORDERS);

    /// A connection in `slot`, below [`SLOTS_MAX`].
    pub(crate) fn connection(slot: usize, generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION_SHIFT | (slot as u64 & SLOT_MASK))
    }

    pub(crate) fn listener(index: usize) -> Self {
        Self((index as u64) << GENERATION_SHIFT | SLOT_LISTENER)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The same connection's attached socket of this number, which is not 0.
    pub(crate) fn attached(self, attachment: u8) -> Self {
        Self(self.client().0 | u64::from(attachment) << ATTACHMENT_SHIFT)
    }

    /// The number of the attached socket behind the one of `attachment`; 0 stands for none so far.
    pub(crate) fn next_attachment(attachment: u8) -> u8 {
        attachment.checked_add(1).unwrap_or(1)
    }

    /// The same connection's client socket.
    pub(crate) fn client(self) -> Self {
        Self(self.0 & !ATTACHMENT_MASK)
    }

    fn attachment(self) -> Option<u8> {
        let [_, _, _, attachment, ..] = self.0.to_le_bytes();
        (attachment != 0).then_some(attachment)
    }

    /// The slot of a connection.
    pub(crate) fn slot(self) -> usize {
        // 24 bits fit everywhere.
        (self.0 & SLOT_MASK) as usize
    }

    pub(crate) fn source(self) -> Source {
        match self.0 & SLOT_MASK {
            SLOT_BELL => Source::Bell,
            SLOT_DOOR => Source::Door,
            // 32 bits always fit on the 64-bit targets that Sealane supports.
            SLOT_LISTENER => Source::Listener((self.0 >> GENERATION_SHIFT) as usize),
            SLOT_ORDERS => Source::Orders,
            _ => Source::Connection { slot: self.slot(), attachment: self.attachment() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_kind_slot_and_generation_apart() {
        let first = Token::connection(7, 1);
        assert_ne!(first, Token::connection(7, 2), "the slot's next tenant is another");
        let attached = first.attached(255);
        assert_eq!(attached.source(), Source::Connection { slot: 7, attachment: Some(255) });
        assert_eq!(first.source(), Source::Connection { slot: 7, attachment: None });
        assert_eq!(attached.client(), first);
        assert_ne!(attached, attached.attached(1), "the connection's next attached socket");
        assert_eq!(Token::listener(3).source(), Source::Listener(3));
        assert_eq!(Token::BELL.source(), Source::Bell);
        assert_eq!(Token::DOOR.source(), Source::Door);
        assert_eq!(Token::ORDERS.source(), Source::Orders);
        let last = Token::connection(SLOTS_MAX - 1, u32::MAX).attached(255);
        assert_eq!(
            last.source(),
            Source::Connection { slot: SLOTS_MAX - 1, attachment: Some(255) }
        );
    }

    #[test]
    fn tenants_of_a_slot_differ_until_a_whole_word_has_been_counted() {
        let first = Token::connection(7, u32::MAX - 2);
        let mut generation = u32::MAX - 2;
        for _ in 0..6 {
            generation = generation.wrapping_add(1);
            let next = Token::connection(7, generation);
            assert_ne!(next, first);
            assert_eq!(next.source(), Source::Connection { slot: 7, attachment: None });
        }
        for bit in 0..32 {
            assert_ne!(Token::connection(7, 5), Token::connection(7, 5 ^ 1 << bit), "bit {bit}");
        }
        assert_eq!(Token::connection(7, generation.wrapping_sub(6)), first);
    }

    #[test]
    fn attached_sockets_are_numbered_from_one_and_again() {
        let mut number = 0;
        let numbers: Vec<_> = (0..256)
            .map(|_| {
                number = Token::next_attachment(number);
                number
            })
            .collect();
        assert!(!numbers.contains(&0), "that would be the client's socket");
        assert_eq!((numbers[0], numbers[254], numbers[255]), (1, 255, 1));
    }

    #[test]
    fn an_id_is_two_words_of_32_bits() {
        let last = Token::connection(SLOTS_MAX - 1, u32::MAX);
        let id = ConnectionId(last.bits());
        assert_eq!((id.slot(), id.bits() >> 32), (SLOTS_MAX - 1, u32::MAX.into()));
        assert_eq!(id.bits() & u64::from(u32::MAX), SLOTS_MAX as u64 - 1);
        assert_eq!(ConnectionId::from_bits(id.bits()), id);
    }
}
