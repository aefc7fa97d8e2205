//! The clients that a lane has refused most often, for the operator.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use sealane_lanes::cause::Cause;

/// A lane's table of the clients that it has refused. The lane writes it, others may read it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RefusedClients([Place; CLIENTS_MAX]);

/// One client, and how often it was refused at most; free while that is 0.
#[derive(Debug, Default)]
struct Place {
    address: [AtomicU64; 2],
    count: AtomicU64,
}

/// Clients in the table of a lane. A client that is not in it takes the place of the one with the
/// fewest refusals, and their number.
const CLIENTS_MAX: usize = 16;

impl RefusedClients {
    /// Counts a client that ended by `cause`, if that is a refusal.
    pub fn note(&self, client: Option<IpAddr>, cause: Cause) {
        if let Some(client) = client.filter(|_| is_refusal(cause)) {
            self.count(client);
        }
    }

    fn count(&self, client: IpAddr) {
        let words = words(client);
        let known = self.0.iter().find(|place| place.words() == words && place.count() > 0);
        let Some(place) = known.or_else(|| self.0.iter().min_by_key(|place| place.count())) else {
            return;
        };
        let count = place.count() + 1;
        if known.is_none() {
            // A reader sees the place as free until the new count is stored.
            place.count.store(0, Relaxed);
            for (stored, word) in place.address.iter().zip(words) {
                stored.store(word, Relaxed);
            }
        }
        place.count.store(count, Relaxed);
    }

    /// The clients, in no order, with how often each was refused at most.
    pub fn clients(&self) -> impl Iterator<Item = (IpAddr, u64)> {
        let taken = self.0.iter().filter(|place| place.count() > 0);
        taken.map(|place| {
            let [high, low] = place.words().map(u128::from);
            (Ipv6Addr::from_bits(high << 64 | low).to_canonical(), place.count())
        })
    }
}

impl Place {
    fn words(&self) -> [u64; 2] {
        self.address.each_ref().map(|word| word.load(Relaxed))
    }

    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the address")]
fn words(client: IpAddr) -> [u64; 2] {
    let bits = match client {
        IpAddr::V4(client) => client.to_ipv6_mapped().to_bits(),
        IpAddr::V6(client) => client.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn is_refusal(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Denied
            | Cause::LimitClientConnections
            | Cause::LimitClientHandshakes
            | Cause::LimitConnections
            | Cause::LimitHandshakeQueue
            | Cause::LimitHandshakeWait
            | Cause::LimitHandshakes
            | Cause::LimitListener
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_clients_stay_in_a_full_table() {
        let refused = RefusedClients::default();
        let worst: [IpAddr; 2] = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        for round in 0..100_u32 {
            for client in worst {
                refused.note(Some(client), Cause::Denied);
            }
            refused.note(Some(worst[0]), Cause::LimitListener);
            let other = IpAddr::from(round.to_be_bytes());
            refused.note(Some(other), Cause::Denied);
            refused.note(Some(other), Cause::Clean);
        }
        refused.note(None, Cause::Denied);
        let mut clients: Vec<_> = refused.clients().collect();
        clients.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        assert_eq!(clients.len(), CLIENTS_MAX);
        assert_eq!(clients[..2], [(worst[0], 200), (worst[1], 100)]);
        assert_eq!(clients.iter().map(|(_, count)| count).sum::<u64>(), 400, "each counted once");
    }
}
