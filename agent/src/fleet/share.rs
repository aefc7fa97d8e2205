//! The exchange with the cluster, for as long as the process runs.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::member::Fleet;
use super::replica::Replica;

impl Fleet {
    /// Shares until the process ends: takes what others put there, puts there what is new here, and
    /// tells how this machine is. While the cluster is away it tries again.
    pub(crate) async fn share(self: Rc<Self>, changed: impl Fn(Vec<Vec<String>>)) {
        let mut wait = WAIT_MIN;
        loop {
            self.note_behind();
            let mut followed = Duration::ZERO;
            let failure = match Replica::listed(&self, &changed).await {
                Ok(mut replica) => {
                    let begun = Instant::now();
                    let well = || {
                        self.came_back();
                        // Orders that wait may begin.
                        changed(Vec::new());
                    };
                    let failure = replica.follow(&changed, well).await;
                    followed = begun.elapsed();
                    failure
                }
                Err(failure) => failure,
            };
            self.went_away(&failure);
            // A list takes long where there is much: that is no sign of a cluster that is well.
            wait = if followed > WAIT_MAX { WAIT_MIN } else { (wait * 2).min(WAIT_MAX) };
            let wait_now = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
            if tokio::time::timeout(wait_now, self.retry_now.notified()).await.is_ok() {
                wait = WAIT_MIN;
            }
        }
    }
}

/// The longest that a cluster which does not answer is left alone.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest.
const WAIT_MIN: Duration = Duration::from_millis(500);
