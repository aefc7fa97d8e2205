//! Whose tables of open files lanes have, and what a configuration takes of them.

use std::collections::HashSet;

use sealane_config::{BACKENDS_MAX, BackendAddress, Config, Listener};
use sealane_file_table::{DESCRIPTOR_BYTES, FileTable, TABLE_DESCRIPTORS_MAX, can_be_own};
use sealane_traffic::checks::IN_FLIGHT_MAX;
use sealane_traffic::http;
use serde::Serialize;

/// Whether each lane can have a table of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTables {
    /// Each lane can have a table.
    OfLanes,
    /// All threads share one.
    Shared {
        /// Why.
        refusal: String,
    },
}

impl FileTables {
    /// Asks the kernel.
    pub fn of_this_machine() -> Self {
        match can_be_own() {
            Ok(()) => Self::OfLanes,
            Err(error) => Self::Shared { refusal: error.to_string() },
        }
    }

    /// What lanes are to have.
    pub fn wanted(&self) -> FileTable {
        match self {
            Self::OfLanes => FileTable::Own,
            Self::Shared { .. } => FileTable::Shared,
        }
    }

    /// What it costs that there is only one, and whose it is to mend.
    pub fn warning(&self) -> Option<String> {
        let Self::Shared { refusal } = self else { return None };
        Some(format!(
            "all lanes share one table of open files, for the kernel refuses close_range: \
             {refusal}; every accept, socket and close of a lane then writes what the others \
             write, and the limit of open files holds for all lanes together; allow close_range \
             in the filter of system calls (seccomp; Linux 5.9 or newer)"
        ))
    }
}

/// File descriptors that a configuration takes at its limits.
#[derive(Debug, Serialize)]
pub struct Descriptors {
    /// Descriptors of each lane: two per connection, one per address and one for what a reload puts
    /// in its place, and its own.
    pub per_lane: u64,
    /// Descriptors of all else: what is handed over when lanes start, those of folders with
    /// challenges, of checks in flight, and some for the rest.
    pub control: u64,
    /// Whether each lane has a table of its own, for which the limit of open files holds: otherwise
    /// it holds for all together.
    pub table_per_lane: bool,
    /// What the kernel takes for tables of that size.
    pub table_bytes: u64,
}

impl Descriptors {
    /// What `config` takes.
    pub fn of(config: &Config, tables: &FileTables) -> Self {
        let lanes = config.lanes.get() as u64;
        let connections = config.limits.per_lane(config.lanes).connections_max as u64;
        let addresses: usize =
            config.listeners.iter().map(|listener| listener.addresses.len()).sum();
        let responders: HashSet<_> =
            config.listeners.iter().filter_map(Listener::responder_label).collect();
        let mut descriptors = Self {
            per_lane: 2 * connections + 2 * addresses as u64 + DESCRIPTORS_PER_LANE,
            control: addresses as u64 * lanes
                + responders.len() as u64 * DESCRIPTORS_PER_RESPONDER
                + lanes * HANDLES_PER_LANE
                + checks_in_flight(config) as u64
                + OTHER_DESCRIPTORS,
            table_per_lane: *tables == FileTables::OfLanes,
            table_bytes: 0,
        };
        let bytes = |count: u64| count.min(TABLE_DESCRIPTORS_MAX) * DESCRIPTOR_BYTES;
        descriptors.table_bytes = if descriptors.table_per_lane {
            bytes(descriptors.control) + lanes * bytes(descriptors.per_lane)
        } else {
            bytes(descriptors.total(lanes))
        };
        descriptors
    }

    /// In all tables together.
    pub fn total(&self, lanes: u64) -> u64 {
        self.per_lane * lanes + self.control
    }

    /// In the table of the control plane, before there are lanes that may share it.
    pub fn in_first_table(&self, lanes: u64) -> u64 {
        if self.table_per_lane { self.control } else { self.total(lanes) }
    }

    /// Says if a table may not have so many.
    pub fn warning(&self, config: &Config, allowed: Option<u64>) -> Option<String> {
        let lanes = config.lanes.get() as u64;
        let connections = config.limits.per_lane(config.lanes).connections_max as u64;
        let (needed, whose, sharing) = if self.table_per_lane {
            (self.per_lane, "of each lane", 1)
        } else {
            (self.total(lanes), "of all lanes", lanes)
        };
        let allowed = allowed?;
        if self.table_per_lane && allowed < self.control {
            return Some(format!(
                "listeners: the sockets of all lanes take {} file descriptors when they are \
                 opened, this process may have {allowed}; raise that (ulimit -n, or LimitNOFILE= \
                 in the unit)",
                self.control
            ));
        }
        if allowed >= needed {
            return None;
        }
        let fixed = needed - 2 * connections * sharing;
        // A limit of all lanes is divided among them, rounded up.
        let each = allowed.saturating_sub(fixed) / 2 / sharing;
        Some(format!(
            "limits.connections: the {} connections {whose} take {needed} file descriptors, \
             this process may have {allowed}; raise that (ulimit -n, or LimitNOFILE= in the unit) \
             or lower the limit to {}",
            connections * sharing,
            each * lanes
        ))
    }
}

/// Checks of backends that can be in flight.
fn checks_in_flight(config: &Config) -> usize {
    let checked = config.listeners.iter().filter(|listener| listener.check.is_some());
    let destinations = checked.flat_map(Listener::destinations);
    let backends = destinations.map(|(_, destination)| {
        let mut all = destination.backends.iter().map(|(backend, _)| backend);
        // A name may lead to many.
        let has_name = all.any(|backend| matches!(backend, BackendAddress::Host { .. }));
        if has_name { BACKENDS_MAX } else { destination.backends.len() }
    });
    backends.sum::<usize>().min(IN_FLIGHT_MAX)
}

/// The standard streams, an event queue, a bell, a door, and two spare ones.
const DESCRIPTORS_PER_LANE: u64 = 8;
/// Descriptors of a folder with challenges: its connections, the listener and the wake-up, the
/// folder and a file that are being read.
const DESCRIPTORS_PER_RESPONDER: u64 = http::CONNECTIONS_MAX as u64 + 6;
/// The other ends of a lane's bell and door.
const HANDLES_PER_LANE: u64 = 2;
/// Standard streams, the admin interface, watched files, stores, logs.
const OTHER_DESCRIPTORS: u64 = 64;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(text: &str, tables: &FileTables) -> (Descriptors, Config) {
        let config = Config::parse(Path::new("/a.toml"), text).unwrap();
        (Descriptors::of(&config, tables), config)
    }

    #[test]
    fn checks_in_flight_take_descriptors_up_to_their_limit() {
        let control = |backends: &str, check: &str| {
            let listener = |port: u16| {
                format!(
                    "[[listener]]\naddress = \"[::1]:{port}\"\ncertificates = [\"c\"]\n\
                     backends = [{backends}]\n{check}\n"
                )
            };
            of(&(1..=20).map(listener).collect::<String>(), &FileTables::OfLanes).0.control
        };
        let more = |backends: &str| control(backends, "check = {}") - control(backends, "");
        assert_eq!(more("\"127.0.0.1:1\", \"127.0.0.1:2\""), 40);
        assert_eq!(more("\"a.test:1\""), IN_FLIGHT_MAX as u64, "each name may lead to 64");
    }

    #[test]
    fn a_folder_with_challenges_takes_descriptors_once() {
        let listeners = |keys: &str| {
            let of_port = |port| {
                format!("[[listener]]\naddress = \"[::1]:{port}\"\nplain = \"redirect\"\n{keys}\n")
            };
            of(&(of_port(80) + &of_port(81)), &FileTables::OfLanes).0.control
        };
        let more = listeners("acme_responder = \"web\"") - listeners("");
        assert_eq!(more, DESCRIPTORS_PER_RESPONDER);
    }

    /// What the warning says to lower the limit to is enough, and one more is too much.
    #[test]
    fn a_limit_holds_for_each_table() {
        let shared = FileTables::Shared { refusal: "no".into() };
        let cases = [(&FileTables::OfLanes, 1_000, 1_980), (&shared, 4_000, 1_940)];
        for (tables, allowed, enough) in cases {
            let said = |connections: u64| {
                let text = format!(
                    "lanes = 4\nlimits.connections = {connections}\n[[listener]]\n\
                     address = \"[::1]:80\"\nplain = \"redirect\"\n"
                );
                let (descriptors, config) = of(&text, tables);
                descriptors.warning(&config, Some(allowed))
            };
            let text = said(10_000).unwrap();
            assert!(text.ends_with(&format!("lower the limit to {enough}")), "{text}");
            assert_eq!(said(enough), None);
            assert!(said(enough + 4).is_some());
        }
    }

    /// 64 lanes with one address are opened by a table that is not theirs.
    #[test]
    fn the_table_that_opens_all_sockets_has_a_limit_too() {
        let text = "lanes = 64\nlimits.connections = 640\n[[listener]]\n\
                    address = \"[::1]:80\"\nplain = \"redirect\"\n";
        let (descriptors, config) = of(text, &FileTables::OfLanes);
        assert!(descriptors.per_lane < 100 && descriptors.control == 256);
        let said = descriptors.warning(&config, Some(255)).unwrap();
        assert!(said.starts_with("listeners: the sockets of all lanes take 256 file"), "{said}");
        assert_eq!(descriptors.warning(&config, Some(256)), None);
    }
}
