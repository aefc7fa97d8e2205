//! Addresses that a lane rejects before it spends a handshake on them: the rules of a
//! `net.BlockList` of Node's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of addresses that do not touch, in order.
///
/// A rule that is not understood here is left to JavaScript, which judges each connection once more
/// when its handshake is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

/// Rules that are read; the others are left to JavaScript.
const RULES_MAX: usize = 1 << 20;

impl Blocked {
    /// Reads rules such as `Subnet: IPv4 192.0.2.0/24`, `Range: IPv6 ::1-::9`, `Address: IPv6 ::1`.
    pub fn read<'a>(rules: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (first, last) in rules.into_iter().take(RULES_MAX).filter_map(range) {
            match (first, last) {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((first.into(), last.into())),
                (IpAddr::V6(first), IpAddr::V6(last)) => v6.push((first.into(), last.into())),
                _ => {}
            }
        }
        Self { v4: joined(v4), v6: joined(v6) }
    }

    /// Whether a client at `address` is turned away. IPv4 in IPv6 is IPv4, as for Node.
    pub fn holds(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_within(&self.v4, address.into()),
            IpAddr::V6(address) => is_within(&self.v6, address.into()),
        }
    }
}

/// The first and the last address of a rule.
fn range(rule: &str) -> Option<(IpAddr, IpAddr)> {
    let (kind, rest) = rule.split_once(": ")?;
    let (_family, addresses) = rest.split_once(' ')?;
    match kind {
        "Address" => addresses.parse().ok().map(|address| (address, address)),
        "Range" => {
            let (first, last) = addresses.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        }
        "Subnet" => {
            let (address, prefix) = addresses.split_once('/')?;
            subnet(address.parse().ok()?, prefix.parse().ok()?)
        }
        _ => None,
    }
}

fn subnet(address: IpAddr, prefix: u32) -> Option<(IpAddr, IpAddr)> {
    match address {
        IpAddr::V4(address) => {
            let rest = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let bits = u32::from(address);
            let ends = [bits & !rest, bits | rest].map(|bits| IpAddr::V4(Ipv4Addr::from(bits)));
            (prefix <= u32::BITS).then_some(ends.into())
        }
        IpAddr::V6(address) => {
            let rest = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let bits = u128::from(address);
            let ends = [bits & !rest, bits | rest].map(|bits| IpAddr::V6(Ipv6Addr::from(bits)));
            (prefix <= u128::BITS).then_some(ends.into())
        }
    }
}

/// Sorts ranges, and makes one of those that overlap.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let overlaps = next.0 <= kept.1;
        if overlaps {
            kept.1 = kept.1.max(next.1);
        }
        overlaps
    });
    ranges
}

fn is_within<T: Ord + Copy>(ranges: &[(T, T)], value: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= value);
    behind.checked_sub(1).is_some_and(|at| value <= ranges[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_nodes() {
        let blocked = Blocked::read([
            "Address: IPv4 192.0.2.7",
            "Range: IPv4 10.0.0.5-10.0.0.9",
            "Range: IPv4 10.0.0.1-10.0.0.6",
            "Subnet: IPv4 198.51.100.128/25",
            "Address: IPv6 ::1",
            "Subnet: IPv6 2001:db8::/33",
            "Subnet: IPv4 203.0.113.9/32",
        ]);
        for (address, expected) in [
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.8", false),
            ("10.0.0.0", false),
            ("10.0.0.1", true),
            ("10.0.0.7", true),
            ("10.0.0.9", true),
            ("10.0.0.10", false),
            ("198.51.100.127", false),
            ("198.51.100.128", true),
            ("198.51.100.255", true),
            ("203.0.113.9", true),
            ("203.0.113.8", false),
            ("::1", true),
            ("::2", false),
            ("2001:db8:7fff::1", true),
            ("2001:db8:8000::", false),
        ] {
            assert_eq!(blocked.holds(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!Blocked::default().holds("::1".parse().unwrap()));
    }

    #[test]
    fn everything_and_nonsense() {
        let all = Blocked::read(["Subnet: IPv4 1.2.3.4/0"]);
        assert!(all.holds("255.255.255.255".parse().unwrap()));
        assert!(all.holds("0.0.0.0".parse().unwrap()) && !all.holds("::1".parse().unwrap()));
        for rule in [
            "",
            "Address: IPv4",
            "Address: IPv4 x",
            "Subnet: IPv4 1.2.3.4/33",
            "Subnet: IPv6 ::/129",
            "Range: IPv4 1.2.3.5-1.2.3.4",
            "Range: IPv4 1.2.3.4-::1",
            "Country: IPv4 1.2.3.4",
        ] {
            assert_eq!(Blocked::read([rule]), Blocked::default(), "{rule:?}");
        }
    }
}
