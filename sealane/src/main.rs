//! placeholder
use sealane as _;
fn main() {}
