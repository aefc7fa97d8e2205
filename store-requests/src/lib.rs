//! Requests to a certificate store over a socket: parsed, allowed or rejected, carried out, and
//! answered, independent of the transport.
//!
//! ```text
//!   PUT     a stream of PEM       -->  Upload: Bundles -> Batches -> a transaction for each batch
//!   GET     ?name=, ?after=       -->  Request::carry_out  -->  ReadBack
//!   DELETE  ?name=                -->  Request::carry_out  -->  Removed
//! ```
//!
//! There is no socket, clock or thread in it: bytes and time are arguments. Sealane's admin socket,
//! the agent's listener and `sealane certificates` use it.
#![forbid(unsafe_code)]

mod answer;
mod batches;
mod bundles;
pub mod query;
mod quota;
mod request;
mod upload;

pub use answer::{ReadBack, Removed, ShownCertificate, Stored, fingerprint, hex, shown};
pub use batches::{BATCH_BYTES, BATCH_MAX, Batch, Batches, May, Mistakes};
pub use bundles::{Bundle, Bundles};
pub use quota::{Quota, QuotaReached};
pub use request::{Answer, LIMIT_DEFAULT, LIMIT_MAX, NAMES_MAX, Refused, Request, remove};
pub use upload::{NotStored, STREAM_BYTES_MAX, StreamEnd, Tally, Upload};
