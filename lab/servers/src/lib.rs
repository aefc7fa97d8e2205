//! Real TLS servers under load: the terminators of [`servers`], anybody's by [`connect`], and the
//! package for [`node`].
#![forbid(unsafe_code)]

pub mod connect;
pub mod load;
pub mod node;
pub mod servers;
