//! Calls of an authority, each with a number that is used once.

use instant_acme::Error;

use crate::failure::is_bad_nonce;

/// Calls again while the authority refuses nothing but the number that is to be used once; the
/// library does so twice.
pub(crate) async fn with_nonces<T>(
    mut call: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut left = NONCES_MAX;
    loop {
        match call().await {
            Err(error) if left > 0 && is_bad_nonce(&error) => left -= 1,
            answer => return answer,
        }
    }
}

/// Calls in which an authority may refuse three numbers in a row.
const NONCES_MAX: usize = 10;
