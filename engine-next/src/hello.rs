//! The engine's look at hellos, and what its tests make of them.

#[path = "../../engine/src/hello/extend.rs"]
pub(crate) mod extend;

pub(crate) use sealane_engine::hello::*;
