//! Machines whose figure somebody published: [`profile`].
//!
//! One figure, Ampere's Altra, was fitted on a curve of 80 cores. The others are times of two
//! cores, in one direction, by compare-and-exchange, with nobody else about; `s` is taken to be the
//! same. A line that many cores want may cost more: on the Altra 145 ns fit, where two cores
//! of the Graviton2, which has the same cores, take 47.

use sealane_lab_model::document::Profile;

/// What is known of a machine.
pub(super) fn profile(name: &str) -> Option<Profile> {
    let found = PROFILES.iter().find(|published| published.name == name)?;
    Some(Profile {
        name: found.name.to_owned(),
        transfer_ns: found.transfer_ns,
        source: format!("{}; {}", found.what, found.source),
    })
}

/// The machines.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|published| published.name)
}

struct Published {
    name: &'static str,
    transfer_ns: f64,
    what: &'static str,
    /// Title, date, and where it is.
    source: &'static str,
}

const RUSTLS_THREADING: &str = "rustls, threading report of 2024-11-28, rustls.dev/perf";
/// A source that divides the time of a round trip by two.
const CORE_TO_CORE: &str = "two cores, one way: N. Viennot and others, Measuring CPU core-to-core \
                            latency, 2022-2023, github.com/nviennot/core-to-core-latency";
const LARGE_SYSTEMS: &str = "two cores: Chips and Cheese, Core to Core Latency Data on Large \
                             Systems, 2023-11-07, chipsandcheese.com";

/// By name.
const PROFILES: &[Published] = &[
    Published {
        name: "altra",
        transfer_ns: 145.0,
        what: "Ampere Altra Q80-30, 80 cores: fitted on one published curve, OpenSSL 3.0's full \
               TLS 1.3 handshakes",
        source: RUSTLS_THREADING,
    },
    Published {
        name: "epyc-milan",
        transfer_ns: 107.0,
        what: "AMD EPYC 7R13, 48 cores, 2021: between groups of 8 cores; 23 ns within, 197 between \
               sockets",
        source: CORE_TO_CORE,
    },
    Published {
        name: "epyc-milan-x",
        transfer_ns: 115.0,
        what: "AMD EPYC 7773X, 64 cores, 2022: median",
        source: CORE_TO_CORE,
    },
    Published {
        name: "graviton2",
        transfer_ns: 47.0,
        what: "AWS Graviton2, 64 cores, 2020: median",
        source: CORE_TO_CORE,
    },
    Published {
        name: "graviton3",
        transfer_ns: 46.0,
        what: "AWS Graviton3, 64 cores, 2021: median",
        source: CORE_TO_CORE,
    },
    Published {
        name: "kunpeng-920",
        transfer_ns: 72.0,
        what: "HiSilicon Kunpeng 920-6426, 64 cores, 2019: median",
        source: CORE_TO_CORE,
    },
    Published {
        name: "xeon-cascade-lake",
        transfer_ns: 47.0,
        what: "Intel Xeon Platinum 8275CL, 24 cores, 2019: median; 134 ns between sockets",
        source: CORE_TO_CORE,
    },
    Published {
        name: "xeon-ice-lake",
        transfer_ns: 51.0,
        what: "Intel Xeon Platinum 8375C, 32 cores, 2021: median; 108 ns between sockets",
        source: CORE_TO_CORE,
    },
    Published {
        name: "xeon-sapphire-rapids",
        transfer_ns: 59.0,
        what: "Intel Sapphire Rapids, two sockets, 2023: mean within a socket, 81 ns at worst",
        source: LARGE_SYSTEMS,
    },
    Published {
        name: "xeon-sapphire-rapids-2s",
        transfer_ns: 138.0,
        what: "Intel Sapphire Rapids, two sockets, 2023: mean between sockets",
        source: LARGE_SYSTEMS,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_figure_and_a_source_with_a_date() {
        for name in names() {
            let profile = profile(name).expect("it is in the table");
            assert!((10.0..1_000.0).contains(&profile.transfer_ns), "{profile:?}");
            assert!(profile.source.contains("202"), "no date: {profile:?}");
            assert!(profile.source.contains(".com") || profile.source.contains(".dev"));
        }
        assert!(names().is_sorted());
        assert_eq!(profile("altra").map(|profile| profile.transfer_ns), Some(145.0));
    }
}
