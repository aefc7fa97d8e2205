//! Networks as text: an address and how many of its bits count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use sealane_operator::mistake::Problem;

/// The addresses whose first bits are given.
///
/// An IPv4 address in its IPv6 form, as a socket of both families has it, counts as IPv4; so a
/// network is of one family, and no IPv6 network has IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// The first address: all bits behind the prefix are 0.
    first: IpAddr,
    /// How many bits of it count.
    prefix: u8,
}

impl Network {
    /// Whether `address` is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.range().contains(&address.to_canonical())
    }

    /// Whether it has every address of its family.
    pub fn is_everything(&self) -> bool {
        self.prefix == 0
    }

    /// The first and the last address of the network, both of one family.
    pub fn range(&self) -> RangeInclusive<IpAddr> {
        let last = match self.first {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | behind_v4(self.prefix)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | behind_v6(self.prefix)).into(),
        };
        self.first..=last
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix == bits_of(self.first) {
            true => self.first.fmt(f),
            false => write!(f, "{}/{}", self.first, self.prefix),
        }
    }
}

/// Reads a network: `ADDRESS/PREFIX`, or one address.
pub fn network(text: &str) -> Result<Network, Problem> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(Problem::new(format!("{text:?} is not a network"), EXAMPLES));
    };
    let bits = bits_of(address);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let prefix = match prefix {
        None => bits,
        Some(written) => match written.parse::<u8>().ok().filter(|_| is_number(written)) {
            Some(prefix) if prefix <= bits => prefix,
            _ => {
                let what = format!("{text:?} has no prefix from 0 to {bits}");
                return Err(Problem::new(what, EXAMPLES));
            }
        },
    };
    let first: IpAddr = match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !behind_v4(prefix)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !behind_v6(prefix)).into(),
    };
    let network = in_one_family(Network { first, prefix });
    if first != address {
        let what = format!("{text:?} has bits behind its prefix");
        return Err(Problem::new(what, format!("write \"{network}\"")));
    }
    Ok(network)
}

/// IPv4 addresses that are written in their IPv6 form as what they are.
fn in_one_family(network: Network) -> Network {
    match network.prefix.checked_sub(MAPPED_PREFIX) {
        Some(prefix) if network.first.to_canonical().is_ipv4() => {
            Network { first: network.first.to_canonical(), prefix }
        }
        _ => network,
    }
}

fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The bits of an address that do not count with `prefix`.
fn behind_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shr(prefix.into()).unwrap_or(0)
}

fn behind_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shr(prefix.into()).unwrap_or(0)
}

/// The bits in front of an IPv4 address in its IPv6 form.
const MAPPED_PREFIX: u8 = 96;

/// The remedy for a text that is not a network.
pub const EXAMPLES: &str =
    "write ADDRESS/PREFIX or one address, such as \"10.0.0.0/8\" or \"2001:db8::1\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_networks_and_writes_them_as_they_are_read() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1/32", "10.0.0.1"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:DB8:0::/48", "2001:db8::/48"),
            ("2001:db8::1", "2001:db8::1"),
            ("::1/128", "::1"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/96", "::/96"),
        ] {
            let read = network(text).unwrap();
            assert_eq!(read.to_string(), written, "{text}");
            assert_eq!(network(written).unwrap(), read, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_network_with_a_remedy() {
        for (text, said) in [
            ("10.0.0.1/8", "\"10.0.0.1/8\" has bits behind its prefix; write \"10.0.0.0/8\""),
            ("10.0.0.1/0", "\"10.0.0.1/0\" has bits behind its prefix; write \"0.0.0.0/0\""),
            (
                "2001:db8::1/64",
                "\"2001:db8::1/64\" has bits behind its prefix; write \"2001:db8::/64\"",
            ),
            (
                "::ffff:10.0.0.1/104",
                "\"::ffff:10.0.0.1/104\" has bits behind its prefix; write \"10.0.0.0/8\"",
            ),
        ] {
            assert_eq!(network(text).unwrap_err().to_string(), said);
        }
        for (text, what) in [
            ("10.0.0.0/33", "has no prefix from 0 to 32"),
            ("10.0.0.0/+8", "has no prefix from 0 to 32"),
            ("10.0.0.0/", "has no prefix from 0 to 32"),
            ("10.0.0.0/300", "has no prefix from 0 to 32"),
            ("10.0.0.0/255.0.0.0", "has no prefix from 0 to 32"),
            ("::/129", "has no prefix from 0 to 128"),
            ("", "is not a network"),
            ("/8", "is not a network"),
            ("10/8", "is not a network"),
            ("10.0.0.010", "is not a network"),
            ("fe80::1%eth0", "is not a network"),
            ("localhost", "is not a network"),
        ] {
            let problem = network(text).unwrap_err();
            assert_eq!(problem.what, format!("{text:?} {what}"));
            assert_eq!(problem.remedy, EXAMPLES);
        }
    }

    #[test]
    fn has_the_addresses_of_one_family_up_to_its_last() {
        for (text, inside, outside) in [
            (
                "10.0.0.0/8",
                ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"].as_slice(),
                ["9.255.255.255", "11.0.0.0", "::ffff:11.0.0.0", "a00::"].as_slice(),
            ),
            ("10.0.0.1", &["10.0.0.1", "::ffff:10.0.0.1"], &["10.0.0.0", "10.0.0.2"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"], &["::", "::1"]),
            ("::/0", &["::", "::1", "ffff::"], &["1.2.3.4", "::ffff:1.2.3.4"]),
            ("2001:db8::/33", &["2001:db8:7fff::"], &["2001:db8:8000::", "2001:db7:ffff::"]),
            ("::1", &["::1"], &["::", "::2", "0.0.0.1"]),
        ] {
            let network = network(text).unwrap();
            assert_eq!(network.is_everything(), text.ends_with("/0"), "{text}");
            for address in inside {
                assert!(network.contains(address.parse().unwrap()), "{address} in {text}");
            }
            for address in outside {
                assert!(!network.contains(address.parse().unwrap()), "{address} not in {text}");
            }
        }
    }
}
