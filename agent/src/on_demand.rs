//! Certificates on demand, from outside the agent: names that clients of those who serve here ask
//! for ([`listen()`]), whose turn it is ([`Turns`]), and the operator's service that knows which
//! names may have one: [`Service`].

pub(crate) mod listen;
mod service;
mod turns;

pub(crate) use listen::{Asked, Task, listen};
pub(crate) use service::Service;
pub(crate) use turns::Turns;
