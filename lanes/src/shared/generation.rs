//! A generation as the control plane publishes it, and the replica that a lane makes of it.

use std::sync::Arc;
use std::time::Duration;

use sealane_engine::context::Context;

use crate::kernel::Address;
use crate::kernel::liveness::Liveness;
use crate::kernel::reuseport::Steer;
use crate::shared::handover::Parcel;
use crate::shared::limits::Limits;
use crate::shared::timeouts::Timeouts;

/// A complete, validated set of listeners; a lane takes it whole.
pub struct Generation<S> {
    /// Counts up with every publication.
    pub number: u64,
    /// Limits of each lane.
    pub limits: Limits,
    /// All listeners; one that is missing here closes.
    pub listeners: Vec<Listener<S>>,
}

/// One listener of a generation.
pub struct Listener<S> {
    /// The listener's number in the configuration, for logs.
    pub number: u32,
    /// Where it listens, which identifies it across generations: a lane keeps the sockets of a
    /// listener whose key comes again.
    pub keys: Vec<Address>,
    /// If connections begin with a preamble, which the service reads, such as a PROXY header or the
    /// request to begin with TLS: from accept to its end. More than the whole handshake may take is
    /// as much.
    pub preamble: Option<Duration>,
    /// What clients speak who ask for no name of [`Listener::named`].
    pub speech: Speech,
    /// What clients get that ask for certain names; of two with the same pattern the later counts.
    /// Without a meaning where clients are not expected to speak TLS.
    pub named: Vec<Named>,
    /// How the kernel finds out that its clients are gone. Whoever binds its sockets has them so
    /// already; those that a lane keeps are changed.
    pub liveness: Liveness,
    /// How clients are spread over the lanes; the sockets have it as they have `liveness`.
    pub steer: Steer,
    /// How long its connections may take, and be still.
    pub timeouts: Timeouts,
    /// What the service needs to know.
    pub settings: Arc<S>,
}

/// What is spoken on a listener, behind the preamble if there is one.
pub enum Speech {
    /// Bytes as they come, which the service gets as plaintext.
    Plain,
    /// TLS between the client and whoever is attached: the service gets the ciphertext, from the
    /// ClientHello on.
    Sealed,
    /// TLS that ends here, under these settings and with these certificates. A lane that has a
    /// replica of this very context in use makes no other.
    Tls(Arc<Context>),
}

/// What clients get that ask for some server names.
pub struct Named {
    /// A name, or `*.` before a name for exactly one more label. An exact name goes first.
    pub pattern: Box<str>,
    /// By which the service tells such a client: see [`Link::name_number`]. The number 0 is that of
    /// clients whose name is none of these.
    ///
    /// [`Link::name_number`]: crate::connection::link::Link::name_number
    pub number: u32,
    /// What ends its TLS; without it the service gets the ciphertext: [`Speech::Sealed`].
    pub context: Option<Arc<Context>>,
}

/// A generation, and which sockets are new in it, for one lane.
pub struct Publication<S> {
    /// What to serve from now on.
    pub generation: Arc<Generation<S>>,
    /// Freshly bound sockets, which the lane has been handed.
    pub parcel: Parcel,
}
