//! What an event is about, in the 64 bits that epoll carries.

/// A connection (by slot and generation of the slot), a listener, or the bell of the mailbox or of
/// the service.
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
    Listener(usize),
    /// The service's bell: there may be orders.
    Orders,
}

const KIND_SHIFT: u32 = 62;
const ATTACHED: u64 = 1 << 61;
const ATTACHMENT_SHIFT: u32 = 53;
const ATTACHMENT_MASK: u64 = 0xff << ATTACHMENT_SHIFT;
const GENERATION_SHIFT: u32 = 32;
const GENERATIONS: u32 = 1 << 21;
const SLOT_MASK: u64 = (1 << 32) - 1;

impl Token {
    pub(crate) const BELL: Self = Self(2 << KIND_SHIFT);
    pub(crate) const ORDERS: Self = Self(3 << KIND_SHIFT);

    pub(crate) fn connection(slot: usize, generation: u32) -> Self {
        let generation = u64::from(generation % GENERATIONS) << GENERATION_SHIFT;
        Self(generation | (slot as u64 & SLOT_MASK))
    }

    pub(crate) fn listener(index: usize) -> Self {
        Self(1 << KIND_SHIFT | index as u64)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The same connection's attached socket of this number.
    pub(crate) fn attached(self, attachment: u8) -> Self {
        Self(self.client().0 | ATTACHED | u64::from(attachment) << ATTACHMENT_SHIFT)
    }

    /// The same connection's client socket.
    pub(crate) fn client(self) -> Self {
        Self(self.0 & !(ATTACHED | ATTACHMENT_MASK))
    }

    fn attachment(self) -> Option<u8> {
        let number = (self.0 & ATTACHMENT_MASK) >> ATTACHMENT_SHIFT;
        (self.0 & ATTACHED != 0).then_some(number.to_le_bytes()[0])
    }

    /// The slot of a connection, the number of a listener.
    pub(crate) fn slot(self) -> usize {
        // 32 bits always fit on the 64-bit targets that Sealane supports.
        (self.0 & SLOT_MASK) as usize
    }

    pub(crate) fn source(self) -> Source {
        let index = self.slot();
        match self.0 >> KIND_SHIFT {
            0 => Source::Connection { slot: index, attachment: self.attachment() },
            1 => Source::Listener(index),
            2 => Source::Bell,
            _ => Source::Orders,
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
        assert_ne!(attached, attached.attached(0), "the connection's next attached socket");
        assert_eq!(Token::listener(3).source(), Source::Listener(3));
        assert_eq!(Token::BELL.source(), Source::Bell);
        assert_eq!(Token::ORDERS.source(), Source::Orders);
        assert_eq!(Token::connection(u32::MAX as usize, u32::MAX).bits() >> ATTACHMENT_SHIFT, 0);
    }
}
