//! Backends as they are configured, and where they are: a name may lead to many.

use std::net::SocketAddr;

use sealane_config::BACKENDS_MAX;
use sealane_config::{BackendAddress, Check, ProxyHeader, Share};
use sealane_lanes::kernel::Address;

use super::BackendTls;

/// A backend as it is configured: whatever its name leads to is one.
pub struct PlannedBackend {
    /// What was written.
    pub address: BackendAddress,
    /// How it is checked, if it is.
    pub check: Option<Check>,
    /// The backend as it was written, for logs and metrics.
    pub label: String,
    /// The PROXY header with which each connection begins.
    pub proxy_header: ProxyHeader,
    /// How much it gets.
    pub share: Share,
    /// How it is spoken to in TLS, if it is.
    pub tls: Option<BackendTls>,
}

/// Where the backends of `planned` are, with those that they are made of: each once, and no more
/// than a destination may have. What a name leads to, `addresses_of` says.
pub fn places<'p, 'a>(
    planned: &'p [PlannedBackend],
    addresses_of: impl Fn(&str) -> &'a [SocketAddr],
) -> Vec<(Address, &'p PlannedBackend)> {
    let mut places: Vec<(Address, &PlannedBackend)> = Vec::new();
    for backend in planned {
        let found = match &backend.address {
            BackendAddress::Host { name, port } => {
                let at = |address: &SocketAddr| {
                    let mut address = *address;
                    address.set_port(*port);
                    Address::Tcp(address)
                };
                addresses_of(name).iter().map(at).collect()
            }
            BackendAddress::Tcp(address) => vec![Address::Tcp(*address)],
            BackendAddress::Unix(path) => vec![Address::Unix(path.clone())],
        };
        for address in found {
            if places.len() < BACKENDS_MAX && !places.iter().any(|(known, _)| *known == address) {
                places.push((address, backend));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(address: BackendAddress) -> PlannedBackend {
        PlannedBackend {
            check: None,
            label: address.to_string(),
            address,
            proxy_header: ProxyHeader::Off,
            share: Share::default(),
            tls: None,
        }
    }

    fn at(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], port))
    }

    fn named(name: &str) -> PlannedBackend {
        planned(BackendAddress::Host { name: name.into(), port: 80 })
    }

    #[test]
    fn every_address_of_a_name_is_a_backend_and_none_is_there_twice() {
        let planned = [
            named("app.test"),
            planned(BackendAddress::Tcp(at(9, 80))),
            named("none.test"),
            planned(BackendAddress::Tcp(at(2, 80))),
            planned(BackendAddress::Tcp(at(2, 81))),
        ];
        let found = [at(1, 0), at(2, 0)];
        let places = places(&planned, |name| if name == "app.test" { &found } else { &[] });
        let expected = [at(1, 80), at(2, 80), at(9, 80), at(2, 81)].map(Address::Tcp);
        assert!(places.iter().map(|(address, _)| address).eq(&expected));
        assert_eq!(places[1].1.label, "app.test:80");
    }

    #[test]
    fn a_destination_has_no_more_than_it_may_have() {
        let many: Vec<_> = (0..=u8::MAX).map(|last| at(last, 0)).collect();
        let planned = [named("many.test"), planned(BackendAddress::Tcp(at(9, 81)))];
        let places = places(&planned, |_| &many);
        assert!(places.len() == BACKENDS_MAX && places[63].0 == Address::Tcp(at(63, 80)));
    }
}
