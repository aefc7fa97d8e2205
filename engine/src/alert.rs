//! Fatal alerts in the clear, for handshakes that end before rustls has a word in it.

pub use rustls::AlertDescription;

use crate::record::ALERT;

/// A fatal alert as a whole record; nothing has been encrypted when it is sent.
pub fn fatal(description: AlertDescription) -> [u8; ALERT_RECORD_LEN] {
    [ALERT, 3, 3, 0, 2, LEVEL_FATAL, u8::from(description)]
}

/// Bytes of an alert in the clear, with its record's header.
pub const ALERT_RECORD_LEN: usize = 7;

const LEVEL_FATAL: u8 = 2;
