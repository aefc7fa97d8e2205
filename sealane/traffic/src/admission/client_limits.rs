//! What each client has of a lane: a table of the lane's own, of fixed size.
//!
//! No lane knows what a client has on another: to know it, all would have to write one line of
//! memory for each connection. So the table holds a lane's share of what a client may have.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use sealane_config::PerClient;
use sealane_lanes::cause::Cause;

/// The clients of one lane that were seen last.
///
/// A client is looked for in 8 places, which its hash chooses by a key of the lane's own. When all
/// are taken, the place goes to the new one that has been quiet longest of those without a
/// connection, or, if all have some, longest of all: what the table forgets is allowed once more.
pub(super) struct ClientTable {
    hasher: RandomState,
    sets: Box<[[Place; PLACES]]>,
}

/// One client of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// An IPv4 address, or the first half of one of IPv6: what a house gets.
    network: u64,
    /// The listener's number, counted from 1, and the family.
    listener: u32,
}

impl Client {
    /// The client at `address` of the listener that has this number, counted from 1.
    pub(super) fn of(listener: u32, address: IpAddr) -> Self {
        let (network, family) = match address.to_canonical() {
            IpAddr::V4(v4) => (u64::from(v4.to_bits()), 0),
            IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, 1),
        };
        Self { network, listener: listener << 1 | family }
    }
}

/// A place for a client; all zero is a free one.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    network: u64,
    /// When it last came or left.
    seen_ms: u64,
    listener: u32,
    /// Open connections.
    open: u32,
    /// Handshakes that it may begin at once, in thousandths.
    credit: u32,
}

impl ClientTable {
    pub(super) fn new() -> Self {
        let sets = vec![[Place::default(); PLACES]; CLIENTS_MAX / PLACES];
        Self { hasher: RandomState::new(), sets: sets.into_boxed_slice() }
    }

    /// Counts a connection of `client`, which may have `share` on this lane.
    ///
    /// # Errors
    /// It has all that it may have, and nothing is counted.
    pub(super) fn admit(
        &mut self,
        client: Client,
        share: PerClient,
        now_ms: u64,
    ) -> Result<(), Cause> {
        let rate = share.handshakes_per_s.map_or(0, |rate| rate.get() as u64);
        let credit_max = BURST_S * rate * CREDIT;
        let place = self.place_for(client, now_ms, credit_max);
        if share.connections_max.is_some_and(|max| place.open as usize >= max.get()) {
            return Err(Cause::LimitClientConnections);
        }
        // So many per second are as many thousandths per millisecond.
        let earned = rate.saturating_mul(now_ms.saturating_sub(place.seen_ms));
        let credit = earned.saturating_add(place.credit.into()).min(credit_max);
        let left = match share.handshakes_per_s {
            Some(_) => credit.checked_sub(CREDIT),
            None => Some(credit),
        };
        place.seen_ms = now_ms;
        place.credit = u32::try_from(left.unwrap_or(credit)).unwrap_or(u32::MAX);
        if left.is_none() {
            return Err(Cause::LimitClientHandshakes);
        }
        place.open = place.open.saturating_add(1);
        Ok(())
    }

    /// A connection of `client` that was counted has ended.
    pub(super) fn leave(&mut self, client: Client) {
        let set = self.set_of(client);
        if let Some(place) = self.sets[set].iter_mut().find(|place| place.is_of(client)) {
            place.open = place.open.saturating_sub(1);
        }
    }

    fn set_of(&self, client: Client) -> usize {
        let set = self.hasher.hash_one(client) % self.sets.len() as u64;
        usize::try_from(set).unwrap_or_default()
    }

    /// The place of `client`; a new one begins with `credit_max`.
    fn place_for(&mut self, client: Client, now_ms: u64, credit_max: u64) -> &mut Place {
        let set = self.set_of(client);
        let set = &mut self.sets[set];
        let known = set.iter().position(|place| place.is_of(client));
        let at = known.unwrap_or_else(|| {
            let worth = |at: &usize| (set[*at].open > 0, set[*at].listener > 0, set[*at].seen_ms);
            let at = (0..PLACES).min_by_key(worth).unwrap_or_default();
            set[at] = Place {
                network: client.network,
                seen_ms: now_ms,
                listener: client.listener,
                open: 0,
                credit: u32::try_from(credit_max).unwrap_or(u32::MAX),
            };
            at
        });
        &mut set[at]
    }
}

impl Place {
    fn is_of(&self, client: Client) -> bool {
        (self.network, self.listener) == (client.network, client.listener)
    }
}

/// What the table of one lane takes.
pub const CLIENT_TABLE_BYTES: u64 = (CLIENTS_MAX * size_of::<Place>()) as u64;
/// Places in all.
const CLIENTS_MAX: usize = 16_384;
/// Places that a client may have: four cache lines.
const PLACES: usize = 8;
/// What one handshake takes.
const CREDIT: u64 = 1_000;
/// Handshakes that may be begun at once, as seconds of the rate.
const BURST_S: u64 = 2;

const _: () = assert!(size_of::<Place>() == 32 && CLIENTS_MAX.is_multiple_of(PLACES));

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::num::NonZeroUsize;

    use proptest::prelude::*;

    use super::*;

    fn share(connections: usize, rate: usize) -> PerClient {
        PerClient {
            connections_max: NonZeroUsize::new(connections),
            handshakes_per_s: NonZeroUsize::new(rate),
        }
    }

    fn client(number: u32) -> Client {
        Client::of(1, Ipv4Addr::from_bits(number).into())
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Come(u32),
        Leave(u32),
        Wait(u64),
    }

    /// Steps with as many clients as any one set has places for: none is forgotten.
    fn step() -> impl Strategy<Value = Step> {
        let number = || 0..u32::try_from(PLACES).unwrap();
        prop_oneof![
            4 => number().prop_map(Step::Come),
            2 => number().prop_map(Step::Leave),
            1 => (0..2_000u64).prop_map(Step::Wait),
        ]
    }

    /// What one client has, without a bound on clients and in the words of the documentation.
    #[derive(Default)]
    struct Model {
        open: usize,
        /// Thousandths of handshakes that it has used up and not earned again, at `at_ms`.
        used: u64,
        at_ms: u64,
    }

    impl Model {
        fn come(&mut self, connections: usize, rate: u64, now_ms: u64) -> Result<(), Cause> {
            if connections > 0 && self.open >= connections {
                return Err(Cause::LimitClientConnections);
            }
            self.used = self.used.saturating_sub(rate * (now_ms - self.at_ms));
            self.at_ms = now_ms;
            if rate > 0 && self.used + 1_000 > 2 * rate * 1_000 {
                return Err(Cause::LimitClientHandshakes);
            }
            self.used += if rate > 0 { 1_000 } else { 0 };
            self.open += 1;
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn counts_as_an_unbounded_table_does(
            connections in 0..5usize,
            rate in 0..4usize,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut table = ClientTable::new();
            let mut model: HashMap<u32, Model> = HashMap::new();
            let mut now_ms = 0;
            for step in steps {
                match step {
                    Step::Come(number) => {
                        let of_client = model.entry(number).or_default();
                        let expected = of_client.come(connections, rate as u64, now_ms);
                        let got = table.admit(client(number), share(connections, rate), now_ms);
                        prop_assert_eq!(got, expected);
                    }
                    Step::Leave(number) => {
                        if let Some(of_client) = model.get_mut(&number).filter(|c| c.open > 0) {
                            of_client.open -= 1;
                            table.leave(client(number));
                        }
                    }
                    Step::Wait(ms) => now_ms += ms,
                }
            }
        }
    }

    #[test]
    fn a_flood_of_others_does_not_make_it_forget_who_has_a_connection() {
        let mut table = ClientTable::new();
        let one = share(1, 0);
        let (busy, others) = (client(0), 1..=200_000);
        table.admit(busy, one, 0).unwrap();
        for (now_ms, other) in (1..).zip(others) {
            table.admit(client(other), one, now_ms).unwrap();
            table.leave(client(other));
        }
        let refused = Err(Cause::LimitClientConnections);
        assert_eq!(table.admit(busy, one, 300_000), refused);
        // Of those that are quiet the oldest has gone, and the newest has not.
        let is_known = |table: &mut ClientTable, number: u32| {
            let set = table.set_of(client(number));
            table.sets[set].iter().any(|place| place.is_of(client(number)))
        };
        assert!(is_known(&mut table, 200_000) && !is_known(&mut table, 1));
    }

    /// More clients with connections than there are places for: it stays as large as it is, and who
    /// was forgotten leaves without taking anything from others.
    #[test]
    fn what_it_forgets_is_allowed_once_more_and_leaves_in_peace() {
        let mut table = ClientTable::new();
        let one = share(1, 0);
        let all = 0..u32::try_from(2 * CLIENTS_MAX).unwrap();
        for number in all.clone() {
            table.admit(client(number), one, number.into()).unwrap();
        }
        assert_eq!(table.sets.len() * PLACES, CLIENTS_MAX);
        all.clone().for_each(|number| table.leave(client(number)));
        assert!(table.sets.iter().flatten().all(|place| place.open == 0));
        all.for_each(|number| table.admit(client(number), one, 1_000_000).unwrap());
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_64_bits_of_ipv6_at_one_listener() {
        let of = |listener, text: &str| Client::of(listener, text.parse().unwrap());
        assert_eq!(of(1, "192.0.2.1"), of(1, "::ffff:192.0.2.1"));
        assert_eq!(of(1, "2001:db8::1"), of(1, "2001:db8::ffff:0:0:1"));
        for other in ["2001:db8:0:1::1", "192.0.2.1"] {
            assert_ne!(of(1, "2001:db8::1"), of(1, other));
        }
        assert_ne!(of(1, "192.0.2.1"), of(1, "192.0.2.2"));
        assert_ne!(of(1, "192.0.2.1"), of(2, "192.0.2.1"));
        // The same 64 bits.
        let v6 = Ipv6Addr::from_bits(u128::from(u32::MAX) << 64);
        assert_ne!(of(1, "255.255.255.255"), Client::of(1, v6.into()));
    }
}
