//! Sockets that are handed over: served when they are published, closed when they are not.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::version::TLS13;
use sealane_file_table::{Descriptor, GiveError};
use sealane_lanes::generation::Publication;
use sealane_lanes::handover::Parcel;
use sealane_lanes::kernel::Address;
use sealane_lanes::listener;
use sealane_lanes::mailbox::Mail;

use crate::client::{Client, config};
use crate::rig::{Rig, Wanted, among_others, eventually, generation};

fn bound() -> (Vec<(Address, Descriptor)>, SocketAddr) {
    let (sockets, address) = listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    (sockets.into_iter().map(|socket| (Address::Tcp(address), socket)).collect(), address)
}

/// Hands a new listening socket over, so that nobody but the lane has it.
fn hand_over(rig: &mut Rig) -> (Parcel, SocketAddr) {
    let (sockets, address) = bound();
    (rig.handle.hand_over(&sockets).unwrap(), address)
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn publish(rig: &Rig, number: u64, at: SocketAddr, parcel: Parcel) {
    let generation = generation(number, at, Wanted::echo(), &rig.ends, &rig.gate);
    rig.handle.post(Mail::Publish(Box::new(Publication { generation, parcel })));
    eventually("the lane takes the generation", || rig.counters().generation.value() == number);
}

#[test]
fn what_is_published_is_served_and_what_it_replaces_is_closed() {
    let _others = among_others();
    let mut rig = Rig::start(Wanted::echo());
    for number in 2..5 {
        let before = rig.address;
        let (parcel, address) = hand_over(&mut rig);
        publish(&rig, number, address, parcel);
        assert!(is_refused(before));
        rig.address = address;
        let mut client = Client::connect(&rig, &TLS13).unwrap();
        client.send(b"there").unwrap();
        assert_eq!(client.receive(5).unwrap(), b"there");
    }
    rig.stop();
}

#[test]
fn what_is_not_published_is_closed() {
    let _others = among_others();
    let mut rig = Rig::start(Wanted::echo());
    let (given_up, address) = hand_over(&mut rig);
    assert!(!is_refused(address), "the lane has it");
    rig.handle.post(Mail::Discard);
    eventually("it is closed", || is_refused(address));
    // Nothing of it comes back by its name.
    publish(&rig, 2, address, given_up);
    assert!(is_refused(address));
    rig.stop();
}

#[test]
fn the_next_parcel_closes_one_that_was_given_up() {
    let _others = among_others();
    let mut rig = Rig::start(Wanted::echo());
    let (_, first) = hand_over(&mut rig);
    let (parcel, second) = hand_over(&mut rig);
    eventually("the first is closed", || is_refused(first));
    publish(&rig, 2, second, parcel);
    assert!(!is_refused(second));
    rig.stop();
}

#[test]
fn a_lane_that_drains_keeps_nothing_that_it_was_handed() {
    let _others = among_others();
    let mut rig = Rig::start(Wanted::echo());
    let mut client = Client::with(&rig, config(&TLS13));
    client.handshake().unwrap();
    client.send(b"stays").unwrap();
    assert_eq!(client.receive(5).unwrap(), b"stays");
    let (_, address) = hand_over(&mut rig);
    rig.handle.post(Mail::Drain(Duration::from_secs(3_600)));
    eventually("it is closed", || is_refused(address));
    assert!(!rig.handle.has_ended());
    rig.stop();
}

#[test]
fn a_lane_that_has_ended_takes_nothing() {
    let _others = among_others();
    let mut rig = Rig::start(Wanted::echo());
    rig.handle.post(Mail::Stop);
    eventually("it has ended", || rig.handle.has_ended());
    let (sockets, address) = bound();
    assert!(matches!(rig.handle.hand_over(&sockets), Err(GiveError::Gone)));
    drop(sockets);
    assert!(is_refused(address));
}
