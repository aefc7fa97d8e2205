//! The [`Account`] of a trace: who wrote what, how often, in which phase, and the rows of the
//! ledger that come of it.

use std::collections::{BTreeMap, BTreeSet};

use sealane_lab_model::document::{KernelCall, KernelRow};

use crate::kernel_ledger::{
    calls::{self, Kind, Object},
    owners::{self, Owners},
    trace::Event,
};

/// What threads have written so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    objects: BTreeMap<Object, Written>,
    /// Objects that are one and the same, by the one that stands for them.
    same: BTreeMap<Object, Object>,
}

/// What was written of one object.
#[derive(Clone, Debug, Default)]
struct Written {
    /// By call and phase.
    calls: BTreeMap<String, [u64; PHASES]>,
    /// Those that wrote.
    writers: BTreeSet<u32>,
    /// Those that wait for it, though nothing has come of that yet.
    waiters: BTreeSet<u32>,
    /// Those that had it when it was written, or might have had it; the most at a time.
    holders: usize,
}

impl Written {
    /// Who shares it: those that have a table or a map, and those that use anything else.
    fn sharers(&self, kind: Kind) -> usize {
        match kind {
            Kind::Table | Kind::Map => self.holders,
            // Threads that pass are not there at once.
            _ => self.writers.union(&self.waiters).count().min(self.holders),
        }
    }

    fn add(&mut self, other: Self) {
        for (call, counts) in other.calls {
            let sums = self.calls.entry(call).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.writers.extend(other.writers);
        self.waiters.extend(other.waiters);
        self.holders = self.holders.max(other.holders);
    }
}

impl Account {
    /// Adds what came in one phase, and follows who has what.
    pub(super) fn add(&mut self, events: &[Event], phase: usize, owners: &mut Owners) {
        let births = owners::births(events);
        for event in events {
            owners.follow(event, &births);
            let Event::Call(call) = event else { continue };
            let Some(its) = owners.of_thread(call.thread) else { continue };
            for (object, told) in calls::writes(call, its) {
                let holders = match object {
                    Object::Table(table) | Object::Epoll(table, _) | Object::Timer(table, _) => {
                        owners.of_table(table).len()
                    }
                    Object::Map(map) | Object::Futex(map, _) | Object::ProcessTimers(map) => {
                        owners.of_map(map).len()
                    }
                    Object::Listener(_) => usize::MAX,
                };
                let written = self.objects.entry(object).or_default();
                written.holders = written.holders.max(holders);
                written.writers.insert(call.thread);
                if let Some(count) = written.calls.entry(told).or_default().get_mut(phase) {
                    *count += 1;
                }
            }
        }
    }

    /// The epoll instances and timers: table and descriptor.
    pub(super) fn descriptors(&self) -> Vec<(Object, usize, u32)> {
        let told = |object: &Object| match *object {
            Object::Epoll(table, descriptor) | Object::Timer(table, descriptor) => {
                Some((*object, table, descriptor))
            }
            _ => None,
        };
        self.objects.keys().filter_map(told).collect()
    }

    /// The listening sockets, by their inodes.
    pub(super) fn listeners(&self) -> BTreeSet<u64> {
        let told = |object: &Object| match *object {
            Object::Listener(inode) => Some(inode),
            _ => None,
        };
        self.objects.keys().filter_map(told).collect()
    }

    /// Those that used that object.
    pub(super) fn writers(&self, object: Object) -> BTreeSet<u32> {
        self.objects.get(&object).map(|written| written.writers.clone()).unwrap_or_default()
    }

    /// These threads wait for that object, so that they share it.
    pub(super) fn waits(&mut self, object: Object, threads: &BTreeSet<u32>) {
        if let Some(written) = self.objects.get_mut(&object) {
            written.waiters.extend(threads);
        }
    }

    /// Both are one object.
    pub(super) fn are_same(&mut self, one: Object, other: Object) {
        if let Some(written) = self.objects.get_mut(&one) {
            written.holders = usize::MAX;
        }
        self.same.insert(other, one);
    }

    /// A row for each kind. Of the phases, the first is the warm-up, and those after it have
    /// `connections`, twice and three times as many.
    pub(super) fn rows(&self, connections: u64) -> Vec<KernelRow> {
        let mut objects: BTreeMap<Object, Written> = BTreeMap::new();
        for (object, written) in &self.objects {
            let object = self.same.get(object).unwrap_or(object);
            objects.entry(*object).or_default().add(written.clone());
        }
        let row = |kind: Kind| {
            let of_kind = || objects.iter().filter(move |(object, _)| object.kind() == kind);
            row(kind, of_kind().map(|(_, written)| written), connections)
        };
        Kind::ALL.into_iter().map(row).collect()
    }
}

fn row<'a>(kind: Kind, objects: impl Iterator<Item = &'a Written>, connections: u64) -> KernelRow {
    let (mut shared, mut apart) = (Written::default(), Written::default());
    let mut row = KernelRow {
        object: kind.words().to_owned(),
        removal: kind.removal().to_owned(),
        exact: true,
        ..KernelRow::default()
    };
    for written in objects {
        let sharers = written.sharers(kind);
        if sharers < 2 {
            apart.add(written.clone());
            continue;
        }
        row.shared += 1;
        row.threads = row.threads.max(sharers as u64);
        row.writers = row.writers.max(written.writers.len().min(sharers) as u64);
        shared.add(written.clone());
    }
    let per_connection = |counts: &[u64; PHASES]| {
        let [_, short, middle, long, ..] = *counts;
        // Of the two steps the smaller one: what chance adds to one of them does not count.
        let step = middle.saturating_sub(short).min(long.saturating_sub(middle));
        // To the nearest whole number: what happens now and then is not what a connection does.
        (step + connections / 2) / connections
    };
    let lengths = |counts: &[u64; PHASES]| [counts[1], counts[2], counts[3]];
    for (call, counts) in &shared.calls {
        let call = KernelCall {
            call: call.clone(),
            per_connection: per_connection(counts),
            lengths: lengths(counts),
        };
        // What happened in the warm-up alone is the start's.
        if call.lengths.iter().any(|count| *count > 0) {
            row.calls.push(call);
        }
    }
    row.calls.sort_by(|a, b| b.per_connection.cmp(&a.per_connection).then(a.call.cmp(&b.call)));
    row.per_connection = row.calls.iter().map(|call| call.per_connection).sum();
    // How often somebody waits at his own is a matter of timing, and nobody's affair.
    if matches!(kind, Kind::Table | Kind::Map) {
        row.apart = apart.calls.values().map(per_connection).sum();
    }
    row
}

/// The warm-up, three lengths, and connections that are held.
pub(super) const PHASES: usize = 5;
