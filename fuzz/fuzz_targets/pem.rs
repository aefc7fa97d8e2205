//! Certificates and keys as PEM: any bytes are read or refused, and an index can be built of them.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    CHAIN_CERTIFICATES_MAX, DefaultCertificate, IndexBuilder, PemContents,
};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};

thread_local! {
    static PROVIDER: LazyCell<CryptoProvider> = const { LazyCell::new(|| {
        lane_provider(ProviderChoice::Auto, &Group::ALL).expect("a provider").crypto
    }) };
}

fuzz_target!(|text: &[u8]| {
    match PemContents::parse("fuzzed", text) {
        Ok(contents) => assert!(contents.certificates.len() <= CHAIN_CERTIFICATES_MAX),
        Err(error) => assert!(error.to_string().contains("fuzzed"), "{error}"),
    }
    PROVIDER.with(|provider| {
        let mut builder = IndexBuilder::new(provider, 1_700_000_000);
        builder.add("fuzzed", text);
        let indexed = builder.finish(DefaultCertificate::First);
        for certificate in indexed.index.iter() {
            let _ = certificate.verify(provider);
        }
    });
});
