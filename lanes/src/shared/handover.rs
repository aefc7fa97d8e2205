//! Sockets that the control plane hands over: they come through the lane's door, and wait there for
//! the publication that names them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sealane_file_table::{Descriptor, GiveError, Giver, Taker};

use crate::kernel::Address;

/// The name of what one lane has been handed, for its next publication; by default nothing.
#[derive(Debug, Default)]
pub struct Parcel {
    number: u64,
    /// One for each descriptor, in their order.
    addresses: Vec<Address>,
}

/// The control plane's side of a lane's door.
pub(crate) struct Outlet {
    giver: Giver,
    /// The number of the last parcel.
    number: u64,
}

impl Outlet {
    pub(crate) fn new(giver: Giver) -> Self {
        Self { giver, number: 0 }
    }

    /// Hands over what the lane starts with: its bell, and the first sockets.
    pub(crate) fn furnish(
        &mut self,
        bell: BorrowedFd<'_>,
        sockets: &[(Address, Descriptor)],
    ) -> Result<(), GiveError> {
        let sockets = sockets.iter().map(|(_, socket)| socket.as_fd());
        self.giver.give(FIRST, &std::iter::once(bell).chain(sockets).collect::<Vec<_>>())?;
        self.number = FIRST;
        Ok(())
    }

    /// Hands `sockets` over, in place of a parcel that was not published.
    pub(crate) fn hand_over(
        &mut self,
        sockets: &[(Address, Descriptor)],
    ) -> Result<Parcel, GiveError> {
        if sockets.is_empty() {
            return Ok(Parcel::default());
        }
        self.number += 1;
        let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        self.giver.give(self.number, &descriptors)?;
        let addresses = sockets.iter().map(|(address, _)| address.clone()).collect();
        Ok(Parcel { number: self.number, addresses })
    }
}

/// The lane's side, with what has come and is not published.
pub(crate) struct Inlet {
    taker: Taker,
    /// The parcel that came last.
    number: u64,
    waiting: Vec<Descriptor>,
}

impl Inlet {
    /// Waits for what the lane starts with: its bell, and sockets for `addresses`.
    pub(crate) fn furnished(
        taker: Taker,
        addresses: Vec<Address>,
    ) -> io::Result<(Self, Descriptor, Parcel)> {
        let mut inlet = Self { taker, number: FIRST, waiting: Vec::new() };
        while inlet.waiting.len() <= addresses.len() {
            let part = inlet.taker.wait()?;
            if part.descriptors.is_empty() {
                return Err(rustix::io::Errno::MFILE.into());
            }
            inlet.waiting.extend(part.descriptors);
        }
        let bell = inlet.waiting.remove(0);
        Ok((inlet, bell, Parcel { number: FIRST, addresses }))
    }

    /// Takes all that has come.
    ///
    /// # Errors
    /// Nobody gives any more.
    pub(crate) fn fetch(&mut self) -> io::Result<()> {
        while let Some(part) = self.taker.take()? {
            if part.parcel != self.number {
                // The one before was given up: it closes here.
                self.waiting.clear();
                self.number = part.parcel;
            }
            self.waiting.extend(part.descriptors);
        }
        Ok(())
    }

    /// What `parcel` holds.
    pub(crate) fn open(&mut self, parcel: Parcel) -> Vec<(Address, Descriptor)> {
        if parcel.addresses.is_empty() {
            // What waits is of a later one, which is on its way.
            return Vec::new();
        }
        if parcel.number != self.number || parcel.addresses.len() != self.waiting.len() {
            // Nobody would ever accept there.
            self.waiting.clear();
            return Vec::new();
        }
        parcel.addresses.into_iter().zip(self.waiting.drain(..)).collect()
    }

    /// Closes what is not published.
    pub(crate) fn discard(&mut self) {
        self.waiting.clear();
    }
}

impl AsFd for Inlet {
    /// Readable when something may have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.taker.as_fd()
    }
}

/// The number of the parcel that a lane starts with.
const FIRST: u64 = 1;

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use sealane_file_table::{FileTable, door};

    use super::*;

    fn descriptor() -> Descriptor {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap().into()
    }

    /// Two publications, of which the lane sees the second's sockets before it reads of the first.
    #[test]
    fn a_publication_without_sockets_leaves_those_of_the_next() {
        let (giver, entrance) = door().unwrap();
        // Whoever gives waits until it is taken.
        let control = std::thread::spawn(move || {
            let mut outlet = Outlet::new(giver);
            let bell = descriptor();
            outlet.furnish(bell.as_fd(), &[]).unwrap();
            let socket = (Address::Unix("/run/a".into()), descriptor());
            let without = outlet.hand_over(&[]).unwrap();
            let with = outlet.hand_over(&[socket]).unwrap();
            (outlet, without, with)
        });
        let taker = entrance.settle(FileTable::Shared).taker;
        let (mut inlet, _bell, first) = Inlet::furnished(taker, Vec::new()).unwrap();
        assert!(inlet.open(first).is_empty());
        while inlet.waiting.is_empty() {
            inlet.fetch().unwrap();
        }
        let (_outlet, without, with) = control.join().unwrap();
        assert!(inlet.open(without).is_empty());
        assert_eq!(inlet.open(with).len(), 1);
    }
}
