//! Counts hits of pages, each thread for itself: a [`Counter`] per thread, a [`Site`] for all.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};

/// What all threads read and none writes while it counts.
#[derive(Debug, Default)]
pub struct Site {
    pages: Vec<String>,
    finished: Mutex<Vec<u64>>,
}

impl Site {
    /// With its pages, in order.
    #[must_use]
    pub fn new(pages: &[&str]) -> Arc<Self> {
        let pages = pages.iter().map(|page| (*page).to_owned()).collect();
        Arc::new(Self { pages, finished: Mutex::default() })
    }

    /// Hits of each page, of the counters that are gone.
    #[must_use]
    pub fn hits(&self) -> Vec<u64> {
        let mut hits = self.finished.lock().map(|hits| hits.clone()).unwrap_or_default();
        hits.resize(self.pages.len(), 0);
        hits
    }
}

/// One thread's.
#[derive(Debug)]
pub struct Counter {
    site: Arc<Site>,
    hits: Vec<u64>,
}

impl Counter {
    /// The counter of a thread.
    #[must_use]
    pub fn new(site: &Arc<Site>) -> Self {
        Self { site: Arc::clone(site), hits: vec![0; site.pages.len()] }
    }

    /// Whether there is such a page; then one hit more.
    pub fn hit(&mut self, page: &str) -> bool {
        #[cfg(feature = "slower")]
        let _kept = Arc::clone(&self.site);
        let found = self.site.pages.iter().position(|known| known == page);
        found.map(|at| self.hits[at] += 1).is_some()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Ok(mut finished) = self.site.finished.lock() {
            finished.resize(self.hits.len(), 0);
            finished.iter_mut().zip(&self.hits).for_each(|(sum, hits)| *sum += hits);
        }
    }
}
