//! A lane's context with one certificate, for targets that shake hands with it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::policy::{Group, Policy};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

/// The context, with trust and cryptography for its clients.
pub struct Site {
    pub context: LaneContext,
    pub roots: RootCertStore,
    pub provider: CryptoProvider,
}

impl Site {
    /// A context for `one.test` that hands out this number of tickets.
    pub fn new(tickets: usize) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).expect("made");
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).expect("a provider").crypto;
        let mut builder = IndexBuilder::new(&provider, 0);
        builder.add("one", pem.as_bytes());
        let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
        let now = UnixSeconds(1_700_000_000);
        let root = TicketRoot::generate(Duration::from_secs(3_600), now, |bytes| bytes.fill(3));
        let lane = LaneResources::new(root.expect("a root"), now, NonZeroUsize::MIN);
        let context = Context {
            id: ContextId::fresh(),
            policy: Policy { groups: vec![Group::X25519], ..Policy::default() },
            certificates,
            key_log: false,
            store: None,
            provider: ProviderChoice::Auto,
            tickets,
        };
        let context = LaneContext::new(&Arc::new(context), &lane).expect("a context");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root certificate");
        Self { context, roots, provider }
    }
}
