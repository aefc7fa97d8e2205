//! Certificates on demand, from outside the agent: names that clients of those who serve here ask
//! for ([`listen()`]), and the operator's service that knows which names may have one:
//! [`Service`].

mod listen;
mod service;

pub(crate) use listen::{Asked, Task, listen};
pub(crate) use service::Service;
