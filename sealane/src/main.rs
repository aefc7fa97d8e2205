//! placeholder
#![forbid(unsafe_code)]

use sealane as _;
fn main() {}
