//! The machine of a run, [`describe`], and how quiet it was, [`Watch`].

use std::{fs, thread, time::Instant};

use rustix::thread::sched_getaffinity;
use sealane_lab_model::document::{Machine, Noise};

/// Reads what the kernel tells; what it does not tell is empty.
#[must_use]
pub fn describe() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let allowed = allowed_processors();
    let places: Vec<Location> = allowed.iter().map(|processor| Location::of(*processor)).collect();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim_end_matches("kB").trim().parse().ok())
        .unwrap_or_default();
    Machine {
        processor: processor_name(&cpuinfo),
        processors: allowed.len(),
        threads_per_core: places.iter().map(|place| place.sibling + 1).max().unwrap_or(1),
        pin_order: pin_order(places),
        kernel: line_of("/proc/sys/kernel/osrelease").unwrap_or_default(),
        memory_bytes: memory_kib * 1_024,
        virtualised: cpuinfo
            .lines()
            .any(|line| line.starts_with("flags") && line.ends_with(" hypervisor"))
            || cpuinfo.contains(" hypervisor "),
        governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
}

/// Notes how quiet the machine is, from now on.
pub struct Watch {
    load_average: f64,
    steal: Option<Steal>,
    spin_variation: f64,
}

impl Watch {
    /// Begins; takes a few tens of milliseconds for the spin test.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            spin_variation: spin_variation(),
            load_average: load_average(),
            steal: Steal::so_far(),
        }
    }

    /// What was noted until now.
    #[must_use]
    pub fn noise(&self) -> Noise {
        Noise {
            load_average: [self.load_average, load_average()],
            steal_percent: Steal::percent(self.steal, Steal::so_far()),
            spin_variation: self.spin_variation,
        }
    }
}

/// Processor time of the machine, and what the hypervisor took of it, since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    stolen_ticks: u64,
    all_ticks: u64,
}

impl Steal {
    /// Until now; `None` if the kernel does not tell.
    #[must_use]
    pub fn so_far() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Stolen share of the processor time between two readings, in percent; 0 without them.
    #[must_use]
    pub fn percent(before: Option<Self>, after: Option<Self>) -> f64 {
        let (Some(before), Some(after)) = (before, after) else { return 0.0 };
        let all = after.all_ticks.saturating_sub(before.all_ticks);
        let stolen = after.stolen_ticks.saturating_sub(before.stolen_ticks);
        if all == 0 { 0.0 } else { 100.0 * stolen as f64 / all as f64 }
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let all_ticks = ticks.get(..8)?.iter().sum();
        Some(Self { stolen_ticks: ticks[7], all_ticks })
    }
}

/// The processors that this process may run on.
pub fn allowed_processors() -> Vec<usize> {
    let count = thread::available_parallelism().map_or(1, usize::from);
    match sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => (0..count).collect(),
    }
}

/// Where a processor sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Location {
    /// 0 for the first thread of a core, 1 for its sibling.
    sibling: usize,
    socket: usize,
    core: usize,
    processor: usize,
}

impl Location {
    fn of(processor: usize) -> Self {
        let folder = format!("/sys/devices/system/cpu/cpu{processor}/topology");
        let read = |name: &str| line_of(&format!("{folder}/{name}"));
        let number = |name: &str| read(name).and_then(|text| text.parse().ok());
        let siblings = read("thread_siblings_list").map(|list| numbers(&list)).unwrap_or_default();
        Self {
            sibling: siblings.iter().position(|other| *other == processor).unwrap_or(0),
            socket: number("physical_package_id").unwrap_or(0),
            core: number("core_id").unwrap_or(processor),
            processor,
        }
    }
}

/// One processor per core, socket after socket, then their siblings.
fn pin_order(mut places: Vec<Location>) -> Vec<usize> {
    places.sort_unstable();
    places.into_iter().map(|place| place.processor).collect()
}

/// A list such as `0-2,8`.
fn numbers(list: &str) -> Vec<usize> {
    let part = |part: &str| -> Option<Vec<usize>> {
        match part.split_once('-') {
            Some((first, last)) => Some((first.parse().ok()?..=last.parse().ok()?).collect()),
            None => Some(vec![part.parse().ok()?]),
        }
    };
    list.split(',').filter_map(|text| part(text.trim())).flatten().collect()
}

fn processor_name(cpuinfo: &str) -> String {
    ["model name", "Hardware", "CPU part"]
        .iter()
        .find_map(|key| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn load_average() -> f64 {
    line_of("/proc/loadavg")
        .and_then(|line| line.split(' ').next()?.parse().ok())
        .unwrap_or_default()
}

fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// How much the duration of the same work varies: coefficient of variation.
fn spin_variation() -> f64 {
    let durations: Vec<f64> = (0..SPINS)
        .map(|_| {
            let begun = Instant::now();
            let mut value = 1_u64;
            for _ in 0..SPIN_STEPS {
                value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005) + 1);
            }
            begun.elapsed().as_secs_f64()
        })
        .collect();
    let mean = durations.iter().sum::<f64>() / durations.len() as f64;
    let square = |duration: &f64| (duration - mean).powi(2);
    (durations.iter().map(square).sum::<f64>() / durations.len() as f64).sqrt() / mean
}

const SPINS: usize = 50;
const SPIN_STEPS: u32 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_to_all_cores_before_their_siblings() {
        let place =
            |sibling, socket, core, processor| Location { sibling, socket, core, processor };
        let places = vec![
            place(1, 0, 0, 1),
            place(0, 1, 0, 4),
            place(0, 0, 0, 0),
            place(1, 1, 0, 5),
            place(0, 0, 1, 2),
            place(1, 0, 1, 3),
        ];
        assert_eq!(pin_order(places), [0, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(numbers("3"), [3]);
        assert!(numbers("nonsense").is_empty());
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = Steal::parse("cpu  10 0 10 100 0 0 0 5 3 0\ncpu0 1");
        let after = Steal::parse("cpu  60 0 10 140 0 0 0 15 9 0\ncpu0 1");
        assert_eq!(Steal::percent(before, after), 10.0);
        assert_eq!(Steal::percent(before, before), 0.0);
        assert_eq!(Steal::percent(None, after), 0.0);
        assert_eq!(Steal::parse("cpu 1 2"), None);
    }

    #[test]
    fn this_machine_has_a_place_for_each_thread() {
        let machine = describe();
        assert!(machine.processors > 0);
        assert_eq!(machine.pin_order.len(), machine.processors);
        assert!(machine.memory_bytes > 0 && !machine.kernel.is_empty());
        let noise = Watch::begin().noise();
        assert!(noise.spin_variation.is_finite() && noise.steal_percent >= 0.0);
    }
}
