//! The two ends of a ring on the heap: [`Producer`] and [`Consumer`].

use crate::{
    cursors::{Reader, Writer},
    header::Header,
    limits::Limits,
    pages::Pages,
    primitive::{self, Arc, Byte},
};

/// An empty ring of one page, as its two ends.
#[must_use]
pub fn ring(limits: Limits) -> (Producer, Consumer) {
    let (header, pages) = (Header::new(), Pages::new(limits));
    let writer = Writer::new(limits, &header);
    let page = pages.memory(0);
    let shared = Arc::new(Shared { header, pages });
    let producer = Producer { shared: Arc::clone(&shared), writer, page, allocated: 1, reused: 0 };
    (producer, Consumer { shared, reader: Reader::new(limits), page })
}

/// The end that writes. It may move to another thread, but two threads cannot share it.
pub struct Producer {
    shared: Arc<Shared>,
    writer: Writer,
    /// The memory of the page that the writer is in.
    page: *mut Byte,
    allocated: u64,
    reused: u64,
}

// SAFETY: its pointer leads into `shared`, which both ends keep. The bytes that it may touch there
// are for the producer alone, on any thread.
unsafe impl Send for Producer {}

impl Producer {
    /// Copies the front of `bytes` into the ring and publishes it. Returns how many bytes that is.
    /// Fewer than all: the ring is at its cap, wait until the consumer has taken something.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let (at, room) = self.room();
            let part = &bytes[done..bytes.len().min(done + room)];
            if part.is_empty() {
                break;
            }
            // SAFETY: `room` begins at `at`, and the consumer does not look there before `commit`.
            unsafe { primitive::copy_in(part, at) };
            self.commit(part.len());
            done += part.len();
        }
        done
    }

    /// Room for the next bytes, to be written in place. Empty: the ring is at its cap. The bytes in
    /// it have no meaning.
    #[cfg(not(loom))]
    pub fn writable(&mut self) -> &mut [u8] {
        let (at, room) = self.room();
        // SAFETY: the room is in one page, which is initialised when allocated. The consumer does
        // not look there before `commit`, which takes `self` and so ends this borrow.
        unsafe { std::slice::from_raw_parts_mut(at, room) }
    }

    /// Publishes the first `len` bytes of [`writable`](Self::writable). More than it offered count
    /// as all of it.
    pub fn commit(&mut self, len: usize) {
        self.writer.commit(&self.shared.header, len);
    }

    /// Whether the consumer is gone. Bytes that are written now are never read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.header.consumer_is_gone()
    }

    /// Counts of the ring's memory so far.
    #[must_use]
    pub fn pages(&self) -> PageCounts {
        let live = u64::from(self.shared.pages.held().count_ones());
        let freed = self.allocated.saturating_sub(live);
        PageCounts { live, allocated: self.allocated, reused: self.reused, freed }
    }

    /// The place for the next bytes, and how many fit there.
    fn room(&mut self) -> (*mut Byte, usize) {
        let Shared { header, pages } = &*self.shared;
        let mut room = self.writer.room(header);
        if room.is_empty()
            && let Some(next) = header.claim(pages.held(), self.writer.other_pages())
        {
            if pages.held() >> next & 1 == 1 {
                self.reused += 1;
            } else {
                pages.allocate(next as usize);
                self.allocated += 1;
            }
            self.writer.turn(header, next);
            self.page = pages.memory(self.writer.page());
            room = self.writer.room(header);
        }
        // SAFETY: a room begins within its page.
        (unsafe { self.page.add(room.start) }, room.len())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.header.leave_producer();
    }
}

/// The end that reads. It may move to another thread, but two threads cannot share it.
pub struct Consumer {
    shared: Arc<Shared>,
    reader: Reader,
    /// The memory of the page that the reader is in.
    page: *mut Byte,
}

// SAFETY: as for the producer.
unsafe impl Send for Consumer {}

impl Consumer {
    /// The next bytes, in place, as far as they stand without a gap; empty: there are none now.
    #[cfg(not(loom))]
    pub fn readable(&mut self) -> &[u8] {
        let (at, unread) = self.unread();
        // SAFETY: these bytes are in one page, and the producer does not write there before
        // `consume`, which takes `self` and so ends this borrow.
        unsafe { std::slice::from_raw_parts(at, unread) }
    }

    /// The first `len` bytes of [`readable`](Self::readable) are done with; more than it gave count
    /// as all of it.
    pub fn consume(&mut self, len: usize) {
        self.reader.consume(&self.shared.header, len);
    }

    /// Copies the next bytes into the front of `into`; how many. Fewer than fit: there are no more
    /// now.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let (at, unread) = self.unread();
            let end = into.len().min(done + unread);
            let part = &mut into[done..end];
            if part.is_empty() {
                break;
            }
            // SAFETY: `unread` begins at `at`, and the producer does not write there before
            // `consume`.
            unsafe { primitive::copy_out(at, part) };
            self.consume(end - done);
            done = end;
        }
        done
    }

    /// Frees all pages of an empty ring but one: for a consumer that goes to sleep, or has found
    /// nothing for a while. A consumer that looks all the time would free the page that the next
    /// bytes need.
    ///
    /// Afterwards the consumer looks once more: a producer that looked for a page in the meantime
    /// may have found none, and wait.
    pub fn shrink(&mut self) {
        if self.unread().1 == 0 {
            self.shared.pages.shrink(&self.shared.header);
        }
    }

    /// Whether the producer is gone and everything was read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.reader.is_at_end(&self.shared.header)
    }

    /// The place of the next bytes, and how many there are without a gap.
    fn unread(&mut self) -> (*mut Byte, usize) {
        let Shared { header, pages } = &*self.shared;
        // On the heap the other end is this crate's, which breaks no rule.
        let unread = self.reader.unread(header).unwrap_or_default();
        self.page = pages.memory(self.reader.page());
        // SAFETY: unread bytes begin within their page.
        (unsafe { self.page.add(unread.start) }, unread.len())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.header.leave_consumer();
    }
}

/// Pages of a ring, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// That have memory now.
    pub live: u64,
    /// Times that one was allocated.
    pub allocated: u64,
    /// Times that the stream went on in a page that was there.
    pub reused: u64,
    /// Times that one was freed.
    pub freed: u64,
}

/// The memory that both ends keep. The last of them frees it.
struct Shared {
    header: Header,
    pages: Pages,
}
