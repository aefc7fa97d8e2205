//! stub
use sealane_lanes::service::End;
pub struct LaneLog;
impl LaneLog {
    pub fn write(&mut self, _e: &End<'_>, _b: Option<&str>, _l: &str) {}
}
