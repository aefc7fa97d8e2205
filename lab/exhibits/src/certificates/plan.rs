//! What is measured: the rows, each a strategy under some [`Circumstances`], and what they tell.

use std::{collections::BTreeMap, path::Path, time::Duration};

use sealane_lab_harness::{
    strategies::{Cell, Plan, counted, measured, named, word},
    trial::Task,
};
use sealane_lab_model::{document::Figure, error::Error};

use crate::certificates::{
    Arguments, Strategy,
    decoding::ALLOCATIONS,
    generation,
    rates::KEPT_RATE,
    task::{CertificateTask, Deployment},
};

impl Arguments {
    /// Everything that is measured, of the certificates in `folder`.
    ///
    /// # Errors
    /// A path that JSON has no words for.
    pub(super) fn plan(&self, folder: &Path) -> Result<Plan, Error> {
        Ok(Plan {
            command: "certificates",
            settings: named([
                ("certificates", self.certs.to_string()),
                ("connections", self.conns.to_string()),
                ("clients", self.clients.to_string()),
                ("threads", self.threads.to_string()),
                ("names", self.asked_for()),
            ]),
            figures: figures(),
            cells: self.cells(folder)?,
            rounds: self.shuffled.number(),
            seed: self.shuffled.seed(),
            time_max: self.time_max(),
        })
    }

    /// How names are asked for.
    fn asked_for(&self) -> String {
        match self.zipf() {
            Some(exponent) => format!("by Zipf, exponent {exponent}"),
            None => "each in turn".into(),
        }
    }

    /// The exponent, if names are drawn at all.
    fn zipf(&self) -> Option<f64> {
        self.names.is_some().then_some(self.zipf)
    }

    /// The longest that a trial takes.
    pub(super) fn time_max(&self) -> Duration {
        let held = held(self.live.iter().copied().max().unwrap_or(0));
        let each = TIME_PER_CONNECTION_MAX + Duration::from_millis(self.owner_cost_ms.into());
        let deployment = Duration::from_secs(2 * self.deployment.unwrap_or(0));
        TIME_MAX + deployment + each * (self.conns + self.certs + 2 * held)
    }

    fn cells(&self, folder: &Path) -> Result<Vec<Cell>, Error> {
        let cell = |(variant, task): (_, CertificateTask)| {
            let strategy = match task.deployment {
                _ if task.is_plain => PLAIN.to_owned(),
                Some(deployment) => word(&deployment.strategy),
                None => word(&task.strategy),
            };
            Ok(Cell { strategy, variant, task: Task::new(&task)? })
        };
        self.tasks(folder).into_iter().map(cell).collect()
    }

    /// A row's variant, and its task. Within each variant, the remedy comes last; and of the
    /// variants, the plain one with the most live entries, before the row without TLS.
    pub(super) fn tasks(&self, folder: &Path) -> Vec<(BTreeMap<String, String>, CertificateTask)> {
        let mut strategies = self.strategy.clone();
        if strategies.is_empty() {
            strategies = vec![Strategy::Central, Strategy::PerConnection, Strategy::Lane];
        }
        strategies.sort_unstable();
        strategies.dedup();
        let mut live = self.live.clone();
        live.sort_unstable();
        live.dedup();
        let few = self.live_least();
        let plain =
            |live| Circumstances { live, owner_cost_ms: 0, replaces: false, deploys: false };
        let injected = Circumstances { owner_cost_ms: self.owner_cost_ms, ..plain(few) };
        let mut all = Vec::new();
        if self.deployment.is_some() {
            all.push(Circumstances { deploys: true, ..plain(few) });
        }
        if self.owner_cost_ms > 0 {
            all.extend(self.deployment.map(|_| Circumstances { deploys: true, ..injected }));
            all.push(injected);
        }
        all.push(Circumstances { replaces: true, ..plain(few) });
        all.extend(live.into_iter().map(plain));
        let mut tasks = Vec::new();
        for circumstances in all {
            let of_strategy = |strategy: &Strategy| {
                (circumstances.variant(), self.task(folder, *strategy, circumstances))
            };
            tasks.extend(strategies.iter().map(of_strategy));
        }
        let task = self.task(folder, Strategy::PerConnection, plain(few));
        let variant = named([("transport", "http".to_owned())]);
        tasks.push((variant, CertificateTask { is_plain: true, ..task }));
        tasks
    }

    fn live_least(&self) -> u32 {
        self.live.iter().copied().min().unwrap_or(0)
    }

    /// Whether a row's rate is searched for: nothing special happens, and little is live.
    pub(super) fn is_searched(&self, task: &CertificateTask) -> bool {
        let is_ordinary = task.owner_cost_ms == 0 && !task.replaces && task.deployment.is_none();
        is_ordinary && task.held == held(self.live_least()) as usize
    }

    fn task(
        &self,
        folder: &Path,
        strategy: Strategy,
        circumstances: Circumstances,
    ) -> CertificateTask {
        let Circumstances { live, owner_cost_ms, replaces, deploys } = circumstances;
        let deployment = self.deployment.filter(|_| deploys);
        CertificateTask {
            // Before it comes the fault.
            strategy: if deploys { Strategy::Central } else { strategy },
            deployment: deployment.map(|seconds| Deployment { strategy, seconds }),
            folder: folder.to_owned(),
            is_plain: false,
            connections: self.conns as usize,
            held: held(live) as usize,
            threads: self.threads as usize,
            clients: self.clients as usize,
            rate: None,
            owner_cost_ms: u64::from(owner_cost_ms),
            replaces,
            seed: self.shuffled.seed(),
            zipf: self.zipf(),
            fault: self.fault,
        }
    }
}

/// What tells rows of one strategy apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Circumstances {
    live: u32,
    owner_cost_ms: u32,
    replaces: bool,
    deploys: bool,
}

impl Circumstances {
    fn variant(self) -> BTreeMap<String, String> {
        let mut variant: BTreeMap<_, _> =
            named([(LIVE, self.live.to_string()), ("transport", "https".to_owned())]);
        if self.owner_cost_ms > 0 {
            variant.insert(INJECTED.to_owned(), format!("{} ms", self.owner_cost_ms));
        }
        if self.replaces {
            variant.insert(REPLACED.to_owned(), "10%".to_owned());
        }
        if self.deploys {
            variant.insert(DEPLOYED.to_owned(), "in the middle".to_owned());
        }
        variant
    }
}

/// Connections that have so many certificates together.
pub(super) fn held(live: u32) -> u32 {
    live.div_ceil(generation::CHAIN_CERTIFICATES)
}

/// What each means, in this order: connections that got the certificate of their name and an
/// answer, and those that failed; handshakes that were timed, and all there were, with those of
/// connections held before; certificates decoded for them; different names that a thread was asked
/// for, summed over threads; certificates that the engine parsed before; what those that decode for
/// each handshake allocate for it, if asked; messages to the owner per connection; messages that
/// waited for it at the same time; entries that it looked at when a connection closed; the highest
/// rate that keeps the percentile, if asked; and at the end, held connections that got an answer,
/// replaced names that show their new certificate, and entries of the owner or generations that
/// nobody uses.
fn figures() -> Vec<Figure> {
    vec![
        counted("verified", "right"),
        counted("failed", "failed"),
        counted("timed", "timed"),
        counted("handshakes", "handshakes in all"),
        counted("decoded", "decoded"),
        counted("first_uses", "first uses"),
        counted("indexed", "indexed"),
        counted(ALLOCATIONS, "allocated each"),
        counted("messages", "messages each"),
        counted("waiting", "waiting at once"),
        counted("visited", "visited per close"),
        measured("cpu_us", "server CPU per connection", "us", "less"),
        measured("rate", "connections", "per second", "more"),
        measured("p50_ms", "round trip p50", "ms", "less"),
        measured("p99_ms", "round trip p99", "ms", "less"),
        // Which is not compared: it is a step of the search.
        Figure { better: None, ..measured(KEPT_RATE, "rate that keeps p99", "per second", "more") },
        counted("held_answered", "old ones answered"),
        counted("replaced_shown", "replaced ones shown"),
        counted("left", "left behind"),
    ]
}

/// The row without TLS.
pub(super) const PLAIN: &str = "no certificates";
/// Keys of variants.
pub(super) const LIVE: &str = "live";
pub(super) const INJECTED: &str = "injected owner cost";
pub(super) const DEPLOYED: &str = "deployed";
pub(super) const REPLACED: &str = "replaced";
/// Beside the connections of a trial.
const TIME_MAX: Duration = Duration::from_secs(60);
const TIME_PER_CONNECTION_MAX: Duration = Duration::from_millis(50);
