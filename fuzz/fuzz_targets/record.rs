//! Records of a certificate store: any bytes are refused, or read and written back as they were.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_engine::certificates::{CHAIN_CERTIFICATES_MAX, NAMES_PER_CERTIFICATE_MAX};
use sealane_store::Record;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::parse(bytes) else { return };
    assert!(record.names.len() <= NAMES_PER_CERTIFICATE_MAX);
    assert!(record.intermediates.len() <= CHAIN_CERTIFICATES_MAX);
    let written = record.to_bytes().expect("every part was short enough to be read");
    assert_eq!(written, bytes);
});
