//! Session tickets: a ticket opens if and only if it was sealed here.
#![no_main]

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealane_engine::policy::Policy;
use sealane_engine::provider::random;
use sealane_engine::tickets::{
    LaneClock, LaneTickets, LeafDigest, TicketRoot, Ticketer, UnixSeconds,
};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

thread_local! {
    static TICKETER: LazyCell<Ticketer> = const { LazyCell::new(|| {
        let root = TicketRoot::generate(Duration::from_secs(3_600), NOW, |bytes| bytes.fill(3));
        let clock = Arc::new(LaneClock::new(NOW));
        let tickets = LaneTickets::new(root.expect("a root"), clock, random::fill);
        tickets.ticketer(Policy::default().digest())
    }) };
}

fuzz_target!(|bytes: &[u8]| {
    let [leaf, other] = [b"leaf1", b"leaf2"].map(|der| LeafDigest::of(der));
    TICKETER.with(|ticketer| {
        assert_eq!(ticketer.open(&leaf, bytes), None);
        if let Some(mut ticket) = ticketer.seal(&leaf, bytes) {
            assert_eq!(ticketer.open(&leaf, &ticket).as_deref(), Some(bytes));
            assert_eq!(ticketer.open(&other, &ticket), None);
            let at = bytes.first().map_or(0, |byte| usize::from(*byte) % ticket.len());
            ticket[at] ^= 1;
            assert_eq!(ticketer.open(&leaf, &ticket), None, "byte {at} was changed");
        }
    });
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = TicketRoot::from_text(text);
    }
});
