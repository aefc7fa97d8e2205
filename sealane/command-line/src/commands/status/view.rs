//! What was seen, as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use crate::commands::counted;
use crate::commands::running::{printable, printable_line};

use super::look::{
    AnnouncedRoot, Certificate, Fault, Faults, Lane, Look, Process, Reload, State, Tickets,
};

/// What is drawn in.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) lines: usize,
    pub(super) columns: usize,
}

impl Room {
    pub(super) const UNBOUNDED: Self = Self { lines: usize::MAX, columns: usize::MAX };
}

/// The picture of `now`; what is per second is of the time since `before`.
pub(super) fn draw(now: &Look, before: &Look, room: Room) -> String {
    let elapsed = now.at.duration_since(before.at);
    let mut text = String::new();
    // Nothing fails that writes into a string.
    let _ = head(&mut text, &now.state, &before.state, elapsed);
    let _ = lanes(&mut text, &now.state, &before.state, elapsed);
    let _ = backends(&mut text, &now.state);
    let _ = certificates(&mut text, &now.state);
    let _ = refused(&mut text, &now.state);
    fit(&text, room)
}

/// The table of backends alone.
pub(super) fn backends_of(state: &State) -> String {
    let mut text = String::new();
    // Nothing fails that writes into a string.
    let _ = backends(&mut text, state);
    text.trim_start_matches('\n').to_owned()
}

fn head(text: &mut String, now: &State, before: &State, elapsed: Duration) -> std::fmt::Result {
    let State { version, pid, phase, uptime_s, generation, reloads, tickets, .. } = now;
    let uptime = uptime_text(*uptime_s);
    writeln!(text, "sealane {version}, process {pid}, {phase}, up {uptime}")?;
    let open: u64 = now.lanes.iter().map(|lane| lane.connections).sum();
    let begun: u64 = now.lanes.iter().map(|lane| lane.handshakes_in_flight).sum();
    let rates = now.lanes.iter().map(|lane| rate(lane, before, elapsed));
    let rate = tenths(rates.sum());
    let connections = counted(open, "connection");
    writeln!(text, "{connections}, {begun} of them in handshakes; {rate} handshakes/s")?;
    overload(text, now)?;
    let (newest, live) = (generation.newest, generation.live_total);
    writeln!(
        text,
        "generation {newest}, {live} alive; tickets of epoch {} until {}",
        tickets.epoch, tickets.epoch_ends
    )?;
    roots(text, tickets)?;
    unheld(text, &now.process)?;
    faults(text, &now.faults)?;
    let reloaded = counted(reloads.accepted + reloads.refused, "reload");
    writeln!(text, "{reloaded}, {} refused", reloads.refused)?;
    for Reload { time, outcome, errors, warnings } in reloads.recent.iter().take(RELOADS_SHOWN_MAX)
    {
        writeln!(text, "  {time} {outcome}")?;
        for (kind, findings) in [("error", errors), ("warning", warnings)] {
            for finding in findings.iter().take(FINDINGS_SHOWN_MAX) {
                writeln!(text, "    {kind}: {}", printable(finding))?;
            }
        }
    }
    Ok(())
}

/// Handshakes that lanes have no time for, if there are any.
fn overload(text: &mut String, now: &State) -> std::fmt::Result {
    let waiting: u64 = now.lanes.iter().map(|lane| lane.handshakes_waiting).sum();
    let gave_way: u64 = now.lanes.iter().map(|lane| lane.handshakes_gave_way).sum();
    if waiting + gave_way == 0 {
        return Ok(());
    }
    writeln!(text, "overload: {waiting} handshakes wait, {gave_way} were reset since the start")
}

/// What changes of the root of ticket keys, and what is missing of it.
fn roots(text: &mut String, tickets: &Tickets) -> std::fmt::Result {
    for AnnouncedRoot { from } in &tickets.announced {
        writeln!(text, "another ticket root holds from {from}")?;
    }
    if let Some(root) = tickets.root.as_ref().filter(|_| !tickets.is_shared) {
        let root = printable_line(root);
        writeln!(text, "tickets of other machines are not opened: {root} has no usable root")?;
    }
    Ok(())
}

/// Materials that cannot be used as they are.
fn faults(text: &mut String, faults: &Faults) -> std::fmt::Result {
    if faults.total == 0 {
        return Ok(());
    }
    writeln!(text, "degraded: {}", counted(faults.total, "fault"))?;
    let mut left = faults.total;
    for Fault { listener, what, consequence } in faults.shown.iter().take(FINDINGS_SHOWN_MAX) {
        left = left.saturating_sub(1);
        let listener = listener.as_ref().map(|name| format!("listener {}: ", printable_line(name)));
        let (listener, what) = (listener.unwrap_or_default(), printable_line(what));
        writeln!(text, "  {listener}{what}; meanwhile {consequence}")?;
    }
    match left {
        0 => Ok(()),
        _ => writeln!(text, "  and {left} more: sealane status --json"),
    }
}

/// What the process is not kept from, and why.
fn unheld(text: &mut String, process: &Process) -> std::fmt::Result {
    let Process { landlock_refusal, memory_locked_refusal, seccomp_refusal } = process;
    for (what, refusal) in [
        ("what it may open is not limited", landlock_refusal),
        ("lanes may make every system call", seccomp_refusal),
        ("memory with keys may be written to swap", memory_locked_refusal),
    ] {
        if let Some(why) = refusal {
            writeln!(text, "{what}: {}", printable_line(why))?;
        }
    }
    Ok(())
}

fn lanes(text: &mut String, now: &State, before: &State, elapsed: Duration) -> std::fmt::Result {
    writeln!(text, "\n{:>6}{:>13}{:>14}{:>8}", "lane", "connections", "handshakes/s", "CPU %")?;
    for lane in &now.lanes {
        let was = of_lane(before, lane).and_then(|was| was.cpu_ms);
        let cpu = lane.cpu_ms.zip(was).map_or_else(
            || "-".to_owned(),
            // A thousandth of a second in each is a tenth of a hundredth.
            |(now, was)| tenths(per_second(now.saturating_sub(was), elapsed)),
        );
        let rate = tenths(rate(lane, before, elapsed));
        writeln!(text, "{:>6}{:>13}{rate:>14}{cpu:>8}", lane.lane, lane.connections)?;
    }
    Ok(())
}

fn backends(text: &mut String, now: &State) -> std::fmt::Result {
    writeln!(
        text,
        "\n  {:<40}{:>8}{:>13}{:>11}{:>9}",
        "backend", "state", "connections", "taken", "failed"
    )?;
    for each in &now.backends {
        let name = printable_line(&each.backend);
        writeln!(
            text,
            "  {name:<40}{:>8}{:>13}{:>11}{:>9}",
            each.state, each.connections, each.connected, each.failed
        )?;
        if let Some(why) = &each.why {
            writeln!(text, "    {}", printable_line(why))?;
        }
    }
    Ok(())
}

fn refused(text: &mut String, now: &State) -> std::fmt::Result {
    if !now.refused_clients.is_empty() {
        writeln!(text, "\n  {:<40}{:>8}", "refused most often", "times")?;
    }
    for each in now.refused_clients.iter().take(REFUSED_SHOWN_MAX) {
        writeln!(text, "  {:<40}{:>8}", printable_line(&each.client), each.count)?;
    }
    Ok(())
}

fn certificates(text: &mut String, now: &State) -> std::fmt::Result {
    let certificates = counted(now.certificates.total, "certificate");
    writeln!(text, "\n  {certificates}; the first to expire:")?;
    for each in now.certificates.soonest_to_expire.iter().take(CERTIFICATES_SHOWN_MAX) {
        let Certificate { listener, source, names, not_after } = each;
        let name = names.first().unwrap_or(source);
        let day = not_after.get(..DAY_LEN).unwrap_or(not_after);
        writeln!(text, "  {day}  {} ({})", printable_line(name), printable_line(listener))?;
    }
    Ok(())
}

/// Tenths of handshakes that a lane completed in a second.
fn rate(lane: &Lane, before: &State, elapsed: Duration) -> u64 {
    let was = of_lane(before, lane).map_or(0, |was| was.handshakes);
    per_second(lane.handshakes.saturating_sub(was) * 10, elapsed)
}

fn of_lane<'s>(state: &'s State, lane: &Lane) -> Option<&'s Lane> {
    state.lanes.iter().find(|each| each.lane == lane.lane)
}

fn per_second(count: u64, elapsed: Duration) -> u64 {
    let elapsed_ms = elapsed.as_millis().max(1);
    u64::try_from(u128::from(count) * 1_000 / elapsed_ms).unwrap_or(u64::MAX)
}

fn tenths(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn uptime_text(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn fit(text: &str, room: Room) -> String {
    let cut = |line: &str| line.chars().take(room.columns).collect::<String>();
    text.lines().take(room.lines).map(|line| cut(line) + "\n").collect()
}

/// The day in a time.
const DAY_LEN: usize = "2026-01-01".len();
const CERTIFICATES_SHOWN_MAX: usize = 10;
const FINDINGS_SHOWN_MAX: usize = 5;
const REFUSED_SHOWN_MAX: usize = 5;
const RELOADS_SHOWN_MAX: usize = 3;
