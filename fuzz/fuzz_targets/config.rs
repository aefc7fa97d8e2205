//! The configuration file: any text is read or refused with words that can be printed.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sealane_config::Config;

fuzz_target!(|text: &str| {
    if let Err(mistakes) = Config::parse(Path::new("fuzzed.toml"), text) {
        assert!(!mistakes.to_string().is_empty());
    }
});
