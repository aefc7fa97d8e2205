//! Other programs' configurations: any text is refused with words, or becomes TOML. The first byte
//! chooses the dialect.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sealane_config::Config;
use sealane_convert::{Dialect, convert_text};

fuzz_target!(|text: &str| {
    let dialect = match text.as_bytes().first() {
        Some(b'h') => Dialect::Haproxy,
        Some(b'n') => Dialect::NginxStream,
        Some(b's') => Dialect::Stunnel,
        _ => Dialect::Hitch,
    };
    let text = text.get(1..).unwrap_or_default();
    match convert_text(dialect, Path::new("fuzzed"), text) {
        Ok(converted) => {
            let config = Config::parse(Path::new("fuzzed.toml"), &converted.toml);
            // A converted text with errors has remarks about them.
            assert!(config.is_ok() || converted.left_out > 0, "{}", converted.toml);
        }
        Err(mistake) => assert!(!mistake.to_string().is_empty()),
    }
});
