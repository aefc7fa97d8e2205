//! Threads with their own tables, real files, and the door between them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write, pipe};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::thread::gettid;
use sealane_file_table::{
    Descriptor, FileTable, GiveError, Giver, PART_DESCRIPTORS_MAX, Part, Settled, Taker,
    can_be_own, door, same_table,
};

/// A thread that has settled, and runs the closures that it gets at its end of the door.
struct Inside {
    giver: Giver,
    tell: Sender<Order>,
    thread: JoinHandle<()>,
    id: u32,
}

type Order = Box<dyn FnOnce(&mut Room) + Send>;

fn own_id() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The state of such a thread.
struct Room {
    taker: Taker,
    parts: Vec<Part>,
}

impl Inside {
    fn start(wanted: FileTable) -> (Self, FileTable) {
        let (giver, entrance) = door().unwrap();
        let (tell, told): (_, Receiver<Order>) = channel();
        let (settled, has_settled) = channel();
        let thread = std::thread::spawn(move || {
            let Settled { taker, left, table, refusal } = entrance.settle(wanted);
            settled.send((left, table, refusal, own_id())).unwrap();
            let mut room = Room { taker, parts: Vec::new() };
            told.into_iter().for_each(|order| order(&mut room));
        });
        let (left, table, refusal, id) = has_settled.recv().unwrap();
        left.close();
        assert_eq!(refusal.map(|error| error.to_string()), None);
        (Self { giver, tell, thread, id }, table)
    }

    fn own() -> Self {
        let (inside, table) = Self::start(FileTable::Own);
        assert_eq!(table, FileTable::Own);
        inside
    }

    fn tell(&self, order: impl FnOnce(&mut Room) + Send + 'static) {
        self.tell.send(Box::new(order)).unwrap();
    }

    /// Runs `question` in the thread behind all earlier work, and returns its answer.
    fn ask<T: Send + 'static>(&self, question: impl FnOnce(&mut Room) -> T + Send + 'static) -> T {
        let (answer, is_answered) = channel();
        self.tell(move |room| answer.send(question(room)).unwrap());
        is_answered.recv().unwrap()
    }

    /// Takes this number of parts.
    fn take(&self, parts: usize) {
        self.tell(move |room| {
            for _ in 0..parts {
                room.parts.push(room.taker.wait().unwrap());
            }
        });
    }

    fn open_numbers(&self) -> Vec<i32> {
        let folder = format!("/proc/self/task/{}/fd", self.id);
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut numbers: Vec<i32> = names.map(|n| n.to_str().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    fn end(self) {
        drop(self.tell);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_table_of_its_own_holds_the_standard_streams_and_the_door() {
    can_be_own().unwrap();
    let _others = [pipe().unwrap(), pipe().unwrap()];
    let inside = Inside::own();
    let door = inside.ask(|room| room.taker.as_fd().as_raw_fd());
    assert_eq!(inside.open_numbers(), [0, 1, 2, door]);
    assert!(!same_table(inside.id, own_id()).unwrap());
    let other = Inside::own();
    assert!(!same_table(inside.id, other.id).unwrap(), "two lanes");
    inside.end();
    other.end();
}

#[test]
fn no_handler_of_a_signal_runs_where_numbers_mean_something_else() {
    let inside = Inside::own();
    let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", inside.id)).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
    assert!([libc::SIGHUP, libc::SIGINT, libc::SIGTERM].into_iter().all(is_blocked));
    assert!(!is_blocked(libc::SIGSEGV), "a stack that overflows is told");
    inside.end();
}

#[test]
fn who_wants_none_shares_the_one_that_is_there() {
    let (inside, table) = Inside::start(FileTable::Shared);
    assert_eq!(table, FileTable::Shared);
    assert!(same_table(inside.id, own_id()).unwrap());
    inside.end();
}

#[test]
fn what_was_left_behind_is_closed() {
    let (giver, entrance) = door().unwrap();
    let (settled, has_settled) = channel();
    let thread = std::thread::spawn(move || {
        let Settled { taker, left, .. } = entrance.settle(FileTable::Own);
        settled.send((left, taker.as_fd().as_raw_fd())).unwrap();
        taker.wait().map(|_| ()).unwrap_err().kind()
    });
    let (left, number) = has_settled.recv().unwrap();
    let in_table =
        |number: i32| std::fs::read_link(format!("/proc/self/task/{}/fd/{number}", own_id()));
    let socket = in_table(number).unwrap();
    left.close();
    // Another test may have got the number since.
    assert!(in_table(number).map_or(true, |there| there != socket));
    drop(giver);
    assert_eq!(thread.join().unwrap(), ErrorKind::UnexpectedEof, "no copy keeps the door open");
}

#[test]
fn what_is_given_is_another_number_of_the_same_file() {
    let mut inside = Inside::own();
    let (mut reader, writer) = pipe().unwrap();
    inside.take(1);
    inside.giver.give(7, &[&writer]).unwrap();
    drop(writer);
    let said = inside.ask(|room| {
        let Part { parcel, mut descriptors } = room.parts.remove(0);
        let mut writer = std::io::PipeWriter::from(descriptors.remove(0).into_shared());
        writer.write_all(b"from there").unwrap();
        (parcel, descriptors.len())
    });
    assert_eq!(said, (7, 0));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from there", "and the end, for nobody else has it");
    inside.end();
}

#[test]
fn a_listener_that_its_thread_closes_is_closed() {
    let (mut inside, other) = (Inside::own(), Inside::own());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    inside.take(1);
    inside.giver.give(1, &[&listener]).unwrap();
    // It is copied into no other table, neither one that was there nor one that comes.
    let late = Inside::own();
    drop(listener);
    drop(TcpStream::connect(address).unwrap());
    inside.ask(|room| room.parts.clear());
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    for thread in [inside, other, late] {
        thread.end();
    }
}

#[test]
fn more_than_go_at_once_come_in_their_order() {
    let mut inside = Inside::own();
    let count = 2 * PART_DESCRIPTORS_MAX + 1;
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|each| each.local_addr().unwrap()).collect();
    inside.take(3);
    inside.giver.give(9, &listeners).unwrap();
    let came = inside.ask(|room| {
        let all = room.parts.iter().flat_map(|part| &part.descriptors);
        let address = |each: &Descriptor| rustix::net::getsockname(each).unwrap();
        all.map(|each| SocketAddr::try_from(address(each)).unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(came, addresses);
    inside.end();
}

#[test]
fn nothing_given_is_nothing_sent() {
    let mut inside = Inside::own();
    inside.giver.give(1, &[] as &[OwnedFd]).unwrap();
    assert!(inside.ask(|room| room.taker.take().unwrap().is_none()));
    inside.end();
}

#[test]
fn a_thread_that_has_ended_takes_nothing() {
    let Inside { mut giver, tell, thread, .. } = Inside::own();
    drop(tell);
    thread.join().unwrap();
    let (reader, _writer) = pipe().unwrap();
    assert!(matches!(giver.give(1, &[&reader]), Err(GiveError::Gone)));
}

#[test]
fn a_thread_that_ends_before_it_has_taken_all_is_gone() {
    let mut inside = Inside::own();
    let pipes: Vec<_> = (0..=PART_DESCRIPTORS_MAX).map(|_| pipe().unwrap().0).collect();
    inside.take(1);
    inside.tell(|_| std::panic::resume_unwind(Box::new("it dies")));
    assert!(matches!(inside.giver.give(1, &pipes), Err(GiveError::Gone)));
    assert!(inside.thread.join().is_err());
}

#[test]
fn a_thread_that_does_not_answer_is_silent_and_its_late_answer_is_no_other() {
    let mut inside = Inside::own();
    let (first, _writer) = pipe().unwrap();
    let (second, _writer) = pipe().unwrap();
    let (go_on, goes_on) = channel::<()>();
    inside.tell(move |_| goes_on.recv().unwrap());
    assert!(matches!(inside.giver.give(1, &[&first]), Err(GiveError::Silent)));
    go_on.send(()).unwrap();
    inside.take(2);
    // An answer of one descriptor is not taken for that of two.
    inside.giver.give(2, &[&second, &second]).unwrap();
    assert_eq!(inside.ask(|room| room.parts.iter().map(|p| p.parcel).collect::<Vec<_>>()), [1, 2]);
    inside.end();
}

#[test]
fn what_comes_is_closed_by_the_next_program() {
    let mut inside = Inside::own();
    let (reader, _writer) = pipe().unwrap();
    inside.take(1);
    inside.giver.give(1, &[&reader]).unwrap();
    let flags = inside.ask(|room| rustix::io::fcntl_getfd(&room.parts[0].descriptors[0]).unwrap());
    assert_eq!(flags, rustix::io::FdFlags::CLOEXEC);
    inside.end();
}

#[test]
fn a_full_table_is_told_and_loses_nothing_that_it_had() {
    let mut inside = Inside::own();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The limit is the process's, so other tests have it too: a table is full when it reaches it.
    let full = inside.ask(|room| {
        let mut filled: Vec<Descriptor> = Vec::new();
        while let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&room.taker, 3) {
            filled.push(copy.into());
        }
        room.parts.push(Part { parcel: 0, descriptors: filled });
        Errno::MFILE
    });
    assert_eq!(full, Errno::MFILE);
    inside.take(1);
    assert!(matches!(inside.giver.give(1, &[&listener]), Err(GiveError::NoRoom)));
    inside.ask(|room| room.parts.clear());
    inside.take(1);
    inside.giver.give(2, &[&listener]).unwrap();
    assert!(inside.ask(|room| sockopt::socket_acceptconn(&room.parts[0].descriptors[0]).unwrap()));
    inside.end();
}
