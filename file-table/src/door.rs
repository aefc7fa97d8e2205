//! The door: how a descriptor of one table becomes one of another, by SCM_RIGHTS (unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    send, sendmsg, socketpair,
};

use crate::descriptor::Descriptor;
use crate::table::{FileTable, block_signals, close_unowned, make_own};

/// Makes a door: the giver's end, and the end of the thread that takes, on its way there.
///
/// # Errors
/// The kernel has no descriptor or memory left.
pub fn door() -> io::Result<(Giver, Entrance)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, inside) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Giver { socket, parts: 0 }, Entrance { socket: inside }))
}

/// The end of a door through which descriptors are given.
#[derive(Debug)]
pub struct Giver {
    socket: OwnedFd,
    /// That were sent.
    parts: u64,
}

impl Giver {
    /// Gives copies of `descriptors`, as the parcel of this number, and waits until all have been
    /// taken. Of one that fails the taker may have a part.
    ///
    /// # Errors
    /// [`GiveError`]; nothing is on its way any more, unless it is [`GiveError::Silent`].
    pub fn give(&mut self, parcel: u64, descriptors: &[impl AsFd]) -> Result<(), GiveError> {
        // The kernel lets a user have no more under way than files open: few go at once.
        for part in descriptors.chunks(PART_DESCRIPTORS_MAX) {
            let borrowed: Vec<_> = part.iter().map(AsFd::as_fd).collect();
            self.parts += 1;
            self.send([parcel, self.parts], &borrowed)?;
            let taken = self.answer()?;
            if taken != borrowed.len() as u64 {
                return Err(GiveError::NoRoom);
            }
        }
        Ok(())
    }

    fn send(&self, head: Words, descriptors: &[BorrowedFd<'_>]) -> Result<(), GiveError> {
        let deadline = Instant::now() + ANSWER_WAIT;
        loop {
            let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(GiveError::System(Errno::MSGSIZE.into()));
            }
            let bytes = to_bytes(head);
            let flags = SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                // The door is full of descriptors that were not taken yet.
                Err(Errno::AGAIN) => await_until(&self.socket, PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(GiveError::Gone),
                Err(error) => return Err(GiveError::System(error.into())),
            }
        }
    }

    /// The count of the last part's descriptors that were taken.
    fn answer(&self) -> Result<u64, GiveError> {
        let deadline = Instant::now() + ANSWER_WAIT;
        loop {
            let mut bytes = [0; WORDS_BYTES];
            match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Err(GiveError::Gone),
                Ok(_) => {
                    let [part, taken] = from_bytes(bytes);
                    // One to a part that was given up is late.
                    if part == self.parts {
                        return Ok(taken);
                    }
                }
                Err(Errno::AGAIN) => await_until(&self.socket, PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(GiveError::System(error.into())),
            }
        }
    }
}

/// The reason why descriptors were not taken.
#[derive(Debug, thiserror::Error)]
pub enum GiveError {
    /// The taker's thread has ended.
    #[error("its thread has ended")]
    Gone,
    /// The taker's table is full.
    #[error("it has no file descriptor left; raise the limit (ulimit -n, LimitNOFILE=)")]
    NoRoom,
    /// The taker did not answer within [`ANSWER_WAIT`].
    #[error("it has not answered for {} s", ANSWER_WAIT.as_secs())]
    Silent,
    /// The kernel refuses.
    #[error(transparent)]
    System(io::Error),
}

/// The time that a giver waits for a taker, which has other work: far more than a turn takes.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Descriptors that go at once; the kernel allows 253.
pub const PART_DESCRIPTORS_MAX: usize = 32;

/// The taker's end of a door on its way to the taker's thread.
#[derive(Debug)]
pub struct Entrance {
    socket: OwnedFd,
}

impl Entrance {
    /// Enters the taker's thread. Call it there, before the thread opens anything.
    ///
    /// With [`FileTable::Own`] the thread gets its own table, in which only the standard streams
    /// and the door are open. Then no value that the thread was given may own or lend a descriptor:
    /// it would name another file. So no handler of a signal runs on it from then on, because
    /// handlers write to descriptors of the process.
    pub fn settle(self, wanted: FileTable) -> Settled {
        let shared = |socket, refusal| Settled {
            taker: Taker { socket: Descriptor::from(socket) },
            left: Left(None),
            table: FileTable::Shared,
            refusal,
        };
        if wanted == FileTable::Shared {
            return shared(self.socket, None);
        }
        block_signals();
        match make_own(self.socket) {
            Ok((socket, number)) => Settled {
                taker: Taker { socket: Descriptor::from(socket) },
                left: Left(Some(number)),
                table: FileTable::Own,
                refusal: None,
            },
            Err((refusal, socket)) => shared(socket, Some(refusal)),
        }
    }
}

/// A thread that has entered.
#[derive(Debug)]
pub struct Settled {
    /// The new thread's end of the door.
    pub taker: Taker,
    /// The end of the door in the table that it left.
    pub left: Left,
    /// The owner of its table now.
    pub table: FileTable,
    /// The reason why it has no own table, if it wanted one.
    pub refusal: Option<io::Error>,
}

/// A descriptor that stays open in the table that a thread has left, until a thread with that table
/// closes it.
#[derive(Debug)]
#[must_use = "it stays open in the table that was left"]
pub struct Left(Option<RawFd>);

impl Left {
    /// Closes it. Called by a thread with the table that was left.
    pub fn close(self) {
        if let Some(number) = self.0 {
            close_unowned(number);
        }
    }
}

/// The end of a door through which descriptors come.
#[derive(Debug)]
pub struct Taker {
    socket: Descriptor,
}

/// Descriptors of one parcel that have come at once.
#[derive(Debug)]
pub struct Part {
    /// The parcel's number.
    pub parcel: u64,
    /// Fewer than were given if this thread's table has no room for more.
    pub descriptors: Vec<Descriptor>,
}

impl Taker {
    /// A part that has come, without waiting for it.
    ///
    /// # Errors
    /// The giver is gone, or the kernel refuses.
    pub fn take(&self) -> io::Result<Option<Part>> {
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; WORDS_BYTES];
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(&self.socket, &mut into, &mut ancillary, FLAGS) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights.map(Descriptor::from));
            }
        }
        if received.bytes != WORDS_BYTES || received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let [parcel, part] = from_bytes(bytes);
        let answer = to_bytes([part, descriptors.len() as u64]);
        // A giver without this answer gives up in time.
        let _ = send(&self.socket, &answer, SendFlags::NOSIGNAL);
        Ok(Some(Part { parcel, descriptors }))
    }

    /// A part that has come, after waiting for it at most [`ANSWER_WAIT`].
    ///
    /// # Errors
    /// As [`Taker::take`], or nothing has come.
    pub fn wait(&self) -> io::Result<Part> {
        let deadline = Instant::now() + ANSWER_WAIT;
        loop {
            if let Some(part) = self.take()? {
                return Ok(part);
            }
            await_until(&self.socket, PollFlags::IN, deadline).map_err(io::Error::other)?;
        }
    }
}

impl AsFd for Taker {
    /// Readable when something may have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Two numbers as they cross: with a part the parcel's and its own, with the answer the part's and
/// how many of its descriptors were taken.
type Words = [u64; 2];

const WORDS_BYTES: usize = size_of::<Words>();

fn to_bytes(words: Words) -> [u8; WORDS_BYTES] {
    let mut bytes = [0; WORDS_BYTES];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

fn from_bytes(bytes: [u8; WORDS_BYTES]) -> Words {
    let mut words = [0; 2];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn await_until(socket: impl AsFd, what: PollFlags, deadline: Instant) -> Result<(), GiveError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).unwrap_or_default();
    match poll(&mut [PollFd::new(&socket, what)], Some(&timeout)) {
        Ok(0) => Err(GiveError::Silent),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(GiveError::System(error.into())),
    }
}

const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(PART_DESCRIPTORS_MAX));
const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
