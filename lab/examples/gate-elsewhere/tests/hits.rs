//! Two threads count hits: as many as `sealane-lab gate` says, or a few.
#![forbid(unsafe_code)]

use std::{
    env,
    sync::{Arc, Barrier},
    thread,
};

use hit_counter::{Counter, Site};

#[test]
fn two_threads_count_every_hit() {
    let operations = operations();
    let site = Site::new(&["/", "/about", "/contact"]);
    // Both counters exist at the same time: memory that one thread gives back and the next one gets
    // would look shared.
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for share in [operations / 2, operations - operations / 2] {
            let (site, both) = (Arc::clone(&site), &both);
            scope.spawn(move || {
                let mut counter = Counter::new(&site);
                both.wait();
                for _ in 0..share {
                    assert!(counter.hit("/about"));
                }
            });
        }
    });
    assert_eq!(site.hits(), [0, operations, 0]);
}

/// Operations of all threads together.
fn operations() -> u64 {
    match env::var("SEALANE_GATE_OPERATIONS") {
        Ok(text) => text.parse().expect("SEALANE_GATE_OPERATIONS is a number"),
        Err(_) => 100,
    }
}
