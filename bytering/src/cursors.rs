//! The position of each end in the stream and in its page: [`Writer`] and [`Reader`], the whole
//! protocol except the memory of the pages.
//!
//! ```text
//!   page 2                            page 0
//!   [ 17 18 19 20 13 14 15 16 ] at 21 [ .. .. .. .. .. 21 22 23 ]
//!     read ^                    ---->                        ^ written
//! ```
//! The producer goes round in one page for as long as the consumer keeps up. A page that is full of
//! unread bytes is linked to another one, at any position, and the stream goes on there. The
//! consumer leaves a page at its link, and it may be used again.

use std::ops::Range;

use crate::{header::Header, limits::Limits};

/// The producer's place.
pub(crate) struct Writer {
    limits: Limits,
    /// The page that the stream is in.
    page: u32,
    /// The position of the next byte.
    written: u32,
    /// The first position in this page that may still be unread: never more than a page behind.
    oldest: u32,
}

impl Writer {
    /// At the beginning of an empty ring's first page.
    pub(crate) fn new(limits: Limits, header: &Header) -> Self {
        header.claim_all(1);
        Self { limits, page: 0, written: 0, oldest: 0 }
    }

    /// The page that the stream is in.
    pub(crate) fn page(&self) -> usize {
        self.page as usize
    }

    /// The places in the page that may be written without a gap; none: it is full.
    pub(crate) fn room(&mut self, header: &Header) -> Range<usize> {
        if self.free() == 0 {
            // Only now is a look at the consumer's cache line worth its price.
            self.look(header);
        }
        self.known_room()
    }

    /// Bytes that may be written now in all pages: at most the size of an empty ring, even if the
    /// header claims more.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn room_in_all(&mut self, header: &Header) -> usize {
        self.look(header);
        let unused = (header.unused() & self.other_pages()).count_ones() as usize;
        self.free() as usize + unused * self.limits.page_bytes()
    }

    /// Pages where the stream may go on, a bit each: not the page that it is in, even if the header
    /// claims that this one is unused.
    pub(crate) fn other_pages(&self) -> u32 {
        self.limits.page_bits() & !(1 << self.page)
    }

    /// Bytes that may be written in this page, without a look at the consumer.
    #[cfg(not(loom))]
    pub(crate) fn known_room_in_page(&self) -> usize {
        self.free() as usize
    }

    /// The first `len` bytes of [`room`](Self::room), at most all, are written, and the consumer
    /// may read them.
    pub(crate) fn commit(&mut self, header: &Header, len: usize) {
        if self.advance(len) > 0 {
            self.publish(header);
        }
    }

    /// The same, but the consumer does not know of them before [`publish`](Self::publish); how
    /// many.
    pub(crate) fn advance(&mut self, len: usize) -> usize {
        let len = clamped(len, self.known_room().len());
        self.written = self.written.wrapping_add(len);
        len as usize
    }

    /// The consumer may read everything that was written.
    pub(crate) fn publish(&self, header: &Header) {
        header.publish_written(self.written);
    }

    /// The stream goes on in `next`, which the producer has claimed.
    pub(crate) fn turn(&mut self, header: &Header, next: u32) {
        header.link(self.page, self.written, next);
        self.page = next;
        self.oldest = self.written;
    }

    /// Updates the position of the consumer.
    fn look(&mut self, header: &Header) {
        let read = header.read();
        // Else the consumer is still in an earlier page, and has read nothing of this one.
        if self.written.wrapping_sub(read) <= self.written.wrapping_sub(self.oldest) {
            self.oldest = read;
        }
    }

    fn known_room(&self) -> Range<usize> {
        let start = self.written & (self.limits.page_span() - 1);
        let end = self.limits.page_span().min(start + self.free());
        start as usize..end as usize
    }

    fn free(&self) -> u32 {
        self.limits.page_span() - self.written.wrapping_sub(self.oldest)
    }
}

/// The consumer's place.
pub(crate) struct Reader {
    limits: Limits,
    /// The page that the next byte is in.
    page: u32,
    /// The position of the next byte.
    read: u32,
    /// Bytes before this position are in the same page.
    until: u32,
}

impl Reader {
    /// At the beginning of an empty ring's first page.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, page: 0, read: 0, until: 0 }
    }

    /// The page that the next byte is in.
    pub(crate) fn page(&self) -> usize {
        self.page as usize
    }

    /// The places in the page that may be read without a gap; none: nothing is there now.
    ///
    /// # Errors
    /// The producer broke the rules.
    pub(crate) fn unread(&mut self, header: &Header) -> Result<Range<usize>, Broken> {
        if self.read == self.until {
            self.until = self.look(header)?;
        }
        Ok(self.known_unread())
    }

    /// The first `len` bytes of [`unread`](Self::unread), at most all, are done with.
    pub(crate) fn consume(&mut self, header: &Header, len: usize) {
        let len = clamped(len, self.known_unread().len());
        if len > 0 {
            self.read = self.read.wrapping_add(len);
            header.publish_read(self.read);
            // At once, so that a producer at its cap can use the page. A broken link stays broken,
            // and the next look returns the error.
            let _ = self.follow(header);
        }
    }

    /// Bytes that are unread in all pages.
    ///
    /// # Errors
    /// More than a ring holds: the producer broke the rules.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn unread_in_all(&self, header: &Header) -> Result<usize, Broken> {
        let unread = header.written().wrapping_sub(self.read) as usize;
        if unread > self.limits.bytes_max() { Err(Broken) } else { Ok(unread) }
    }

    /// Whether everything was read that was ever written.
    pub(crate) fn is_at_end(&self, header: &Header) -> bool {
        header.producer_is_gone() && header.written() == self.read
    }

    /// The end of the next bytes in this page.
    fn look(&mut self, header: &Header) -> Result<u32, Broken> {
        // Before the links: bytes behind a link are written after it, so none that is seen here can
        // be behind a link that is not seen below.
        let written = header.written();
        self.follow(header)?;
        let written_ahead = written.wrapping_sub(self.read);
        let ahead = match self.linked(header) {
            Some((at, _)) => written_ahead.min(at.wrapping_sub(self.read)),
            None => written_ahead,
        };
        if ahead > self.limits.page_span() {
            return Err(Broken);
        }
        Ok(self.read.wrapping_add(ahead))
    }

    /// Leaves the page if the stream does so here.
    fn follow(&mut self, header: &Header) -> Result<(), Broken> {
        if let Some((at, next)) = self.linked(header)
            && at == self.read
        {
            // A peer may have written the number, and it becomes an address.
            if next as usize >= self.limits.pages_max() {
                return Err(Broken);
            }
            header.leave(1 << self.page);
            self.page = next;
        }
        Ok(())
    }

    /// The position where the stream leaves the page, and the next page. There is none in a ring of
    /// one page, even if the header claims one.
    fn linked(&self, header: &Header) -> Option<(u32, u32)> {
        if self.limits.pages_max() == 1 { None } else { header.linked(self.page) }
    }

    fn known_unread(&self) -> Range<usize> {
        let start = self.read & (self.limits.page_span() - 1);
        let end = self.limits.page_span().min(start + self.until.wrapping_sub(self.read));
        start as usize..end as usize
    }
}

/// Positions or links that no producer of this crate writes: the peer has scribbled over the shared
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// `len` as a position's distance, at most `offered`, which is never more than a page.
fn clamped(len: usize, offered: usize) -> u32 {
    u32::try_from(len.min(offered)).unwrap_or(0)
}
