//! The running lanes, and every generation that one of them may still hold: [`LaneGroup`].

use std::sync::Arc;

use sealane_file_table::FileTable;
use sealane_lanes::generation::{Generation, Publication};
use sealane_lanes::handover::Parcel;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;
use sealane_traffic::backends::RelaySettings;

use crate::sockets::NewSockets;
use crate::watchdog::Watchdog;

/// The lanes of the process, and their generations.
pub(super) struct LaneGroup {
    handles: Vec<LaneHandle<RelaySettings>>,
    /// The current one last. They are kept here so that the last owner, which frees what may be
    /// many certificates, is this thread and not a lane.
    generations: Vec<Arc<Generation<RelaySettings>>>,
    /// The number of the newest generation.
    number: u64,
    watchdog: Option<Watchdog>,
}

/// The end of all lanes.
pub(super) struct LanesEnd {
    /// Connections that were still open when their lane ended.
    pub(super) cut: usize,
    /// The last lane that did not end in order.
    pub(super) lost: Option<usize>,
}

impl LaneGroup {
    /// No lane yet.
    pub(super) fn new() -> Self {
        let watchdog = Watchdog::of_this_process();
        Self { handles: Vec::new(), generations: Vec::new(), number: 0, watchdog }
    }

    /// Adds a lane that runs.
    pub(super) fn add(&mut self, lane: LaneHandle<RelaySettings>) {
        self.handles.push(lane);
    }

    pub(super) fn count(&self) -> usize {
        self.handles.len()
    }

    /// The number of the newest generation.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The newest generation.
    pub(super) fn current(&self) -> Option<&Arc<Generation<RelaySettings>>> {
        self.generations.last()
    }

    /// Every generation that a lane may still hold.
    pub(super) fn generations(&self) -> &[Arc<Generation<RelaySettings>>] {
        &self.generations
    }

    /// Makes `generation` the newest one.
    pub(super) fn adopt(&mut self, generation: &Arc<Generation<RelaySettings>>) {
        self.number = generation.number;
        self.generations.push(Arc::clone(generation));
    }

    /// Sends `generation` to all lanes, each with its parcel of new sockets.
    pub(super) fn publish(
        &self,
        generation: &Arc<Generation<RelaySettings>>,
        parcels: impl Iterator<Item = Parcel>,
    ) {
        for (lane, parcel) in self.handles.iter().zip(parcels) {
            let generation = Arc::clone(generation);
            lane.post(Mail::Publish(Box::new(Publication { generation, parcel })));
        }
    }

    /// Sends each lane the mail that is made of its number.
    pub(super) fn post_each(&self, mut mail: impl FnMut(usize) -> Mail<RelaySettings>) {
        for lane in &self.handles {
            lane.post(mail(lane.number));
        }
    }

    /// Hands each lane its new sockets.
    ///
    /// # Errors
    /// A line for the first lane that cannot take them; no lane has any then.
    pub(super) fn hand_over(
        &mut self,
        sockets: &mut NewSockets,
    ) -> Result<Vec<Parcel>, Vec<String>> {
        sockets.hand_over(&mut self.handles)
    }

    /// Frees generations that no lane holds any more.
    pub(super) fn release_unused(&mut self) {
        self.generations.retain(|generation| Arc::strong_count(generation) > 1);
    }

    /// The time until the service manager's watchdog needs a report, if there is one.
    pub(super) fn watchdog_wait(&self) -> Option<std::time::Duration> {
        self.watchdog.as_ref().map(Watchdog::wait)
    }

    /// Reports to the service manager that the lanes answer.
    pub(super) fn report_to_watchdog(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.look(&self.handles);
        }
    }

    /// A lane whose thread has ended by itself.
    pub(super) fn lost(&self) -> Option<usize> {
        self.handles.iter().find(|lane| lane.has_ended()).map(|lane| lane.number)
    }

    pub(super) fn have_ended(&self) -> bool {
        self.handles.iter().all(LaneHandle::has_ended)
    }

    /// The lanes with a table of open files of their own, and why the first other one has none.
    pub(super) fn own_tables(&self) -> (usize, Option<String>) {
        let is_own = |lane: &&LaneHandle<RelaySettings>| lane.file_table == FileTable::Own;
        let refusal = self.handles.iter().find_map(|lane| lane.refusal.as_ref());
        (self.handles.iter().filter(is_own).count(), refusal.map(ToString::to_string))
    }

    /// Waits for all threads.
    pub(super) fn join(self) -> LanesEnd {
        let mut end = LanesEnd { cut: 0, lost: None };
        for lane in self.handles {
            let number = lane.number;
            match lane.join() {
                Ok(of_lane) => end.cut += of_lane.cut,
                Err(_) => end.lost = Some(number),
            }
        }
        end
    }
}
