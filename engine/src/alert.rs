//! Fatal alerts in the clear, for handshakes that end before rustls has a word in it.

pub use rustls::AlertDescription;

use crate::record::ALERT;

/// A fatal alert as a whole record; nothing has been encrypted when it is sent.
pub fn fatal(description: AlertDescription) -> [u8; ALERT_RECORD_LEN] {
    [ALERT, 3, 3, 0, 2, LEVEL_FATAL, u8::from(description)]
}

/// The description in the fatal alert that `wire` ends with in the clear, if it does.
pub fn at_end_of(wire: &[u8]) -> Option<AlertDescription> {
    match wire.last_chunk::<ALERT_RECORD_LEN>()? {
        [ALERT, 3, _, 0, 2, LEVEL_FATAL, description] => Some((*description).into()),
        _ => None,
    }
}

/// The name that RFC 8446 gives an alert, as written there. Other numbers are "unassigned".
pub fn name(description: AlertDescription) -> &'static str {
    let number = u8::from(description);
    NAMES.iter().find(|(each, _)| *each == number).map_or("unassigned", |(_, name)| name)
}

/// From RFC 8446 section 6, and from RFC 5246 section 7.2 for reserved numbers.
const NAMES: [(u8, &str); 34] = [
    (0, "close_notify"),
    (10, "unexpected_message"),
    (20, "bad_record_mac"),
    (21, "decryption_failed"),
    (22, "record_overflow"),
    (30, "decompression_failure"),
    (40, "handshake_failure"),
    (41, "no_certificate"),
    (42, "bad_certificate"),
    (43, "unsupported_certificate"),
    (44, "certificate_revoked"),
    (45, "certificate_expired"),
    (46, "certificate_unknown"),
    (47, "illegal_parameter"),
    (48, "unknown_ca"),
    (49, "access_denied"),
    (50, "decode_error"),
    (51, "decrypt_error"),
    (60, "export_restriction"),
    (70, "protocol_version"),
    (71, "insufficient_security"),
    (80, "internal_error"),
    (86, "inappropriate_fallback"),
    (90, "user_canceled"),
    (100, "no_renegotiation"),
    (109, "missing_extension"),
    (110, "unsupported_extension"),
    (111, "certificate_unobtainable"),
    (112, "unrecognized_name"),
    (113, "bad_certificate_status_response"),
    (114, "bad_certificate_hash_value"),
    (115, "unknown_psk_identity"),
    (116, "certificate_required"),
    (120, "no_application_protocol"),
];

/// Bytes of an alert in the clear, with its record's header.
pub const ALERT_RECORD_LEN: usize = 7;

const LEVEL_FATAL: u8 = 2;
