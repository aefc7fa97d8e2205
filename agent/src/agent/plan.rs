//! What settings ask for: a [`Plan`], and how an agent and its schedule are told.

use std::time::{Duration, SystemTime};

use sealane_operator::{Priority, say_at, value};
use sealane_renewal::{
    self as renewal, AuthorityId, CertificateId, Held, Limits, Rate, Schedule, UnixSeconds,
};
use sealane_store::Listed;
use tokio::task::spawn_local;

use crate::dns;
use crate::ledger::{DemandEntry, Ledger, LedgerError, OrderEntry, id_of};
use crate::settings::{Settings, WantedCertificate};

use super::{Agent, now};

/// What settings ask for, with what the store has of it.
pub(super) struct Plan {
    pub(super) certificates: Vec<(WantedCertificate, Option<Held>)>,
    /// Names on demand, with what the store has for each.
    pub(super) demands: Vec<(DemandEntry, Option<Held>)>,
    /// The generation of the store that it was made from.
    generation: u64,
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

impl Agent {
    /// Tells the schedule what is wanted and what there is, and finds orders to go on with.
    pub(super) fn adopt(&mut self, plan: Plan) {
        self.note_planned(plan.generation);
        let before = std::mem::take(&mut self.certificates);
        for (wanted, held) in plan.certificates {
            let id = id_of(&wanted.names);
            // What is shown in another way may come now.
            if before.get(&id).is_some_and(|known| *known != wanted) {
                self.schedule.forget(id);
            }
            self.schedule.want(now(), id, wanted.names.clone(), held);
            self.certificates.insert(id, wanted);
        }
        self.adopt_demands(plan.demands, &plan.orders, &before);
        for id in before.into_keys().filter(|id| !self.certificates.contains_key(id)) {
            self.schedule.forget(id);
        }
        self.resumed.clear();
        for (id, entry) in plan.orders {
            if self.under_way.contains_key(&id) {
                continue;
            }
            let is_wanted = self.certificates.contains_key(&id);
            match is_wanted && authority_of(&self.settings, &entry.directory).is_some() {
                true => self.resumed.push_back(id),
                false => self.give_up(id, entry),
            }
        }
    }

    /// Begins a schedule that knows nothing: nobody tells it of what is under way.
    pub(super) fn begin_schedule(&mut self) {
        self.schedule = schedule_of(&self.settings);
        self.generation += 1;
        self.certificates.clear();
        self.due.clear();
        for under_way in self.under_way.values_mut() {
            under_way.ticket = None;
        }
    }

    /// Plans anew when the clock was set back: by the schedule all would wait until it has caught
    /// up.
    pub(super) fn look_at_clock(&mut self, now: UnixSeconds) {
        let back_s = std::mem::replace(&mut self.seen, now).since(now);
        if back_s <= CLOCK_BACK_S_MAX {
            return;
        }
        let text = value::duration_text(Duration::from_secs(back_s));
        say_at(
            Priority::Warning,
            &format!("the clock was set back by {text}: all is planned anew"),
        );
        match Plan::of(&self.settings, &self.ledger) {
            Ok(plan) => {
                self.begin_schedule();
                self.adopt(plan);
            }
            Err(error) => say_at(Priority::Error, &format!("not planned anew: {error}")),
        }
    }

    /// Forgets an order that nobody wants any more.
    pub(super) fn give_up(&self, id: CertificateId, entry: OrderEntry) {
        if let Err(error) = self.ledger.drop_order(id, &entry) {
            return say_at(Priority::Warning, &error.to_string());
        }
        spawn_local(async move { dns::clean_up(&entry.records).await });
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

/// By how much a clock may be set back, as a daemon of time does, without a plan anew.
const CLOCK_BACK_S_MAX: u64 = 60;
