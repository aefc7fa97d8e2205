//! Leaves the symbols of Node-API to the process that loads the addon.
#![forbid(unsafe_code)]

fn main() {
    napi_build::setup();
}
