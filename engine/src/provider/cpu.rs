//! The processor features that graviola needs and this machine lacks.
//!
//! Graviola asserts these at every entry: without this check a lane would panic in its first
//! handshake.

/// The names of the features graviola 0.4 asserts and this processor lacks.
pub(super) fn missing_for_graviola() -> Vec<&'static str> {
    missing(&needed_by_graviola())
}

fn missing(features: &[(&'static str, bool)]) -> Vec<&'static str> {
    features.iter().filter(|(_, present)| !present).map(|(name, _)| *name).collect()
}

#[cfg(target_arch = "x86_64")]
fn needed_by_graviola() -> [(&'static str, bool); 6] {
    [
        ("aes", is_x86_feature_detected!("aes")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("bmi1", is_x86_feature_detected!("bmi1")),
        ("adx", is_x86_feature_detected!("adx") || GRAVIOLA_RUNS_WITHOUT_ADX),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn needed_by_graviola() -> [(&'static str, bool); 4] {
    use std::arch::is_aarch64_feature_detected;
    [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("aes", is_aarch64_feature_detected!("aes")),
        ("pmull", is_aarch64_feature_detected!("pmull")),
        ("sha2", is_aarch64_feature_detected!("sha2")),
    ]
}

/// Graviola built with this variable runs under valgrind, which executes ADX but does not report
/// it.
#[cfg(target_arch = "x86_64")]
const GRAVIOLA_RUNS_WITHOUT_ADX: bool = option_env!("VALGRIND_BUG_494162").is_some();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_named() {
        assert_eq!(missing(&[("aes", true), ("adx", false), ("avx2", false)]), ["adx", "avx2"]);
    }

    #[test]
    fn nothing_missing_means_graviola_runs() {
        if missing_for_graviola().is_empty() {
            // Panics if graviola asserts a feature that the list above lacks.
            graviola::hashing::sha2::Sha256Context::new().update(b"runs");
            let key = graviola::key_agreement::x25519::StaticPrivateKey::from_array(&[7; 32]);
            key.public_key();
        }
    }
}
