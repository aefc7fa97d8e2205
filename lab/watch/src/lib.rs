//! What a running server waits for, seen from outside: [`live`].
#![forbid(unsafe_code)]

pub mod demangle;
pub mod live;
pub mod unwinding;
