//! A lane's thread before its lane runs on it.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::lane::arena;
use crate::service::LaneEnd;

/// A thread that waits for its lane. The thread ends if this is dropped.
///
/// When a thread ends, glibc gives its arena to the next new thread. Blocks that the ended thread
/// handed over are still in use elsewhere, and a thread that reallocates one takes the arena's
/// lock. So a program starts the threads of its lanes before all threads that hand memory over.
#[derive(Debug)]
pub struct LaneThread {
    pub(crate) number: usize,
    handle: JoinHandle<io::Result<LaneEnd>>,
    work: SyncSender<Work>,
}

type Work = Box<dyn FnOnce() -> io::Result<LaneEnd> + Send>;

impl LaneThread {
    /// Starts the thread of lane `number`, and returns when it has its arena.
    ///
    /// The arena is grown by `memory_bytes`, at most [`ARENA_BYTES_MAX`]. With 0 the settings of
    /// the allocator stay as they are.
    ///
    /// # Errors
    /// The system has no thread.
    ///
    /// [`ARENA_BYTES_MAX`]: crate::lane::arena::ARENA_BYTES_MAX
    pub fn start(number: usize, memory_bytes: usize) -> io::Result<Self> {
        // Bounded channels hold no memory of their senders.
        let (work, works) = sync_channel::<Work>(1);
        let (grown, has_grown) = sync_channel(1);
        let handle = Builder::new().name(format!("lane-{number}")).spawn(move || {
            arena::grow(memory_bytes);
            // The thread that receives this waits for it.
            let _ = grown.send(());
            let work = works.recv().map_err(|_| io::Error::other("the lane was not started"))?;
            work()
        })?;
        // If the thread has panicked, its lane does not start.
        let _ = has_grown.recv();
        Ok(Self { number, handle, work })
    }

    /// Does `work` on the thread, which ends with it.
    pub(crate) fn run(
        self,
        work: impl FnOnce() -> io::Result<LaneEnd> + Send + 'static,
    ) -> JoinHandle<io::Result<LaneEnd>> {
        // If the thread has panicked, the handle returns that.
        let _ = self.work.send(Box::new(work));
        self.handle
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn lane_does_not_inherit_an_ended_threads_arena() {
        let lane = LaneThread::start(0, 1).unwrap();
        let handed_over = thread::spawn(block).join().unwrap();
        let (sender, own) = sync_channel(1);
        let work = move || sender.send(heap_of(&block())).map_err(io::Error::other);
        let handle = lane.run(move || work().map(|()| LaneEnd { cut: 0 }));
        assert_ne!(own.recv().unwrap(), heap_of(&handed_over));
        handle.join().unwrap().unwrap();
    }

    /// Too large for glibc's cache of freed blocks, so it lies in the thread's arena.
    fn block() -> Vec<u8> {
        Vec::with_capacity(4096)
    }

    /// The part of an arena that `block` lies in: glibc aligns each to 64 MiB.
    fn heap_of(block: &[u8]) -> usize {
        block.as_ptr().addr() >> HEAP_BITS
    }

    const HEAP_BITS: u32 = 26;
}
