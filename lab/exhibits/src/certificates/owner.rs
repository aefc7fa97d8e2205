//! The fault: one thread, the [`Owner`], that decodes and stores certificates for everybody, as
//! Erlang's `ssl_manager` did.
//!
//! ```text
//! connection --Open: chain, as PEM--> queue --> owner: decodes every certificate of it, inserts
//!            <--Reference, decoded--                   {reference, serial, issuer} into its table
//!            --Close: reference-----> queue --> owner: looks at every entry of the table
//! ```
//! A connection waits for its answer. It gets a [`Reference`] of its own: nothing is shared by two
//! connections that show the same chain. The table is hashed by the whole key, of which a close
//! knows the first third, so that it has to look at every live entry.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use sealane_lab_model::error::Error;

use crate::certificates::{decode::Decoded, generation::Encoded};

/// The way to the owner; it ends with the last of these and the last [`Reference`].
#[derive(Clone, Debug)]
pub(super) struct Owner {
    queue: SyncSender<Message>,
    counts: Arc<OwnerCounts>,
}

/// What the owner did so far. Read while it works, these are a moment old.
#[derive(Debug, Default)]
pub(super) struct OwnerCounts {
    /// Certificates decoded.
    pub(super) decoded: AtomicU64,
    /// Entries that closes looked at.
    pub(super) visited: AtomicU64,
    /// Messages taken from the queue and dealt with.
    pub(super) handled: AtomicU64,
    /// Messages put into the queue.
    pub(super) messages: AtomicU64,
    /// Most messages that waited at once, without the one that is dealt with.
    pub(super) waiting_max: AtomicU64,
    /// Entries in the table.
    pub(super) entries: AtomicU64,
    waiting: AtomicU64,
}

/// A connection's claim on its entries, which it gives up when dropped.
#[derive(Debug)]
pub(super) struct Reference {
    number: u64,
    owner: Owner,
}

impl OwnerCounts {
    /// Whether every message that was sent is dealt with.
    pub(super) fn is_idle(&self) -> bool {
        self.handled.load(Relaxed) == self.messages.load(Relaxed)
    }
}

impl Owner {
    /// Starts the thread. It sleeps for `cost` over each chain, as if decoding took so long.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(super) fn start(cost: Duration) -> Result<(Self, JoinHandle<()>), Error> {
        let (queue, messages) = mpsc::sync_channel(QUEUE_MAX);
        let counts = Arc::new(OwnerCounts::default());
        let table = Table::new(cost, Arc::clone(&counts));
        let thread = thread::Builder::new().name("owner".into());
        let thread = thread.spawn(move || table.serve(&messages));
        Ok((Self { queue, counts }, thread.map_err(Error::io("start the owner"))?))
    }

    /// The owner's work for so many handshakes one after the other, each with its close, in the
    /// calling thread: what messages allocate depends on who waits for whom. Returns how many
    /// certificates were decoded.
    ///
    /// # Errors
    /// A certificate of the chain is none.
    pub(super) fn work(chain: &Encoded, handshakes: u64) -> Result<u64, Error> {
        let mut table = Table::new(Duration::ZERO, Arc::default());
        for _ in 0..handshakes {
            table.open(chain)?;
            table.close(table.opened);
        }
        Ok(table.counts.decoded.load(Relaxed))
    }

    /// Asks for a chain, and waits for it.
    ///
    /// # Errors
    /// A certificate of it is none, or the owner does not answer.
    pub(super) fn open(
        &self,
        chain: &Arc<Encoded>,
    ) -> Result<(Reference, Vec<Arc<Decoded>>), Error> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(Message::Open { chain: Arc::clone(chain), answer })?;
        let silent = |_| Error::Check("the owner does not answer".into());
        let Answer { reference, chain } = answered.recv_timeout(ANSWER_TIME_MAX).map_err(silent)?;
        let reference = Reference { number: reference, owner: self.clone() };
        Ok((reference, chain?))
    }

    /// What it did so far.
    pub(super) fn counts(&self) -> &OwnerCounts {
        &self.counts
    }

    fn send(&self, message: Message) -> Result<(), Error> {
        let OwnerCounts { messages, waiting, waiting_max, .. } = &*self.counts;
        messages.fetch_add(1, Relaxed);
        let before_it = waiting.fetch_add(1, Relaxed);
        waiting_max.fetch_max(before_it + 1, Relaxed);
        self.queue.send(message).map_err(|_| Error::Check("the owner has ended".into()))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // An owner that has ended has no entries either.
        let _ = self.owner.send(Message::Close { reference: self.number });
    }
}

enum Message {
    Close { reference: u64 },
    Open { chain: Arc<Encoded>, answer: SyncSender<Answer> },
}

struct Answer {
    reference: u64,
    chain: Result<Vec<Arc<Decoded>>, Error>,
}

/// What the owner's thread alone has.
struct Table {
    cost: Duration,
    counts: Arc<OwnerCounts>,
    entries: HashMap<EntryKey, Arc<Decoded>>,
    opened: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct EntryKey {
    reference: u64,
    serial: Box<[u8]>,
    issuer: Box<[u8]>,
}

impl Table {
    fn new(cost: Duration, counts: Arc<OwnerCounts>) -> Self {
        Self { cost, counts, entries: HashMap::new(), opened: 0 }
    }

    fn serve(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            self.counts.waiting.fetch_sub(1, Relaxed);
            match message {
                Message::Close { reference } => self.close(reference),
                Message::Open { chain, answer } => {
                    let chain = self.open(&chain);
                    let reference = self.opened;
                    // Whoever has stopped waiting has no use for it.
                    let _ = answer.send(Answer { reference, chain });
                }
            }
            self.counts.entries.store(self.entries.len() as u64, Relaxed);
            self.counts.handled.fetch_add(1, Relaxed);
        }
    }

    /// Under a new reference, the number of those opened so far.
    fn open(&mut self, encoded: &Encoded) -> Result<Vec<Arc<Decoded>>, Error> {
        self.opened += 1;
        if !self.cost.is_zero() {
            thread::sleep(self.cost);
        }
        let mut chain = Vec::with_capacity(encoded.chain.len());
        for decoded in Decoded::chain(&encoded.text)? {
            let decoded = Arc::new(decoded);
            self.counts.decoded.fetch_add(1, Relaxed);
            let (serial, issuer) = (decoded.serial.clone(), decoded.issuer.clone());
            let key = EntryKey { reference: self.opened, serial, issuer };
            self.entries.insert(key, Arc::clone(&decoded));
            chain.push(decoded);
        }
        Ok(chain)
    }

    fn close(&mut self, reference: u64) {
        let mut visited = 0;
        self.entries.retain(|key, _| {
            visited += 1;
            key.reference != reference
        });
        self.counts.visited.fetch_add(visited, Relaxed);
    }
}

/// Whoever finds the queue full waits for room; that is more than connections ever wait here.
const QUEUE_MAX: usize = 4_096;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{
        generation::{self, Generation},
        names,
    };

    #[test]
    fn a_close_looks_at_every_live_entry_and_frees_its_own() {
        let folder = tempfile::tempdir().unwrap();
        generation::write(folder.path(), &names::numbered(1)).unwrap();
        let generation = Generation::first(folder.path()).unwrap();
        let chain = generation.find(generation.names().next().unwrap()).unwrap();
        let (owner, thread) = Owner::start(Duration::ZERO).unwrap();
        // Ten connections that all show the same chain share nothing.
        let open: Vec<_> = (0..10).map(|_| owner.open(chain).unwrap()).collect();
        let counts = Arc::clone(&owner.counts);
        let read = |count: &AtomicU64| count.load(Relaxed);
        assert_eq!(read(&counts.decoded), 30);
        assert!(open.iter().all(|(_, decoded)| decoded.len() == 3));
        drop((open, owner));
        thread.join().unwrap();
        assert_eq!(read(&counts.visited), (1..=10).map(|live| 3 * live).sum::<u64>());
        assert_eq!((read(&counts.entries), read(&counts.messages)), (0, 20));
        assert_eq!(read(&counts.handled), 20);
    }
}
