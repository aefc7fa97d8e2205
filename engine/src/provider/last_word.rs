//! Alerts under keys that rustls has no word for.
//!
//! rustls alone has the keys of a handshake, and ends some of them without an alert, or with the
//! alert for another fault. So a session that ends makes rustls write any fatal alert, and puts its
//! own description in its place before that is encrypted.

use std::cell::Cell;

use rustls::crypto::cipher::OutboundPlainMessage;
use rustls::{AlertDescription, ContentType};

/// Runs `turn`; a fatal alert that is encrypted in it has this description.
pub(crate) fn with_last_word<T>(description: AlertDescription, turn: impl FnOnce() -> T) -> T {
    LAST_WORD.set(Some(description));
    let outcome = turn();
    LAST_WORD.set(None);
    outcome
}

/// The alert to encrypt in place of `message`, if that is one.
pub(super) fn last_word(message: &OutboundPlainMessage<'_>) -> Option<[u8; ALERT_LEN]> {
    let is_alert = message.typ == ContentType::Alert && message.payload.len() == ALERT_LEN;
    let description = LAST_WORD.get().filter(|_| is_alert)?;
    Some([LEVEL_FATAL, description.into()])
}

thread_local! {
    // By thread, because rustls passes nothing of ours to the encrypter.
    static LAST_WORD: Cell<Option<AlertDescription>> = const { Cell::new(None) };
}

const ALERT_LEN: usize = 2;
const LEVEL_FATAL: u8 = 2;
