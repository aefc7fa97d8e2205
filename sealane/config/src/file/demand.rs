//! Refuses a listener by which clients reach a backend that another of its names guards with client
//! certificates.

use super::super::Listener;
use super::super::demand::{REMEDY, undercuts_within};
use super::super::mistake::Problem;
use super::super::reader::Value;

/// Notes each demand of `listener` for client certificates that another of its names undercuts;
/// `routes` and `at` are where its routes and itself are written.
pub(super) fn check_demands(listener: &Listener, routes: &[Value<'_>], at: &Value<'_>) {
    for undercut in undercuts_within(listener) {
        let written = undercut.route().and_then(|index| routes.get(index)).unwrap_or(at);
        written.wrong(Problem::new(undercut.text(), REMEDY));
    }
}
