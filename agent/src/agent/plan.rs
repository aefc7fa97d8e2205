//! What settings ask for: a [`Plan`], and how an agent and its schedule are told.

use std::time::SystemTime;

use sealane_renewal::{
    self as renewal, AuthorityId, CertificateId, Held, Limits, Rate, Schedule, UnixSeconds,
};
use sealane_store::Listed;

use crate::ledger::{DemandEntry, Ledger, LedgerError, OrderEntry};
use crate::settings::{Settings, WantedCertificate};

/// What settings ask for, with what the store has of it.
pub(super) struct Plan {
    pub(super) certificates: Vec<(WantedCertificate, Option<Held>)>,
    /// Names on demand, with what the store has for each.
    pub(super) demands: Vec<(DemandEntry, Option<Held>)>,
    /// The generation of the store that it was made from.
    pub(super) generation: u64,
    pub(super) orders: Vec<(CertificateId, OrderEntry)>,
}

impl Plan {
    /// Reads all of it.
    ///
    /// # Errors
    /// The store cannot be read, or holds what another version remembered.
    pub(super) fn of(settings: &Settings, ledger: &Ledger) -> Result<Self, LedgerError> {
        let generation = ledger.generation()?;
        let mut certificates = Vec::new();
        for wanted in &settings.certificates {
            let held = ledger.held(&wanted.names)?.map(|held| held_of(settings, &held));
            certificates.push((wanted.clone(), held));
        }
        let mut demands = Vec::new();
        // Without on_demand they are left alone until they run out, or it is there again.
        let entries = if settings.on_demand.is_some() { ledger.demands()? } else { Vec::new() };
        for entry in entries {
            let held = ledger.held(std::slice::from_ref(&entry.name))?;
            demands.push((entry, held.map(|held| held_of(settings, &held))));
        }
        Ok(Self { certificates, demands, generation, orders: ledger.orders()? })
    }
}

/// A certificate of the store as the schedule has it.
pub(super) fn held_of(settings: &Settings, listed: &Listed) -> Held {
    Held {
        not_before: seconds(listed.not_before_s),
        not_after: seconds(listed.not_after_s),
        // One that came otherwise is renewed as well; its authority knows nothing of us.
        authority: authority_of(settings, &listed.label),
    }
}

/// The place of the authority with this directory, if the settings have it.
pub(super) fn authority_of(settings: &Settings, directory: &str) -> Option<AuthorityId> {
    let all = &settings.authorities;
    let place = all.iter().position(|authority| authority.directory == directory)?;
    u8::try_from(place).ok().map(AuthorityId)
}

/// A schedule of the authorities of these settings, without certificates.
pub(super) fn schedule_of(settings: &Settings) -> Schedule {
    let authorities = settings.authorities.iter().map(|authority| {
        let host = authority.directory.strip_prefix("https://").unwrap_or_default();
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let limits = match host == "letsencrypt.org" || host.ends_with(".letsencrypt.org") {
            true => Limits::lets_encrypt(),
            false => Limits::default(),
        };
        // Whether it has is seen when it is asked.
        renewal::Authority { has_renewal_info: true, limits }
    });
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = seed.map_or(0, |since| since.as_nanos()) ^ u128::from(std::process::id());
    let seed = u64::try_from(seed & u128::from(u64::MAX)).unwrap_or_default();
    let mut told = renewal::Settings::new(authorities.collect());
    if let Some(on_demand) = &settings.on_demand {
        let (count, period) = on_demand.rate;
        told.on_demand.rate = Rate::new(count, period.as_secs());
        told.on_demand.waiting_max = on_demand.waiting_max;
    }
    Schedule::new(told, seed)
}

/// A time as a certificate has it.
pub(super) fn seconds(time_s: i64) -> UnixSeconds {
    UnixSeconds(u64::try_from(time_s).unwrap_or(0))
}
