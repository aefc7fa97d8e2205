//! What the server waits for, in sentences: [`findings`]. Each follows from a rule that is printed
//! beside it; the first rule that holds gives the verdict. Measured only: nothing is forecast.

mod kernel_lock;
mod wanted_lock;

use std::collections::BTreeMap;

use sealane_lab_model::{
    document::{Live, LiveFinding, LiveKind, LiveThread},
    number::number,
};

use super::{
    names::{READY, STOPPED, Waits},
    runtime,
    samples::LOCK,
};

use kernel_lock::{table_lock, told};
use wanted_lock::{WantedLock, busiest_place};

/// The verdict, then what else is worth a line.
pub(super) fn findings(live: &Live) -> Vec<LiveFinding> {
    let seen = Seen::of(live);
    let verdicts: [fn(&Live, &Seen<'_>) -> Option<LiveFinding>; 10] = [
        too_little,
        sleeps_for_lock,
        table_lock,
        works_at_locks,
        disk,
        one_loop,
        on_processor,
        starved,
        clients,
        other_threads,
    ];
    let verdict = verdicts.iter().find_map(|rule| rule(live, &seen));
    let first = verdict.unwrap_or_else(|| none_holds(&seen));
    let mut all = vec![first];
    if all[0].kind == LiveKind::NotEnough {
        return all;
    }
    let more = [table_lock, works_at_locks, processors, skew].map(|rule| rule(live, &seen));
    for finding in more.into_iter().flatten() {
        if all.iter().all(|other| other.kind != finding.kind) {
            all.push(finding);
        }
    }
    all
}

/// What rules look at.
struct Seen<'a> {
    /// Threads that took part: those that wait for a signal, or did nothing else, do not.
    workers: Vec<Worker<'a>>,
    /// Processors that would have been busy, had there been enough.
    wanted: f64,
}

/// One thread; shares of the time, 0 to 1.
struct Worker<'a> {
    thread: &'a LiveThread,
    /// On a processor.
    cpu: f64,
    /// Ready and without one, as far as the kernel counts that.
    delayed: f64,
    /// One or the other.
    ready: f64,
    /// Asleep until a client, or a backend, does something.
    peers: f64,
    disk: f64,
    /// Asleep in futex.
    threads: f64,
}

impl<'a> Seen<'a> {
    fn of(live: &'a Live) -> Self {
        let window = (live.watched_seconds * 1e9).max(1.0);
        let workers = live.threads.iter().map(|thread| {
            let state = |wanted: Waits| -> f64 {
                let states = thread.states.iter();
                states.filter(|(s, _)| Waits::of(s) == Some(wanted)).map(|(_, share)| share).sum()
            };
            let cpu = (thread.cpu_ns as f64 / window).min(1.0);
            let delayed = (thread.run_delay_ns as f64 / window).min(1.0 - cpu);
            // Kernels that count no delay leave it to the samples.
            let sampled = thread.states.get(READY).copied().unwrap_or_default();
            let ready = if thread.run_delay_ns > 0 { cpu + delayed } else { cpu.max(sampled) };
            let peers = state(Waits::Peers);
            let (disk, threads) = (state(Waits::Disk), state(Waits::Threads));
            Worker { thread, cpu, delayed, ready, peers, disk, threads }
        });
        let takes_part = |worker: &Worker<'_>| {
            worker.ready >= READY_MIN
                || worker.peers >= PART
                || worker.disk >= PART
                || worker.thread.lock_wait >= PART
                || worker.threads >= HALF
        };
        let mut workers: Vec<Worker<'_>> = workers.filter(takes_part).collect();
        workers.sort_by(|a, b| b.ready.total_cmp(&a.ready));
        let wanted = workers.iter().map(|worker| worker.ready).sum();
        Self { workers, wanted }
    }

    fn busiest(&self) -> Option<&Worker<'a>> {
        self.workers.first()
    }

    /// Those for whom `share` is at least `least`, and its mean among them.
    fn with(&self, share: fn(&Worker<'_>) -> f64, least: f64) -> (Vec<&Worker<'a>>, f64) {
        let found: Vec<&Worker<'_>> = self.workers.iter().filter(|w| share(w) >= least).collect();
        let sum: f64 = found.iter().map(|worker| share(worker)).sum();
        let mean = if found.is_empty() { 0.0 } else { sum / found.len() as f64 };
        (found, mean)
    }

    /// `3 of 4 active threads sleep`.
    fn sleep(&self, some: usize) -> String {
        match (some, self.workers.len()) {
            (_, 1) => "its only active thread sleeps".into(),
            (1, all) => format!("1 of {all} active threads sleeps"),
            (_, all) => format!("{some} of {all} active threads sleep"),
        }
    }
}

fn too_little(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let stopped = |thread: &LiveThread| thread.states.get(STOPPED).is_some_and(|it| *it >= HALF);
    let why = match () {
        () if seen.workers.is_empty() && live.threads.iter().any(stopped) => {
            "a signal has stopped it, as kill -STOP does, until it gets a SIGCONT"
        }
        () if live.samples < SAMPLES_MIN && live.ended => "it ended too soon",
        () if live.samples < SAMPLES_MIN => {
            "its threads were looked at too seldom, for which --seconds gives more time"
        }
        () if seen.workers.is_empty() => {
            "no thread ran, and none slept in a call that tells what it waits for"
        }
        () => return None,
    };
    let sentence = format!(
        "not enough to say: {why} ({} looks at {} threads in {} s)",
        live.samples,
        live.threads.len(),
        number(live.watched_seconds)
    );
    let rule = format!("fewer than {SAMPLES_MIN} looks at its threads, or no active thread");
    Some(LiveFinding { kind: LiveKind::NotEnough, sentence, rule })
}

fn sleeps_for_lock(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let (waiting, mean) = seen.with(|worker| worker.thread.lock_wait, PART);
    // Where one thread waits for clients and the others for their turn, nobody is held up.
    let in_turn = seen.wanted < IDLE_MAX && !seen.with(|worker| worker.peers, HALF).0.is_empty();
    if waiting.len() < 2 || in_turn {
        return None;
    }
    let mut sentence = format!(
        "{} until another gives up a lock, {} of the time: it waits for a lock",
        seen.sleep(waiting.len()),
        percent(mean)
    );
    for (state, words) in told() {
        let so = |worker: &&&Worker<'_>| worker.thread.states.contains_key(state);
        if waiting.iter().filter(so).count() * 2 > waiting.len() {
            sentence += words;
        }
    }
    if let Some(futex) = &live.futex {
        if let Some((waits, ns)) = futex.waits.zip(futex.waited_ns) {
            let (waits, seconds) = (number(waits as f64), number(ns as f64 / 1e9));
            sentence += &format!("; {waits} waits in futex took {seconds} s together");
        }
        let paths = futex.paths.iter().filter(|path| path.kind == LOCK);
        if let Some(WantedLock { under, lock, .. }) = busiest_place(paths) {
            sentence += &format!("; most begin in {lock} under {under}");
        }
    }
    let rule = format!(
        "at least 2 threads sleep for a lock {} of the time or more: in a futex that has a mutex's \
         form, in one that is reached through a lock's function, or in the kernel while they \
         change the memory map or get a descriptor",
        percent(PART)
    );
    Some(LiveFinding { kind: LiveKind::WaitsForLock, sentence, rule })
}

fn works_at_locks(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let profile = live.profile.as_ref().filter(|profile| profile.samples >= PROFILE_MIN)?;
    let several = seen.with(|worker| worker.ready, READY_MIN).0.len() >= 2;
    if !several || profile.lock_share < LOCK_SHARE_MIN {
        return None;
    }
    let paths = profile.paths.iter().filter(|path| path.kind == LOCK);
    let place = busiest_place(paths)?;
    let WantedLock { lock, under, owner } = place;
    let waits = live.futex.as_ref().and_then(|futex| futex.waits).unwrap_or_default();
    let one_slept = |worker: &Worker<'_>| worker.thread.lock_wait >= READY_MIN;
    let slept = seen.workers.iter().any(one_slept) || waits as f64 > live.watched_seconds;
    let what = if slept {
        format!("lock contention in {owner}")
    } else {
        format!(
            "no thread slept for one, so that the locks of {owner} are shared ones whose cache \
             lines move, or each thread's own and taken very often"
        )
    };
    let sentence = format!(
        "{} of its CPU time is in {lock} under {under}: {what}",
        percent(profile.lock_share)
    );
    let rule = format!(
        "at least {} of {} samples or more are in lock functions, and several threads run; it is \
         contention where threads slept in futex",
        percent(LOCK_SHARE_MIN),
        PROFILE_MIN
    );
    Some(LiveFinding { kind: LiveKind::LockContention, sentence, rule })
}

fn disk(_: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let (waiting, mean) = seen.with(|worker| worker.disk, PART);
    if waiting.is_empty() {
        return None;
    }
    let sentence = format!(
        "{} in the kernel for storage, {} of the time: it waits for the disk",
        seen.sleep(waiting.len()),
        percent(mean)
    );
    let rule = format!("a thread is in the state D {} of the time or more", percent(PART));
    Some(LiveFinding { kind: LiveKind::WaitsForDisk, sentence, rule })
}

fn one_loop(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let busiest = seen.busiest()?;
    let others = seen.workers.get(1).map_or(0.0, |worker| worker.ready);
    if busiest.ready < BUSY_MIN || others > OTHERS_MAX || live.processors_allowed < 2 {
        return None;
    }
    let others = match seen.workers.len() {
        1 => "no other does anything".to_owned(),
        _ => format!("each of the others at most {}", percent(others)),
    };
    let sentence = format!(
        "thread {} ({}) {}, {others}, and it may use {} processors: one event loop is the limit{}",
        busiest.thread.tid,
        busiest.thread.name,
        ran(busiest.cpu, busiest.ready),
        live.processors_allowed,
        doing(live)
    );
    let rule = format!(
        "one thread is on a processor, or ready for one, {} of the time or more, every other {} or \
         less",
        percent(BUSY_MIN),
        percent(OTHERS_MAX)
    );
    Some(LiveFinding { kind: LiveKind::SingleLoop, sentence, rule })
}

fn on_processor(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let (busy, _) = seen.with(|worker| worker.ready, BUSY_MIN);
    let places = live.processors_allowed.min(seen.workers.len()).max(1);
    if busy.is_empty() || seen.wanted < BUSY_MIN * places as f64 {
        return None;
    }
    let busy = match (busy.len(), seen.workers.len()) {
        (_, 1) => "its only active thread is".to_owned(),
        (1, all) => format!("1 of {all} active threads is"),
        (some, all) => format!("{some} of {all} active threads are"),
    };
    let sentence = format!(
        "{busy} on a processor, or ready for one, all the time; it used {} of {} processors: it \
         computes{}",
        number(live.processors_used),
        live.processors_allowed,
        doing(live)
    );
    let rule =
        format!("threads want {} or more of as many processors as they may use", percent(BUSY_MIN));
    Some(LiveFinding { kind: LiveKind::OnProcessor, sentence, rule })
}

/// [`processors`] is the verdict where the want of them is more than the want of clients.
fn starved(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let sum = |share: fn(&Worker<'_>) -> f64| seen.workers.iter().map(share).sum::<f64>();
    if sum(|worker| worker.delayed) <= sum(|worker| worker.peers) {
        return None;
    }
    processors(live, seen)
}

fn clients(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let (waiting, mean) = seen.with(|worker| worker.peers, 1.0 - BUSY_MIN);
    let busiest = seen.busiest()?;
    if waiting.is_empty() || busiest.ready >= BUSY_MIN {
        return None;
    }
    let mut calls: BTreeMap<&str, f64> = BTreeMap::new();
    for (state, share) in waiting.iter().flat_map(|worker| &worker.thread.states) {
        if Waits::of(state) == Some(Waits::Peers) {
            *calls.entry(state).or_default() += share;
        }
    }
    let (call, _) = calls.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let sentence = format!(
        "{} in {call} {} of the time, and the busiest {}: it waits for clients (or for backends, \
         if it has any), {}",
        seen.sleep(waiting.len()),
        percent(mean),
        ran(busiest.cpu, busiest.ready),
        if hides_locks(live) { HIDDEN } else { "not for a lock" }
    );
    let rule = format!(
        "threads sleep in calls on sockets {} of the time or more, none is busy for {}, and no \
         rule of a lock holds",
        percent(1.0 - BUSY_MIN),
        percent(BUSY_MIN)
    );
    Some(LiveFinding { kind: LiveKind::WaitsForClients, sentence, rule })
}

fn other_threads(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let (waiting, mean) = seen.with(|worker| worker.threads, HALF);
    if waiting.is_empty() {
        return None;
    }
    let sentence = format!(
        "{} in futex {} of the time, without the form or the call path of a lock: it waits until \
         another thread has work, {}",
        seen.sleep(waiting.len()),
        percent(mean),
        if hides_locks(live) { HIDDEN } else { "and not for a lock" }
    );
    let rule = format!(
        "threads sleep in futex {} of the time or more, none in calls on sockets, and no rule of a \
         lock holds",
        percent(HALF)
    );
    Some(LiveFinding { kind: LiveKind::WaitsForThreads, sentence, rule })
}

fn none_holds(seen: &Seen<'_>) -> LiveFinding {
    let busiest = seen.busiest().map_or(String::new(), |worker| {
        let states: Vec<String> = worker
            .thread
            .states
            .iter()
            .filter(|(_, share)| **share >= READY_MIN)
            .map(|(state, share)| format!("{state} {}", percent(*share)))
            .collect();
        format!("; the busiest thread: {}", states.join(", "))
    });
    LiveFinding {
        kind: LiveKind::NotEnough,
        sentence: format!("not enough to say: it does a little of everything{busiest}"),
        rule: "none of the other rules holds".into(),
    }
}

fn processors(live: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let cpu: f64 = seen.workers.iter().map(|worker| worker.cpu).sum();
    let delayed: f64 = seen.workers.iter().map(|worker| worker.delayed).sum();
    if seen.wanted < HALF || delayed < DELAY_MIN * seen.wanted {
        return None;
    }
    let sentence = format!(
        "of the time that its threads were ready, they had no processor for {}: it got {} of the \
         {} that it may use; the rest went to other programs or is beyond a limit of its \
         container, or its threads are more than that",
        percent(delayed / seen.wanted),
        number(cpu),
        live.processors_allowed
    );
    let rule =
        format!("threads wait for a processor {} of their ready time or more", percent(DELAY_MIN));
    Some(LiveFinding { kind: LiveKind::ProcessorsFull, sentence, rule })
}

fn skew(_: &Live, seen: &Seen<'_>) -> Option<LiveFinding> {
    let accepting = |worker: &&Worker<'_>| worker.thread.accepts.is_some_and(|some| some > 0);
    // Where one alone accepts, it may do so for all, as the first process of Node's cluster does.
    let [first, _, ..] = seen.workers.iter().filter(accepting).collect::<Vec<_>>()[..] else {
        return None;
    };
    // A worker that got none has the name of those that got some.
    let same = |worker: &&Worker<'_>| {
        accepting(worker)
            || worker.thread.name == first.thread.name && worker.peers + worker.ready >= PART
    };
    let accepts = seen.workers.iter().filter(same);
    let accepts: Vec<(u64, u32)> = accepts
        .map(|worker| (worker.thread.accepts.unwrap_or_default(), worker.thread.tid))
        .collect();
    let all: u64 = accepts.iter().map(|(count, _)| count).sum();
    let (most, tid) = accepts.iter().max().copied()?;
    let fair = all as f64 / accepts.len() as f64;
    let by_chance = fair + CHANCE_MAX * fair.sqrt();
    if all < ACCEPTS_MIN || (most as f64) < by_chance.max(SKEW_MIN * fair) {
        return None;
    }
    let sentence = format!(
        "thread {tid} accepted {most} of {all} connections, {} times its share among {} that \
         could: connections are dealt unevenly",
        number(most as f64 / fair),
        accepts.len()
    );
    let rule = format!(
        "several threads accept, and of at least {ACCEPTS_MIN} connections one accepted {SKEW_MIN} \
         times its share or more, and more than chance gives it"
    );
    Some(LiveFinding { kind: LiveKind::AcceptSkew, sentence, rule })
}

/// `, 78% of it in RSA`, if the profile tells.
fn doing(live: &Live) -> String {
    let profile = live.profile.as_ref().filter(|profile| profile.samples >= PROFILE_MIN);
    match profile.and_then(|profile| profile.work.first()) {
        Some(work) if work.share >= PART => {
            format!(", {} of it in {}", percent(work.share), work.work)
        }
        _ => String::new(),
    }
}

/// `uses 98% of a core`, and what it would use.
fn ran(cpu: f64, ready: f64) -> String {
    match ready - cpu {
        delay if delay < READY_MIN => format!("uses {} of a core", percent(cpu)),
        delay => {
            format!(
                "uses {} of a core and is ready without one for {}",
                percent(cpu),
                percent(delay)
            )
        }
    }
}

/// Whether its runtime has locks of its own.
fn hides_locks(live: &Live) -> bool {
    live.unseen.iter().any(|unseen| unseen.what == runtime::WHAT)
}

fn percent(share: f64) -> String {
    format!("{}%", number((100.0 * share).round()))
}

const ACCEPTS_MIN: u64 = 20;
const BUSY_MIN: f64 = 0.85;
/// Standard deviations of what chance gives one of many.
const CHANCE_MAX: f64 = 4.0;
const DELAY_MIN: f64 = 0.25;
const HALF: f64 = 0.5;
const HIDDEN: &str = "or for a lock of its runtime, which is not to be seen from outside";
/// The share of a processor.
const IDLE_MAX: f64 = 0.05;
const LOCK_SHARE_MIN: f64 = 0.15;
const OTHERS_MAX: f64 = 0.25;
const PART: f64 = 0.2;
const PROFILE_MIN: u64 = 50;
const READY_MIN: f64 = 0.01;
const SAMPLES_MIN: u32 = 10;
const SKEW_MIN: f64 = 1.5;

#[cfg(test)]
mod tests;
