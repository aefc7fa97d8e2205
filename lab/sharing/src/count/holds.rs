//! How long locks are held, by the clock of this machine and never under valgrind, whose
//! instructions are not the machine's: [`measure`], from one thread at its own speed.
//!
//! A lock of the C library is timed by the interposer; a lock of Rust's standard library inside
//! rustls, by the function that holds it. Both leave out spans in which the thread had lost its
//! processor, and take off what reading the clock costs.

use sealane_lab_model::{error::Error, library::TimedCall, recording::Part};

use crate::count::{Tools, locks, recorded::part, subject::Subject};

/// A lock in one part of the work, and how long it is held there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeldLock {
    /// The lock's variable or who takes it, as in [`LockSite::lock`]; of a lock inside rustls, the
    /// function that holds it, without its type's name.
    ///
    /// [`LockSite::lock`]: sealane_lab_model::document::LockSite::lock
    pub(super) symbol: String,
    /// Where it is taken.
    pub(super) part: Part,
    /// Whether it is taken to read.
    pub(super) read: bool,
    /// How often.
    pub(super) calls_per_operation: f64,
    /// The mean.
    pub(super) ns: f64,
}

/// The locks that `subject` takes.
///
/// # Errors
/// What stopped a trial.
pub(super) fn measure(subject: &Subject, tools: &Tools) -> Result<Vec<HeldLock>, Error> {
    let native = subject.native_holds(tools)?;
    let mut held: Vec<HeldLock> = native.into_iter().filter_map(of_the_c_library).collect();
    let (calls, operations) = subject.timed_calls(tools)?;
    let reads = reads_tickets(&subject.stack);
    held.extend(calls.into_iter().map(|call| of_rustls(call, operations, reads)));
    Ok(held)
}

fn of_the_c_library(hold: locks::NativeHold) -> Option<HeldLock> {
    let part = part(hold.phase);
    (part != Part::Outside).then(|| HeldLock {
        symbol: hold.lock,
        part,
        read: hold.kind == "read",
        calls_per_operation: hold.calls,
        ns: hold.ns,
    })
}

fn of_rustls(call: TimedCall, operations: u64, reads_tickets: bool) -> HeldLock {
    let TimedCall { function, calls, ns } = call;
    let ticketer = ["decrypt", "encrypt"].contains(&function.as_str());
    let server = ticketer || ["get", "put", "take"].contains(&function.as_str());
    HeldLock {
        symbol: function,
        part: if server { Part::Server } else { Part::Client },
        read: ticketer && reads_tickets,
        calls_per_operation: calls as f64 / operations as f64,
        ns,
    }
}

/// rustls 0.23.17 put a read-write lock where a mutex was.
fn reads_tickets(stack: &str) -> bool {
    !stack.ends_with("@0.23.16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_rustls_tells_whose_lock_it_holds_and_how() {
        let call = |function: &str| TimedCall { function: function.into(), calls: 6, ns: 800.0 };
        let encrypt = of_rustls(call("encrypt"), 3, true);
        assert_eq!((encrypt.part, encrypt.read), (Part::Server, true));
        assert_eq!((encrypt.calls_per_operation, encrypt.ns), (2.0, 800.0));
        assert!(!of_rustls(call("encrypt"), 3, reads_tickets("rustls@0.23.16")).read);
        let taken = of_rustls(call("take_tls13_ticket"), 3, true);
        assert_eq!((taken.part, taken.read), (Part::Client, false));
        assert_eq!(of_rustls(call("get"), 3, true).part, Part::Server);
    }

    #[test]
    fn a_lock_of_the_c_library_has_its_phase_and_the_harness_s_own_none() {
        let hold = |phase, kind: &str| locks::NativeHold {
            lock: "x".into(),
            kind: kind.into(),
            phase,
            calls: 1.0,
            ns: 20.0,
        };
        let read = of_the_c_library(hold(3, "read")).expect("a phase");
        assert_eq!((read.part, read.read), (Part::ServerSetup, true));
        assert_eq!(of_the_c_library(hold(0, "read")), None);
    }
}
