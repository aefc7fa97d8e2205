//! JavaScript's options of a server. `lib/options.js` has read them before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{ClassInstance, Uint8Array};
use napi::{Error, Result};
use napi_derive::napi;
use sealane_engine::context::Context as EngineContext;
use sealane_lanes::limits::Limits;
use sealane_lanes::timeouts::Timeouts;
use zeroize::Zeroizing;

use crate::context::Context;
use crate::control::{Plan, TicketKeys};
use crate::listen::Where;
use crate::settings::{Handover, Settings};

/// The options by which a server is made.
#[napi(object, object_to_js = false)]
pub struct ServerOptions<'env> {
    /// The count of lanes, which is that of the rings.
    pub lanes: u32,
    /// Whether each is tied to a processor.
    pub pin: Option<bool>,
    /// `auto`, `ring` or `socket`.
    pub handover: Option<String>,
    /// In milliseconds.
    pub handshake_timeout: f64,
    /// In milliseconds.
    pub shutdown_timeout: f64,
    /// Connections that a lane may hand over and JavaScript not take.
    pub max_pending: u32,
    /// Keys of 48 bytes each.
    pub ticket_keys: Vec<Uint8Array>,
    /// The lifetime of a ticket, in seconds.
    pub session_timeout: u32,
    /// Whether JavaScript chooses the context of each client.
    pub choose: Option<bool>,
    /// The first default context.
    pub context: ClassInstance<'env, Context>,
    /// A pair for each lane.
    pub rings: Vec<Ring>,
    /// Whether small writes leave at once.
    pub no_delay: Option<bool>,
    /// After how many seconds a silent client is probed; 0: after the system's time.
    pub keep_alive: Option<u32>,
}

/// The memory of one lane's rings.
#[napi(object, object_to_js = false)]
pub struct Ring {
    /// From the lane.
    pub events: Uint8Array,
    /// To the lane.
    pub commands: Uint8Array,
}

/// The place to listen at.
#[napi(object, object_to_js = false)]
pub struct WhereOptions {
    /// An IP address.
    pub host: Option<String>,
    /// The port of a TCP listener.
    pub port: Option<u16>,
    /// The path of a unix socket.
    pub path: Option<String>,
    /// The descriptor of a socket.
    pub fd: Option<i32>,
    /// Connections that may wait.
    pub backlog: Option<u32>,
    /// Whether `::` leaves IPv4 to others.
    pub ipv6_only: Option<bool>,
    /// Whether other processes may share the port.
    pub reuse_port: Option<bool>,
}

/// The address of a server, in Node's words.
#[napi(object, object_from_js = false)]
pub struct Address {
    /// The IP address.
    pub address: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// The port.
    pub port: u16,
}

impl ServerOptions<'_> {
    /// The context, the lanes' settings, and the memory of their rings.
    pub(super) fn read(self) -> Result<(Arc<EngineContext>, Plan, Vec<Ring>)> {
        let lanes = self.lanes as usize;
        if lanes == 0 || lanes > LANES_MAX || lanes != self.rings.len() {
            let reason = format!("lanes: {lanes}; give 1 to {LANES_MAX}, and a ring for each");
            return Err(Error::from_reason(reason));
        }
        let connections_max = CONNECTIONS_MAX / lanes;
        let settings = Settings {
            // The first publication brings the list.
            blocked: Arc::default(),
            handover: handover(self.handover.as_deref())?,
            shutdown_timeout: milliseconds(self.shutdown_timeout),
            no_delay: self.no_delay.unwrap_or(true),
            keep_alive: self.keep_alive.map(|after| Duration::from_secs(after.into())),
            asks: self.choose.unwrap_or(false),
        };
        let plan = Plan {
            lanes,
            pin: self.pin.unwrap_or(false),
            settings,
            limits: Limits { connections_max, ..Limits::default() },
            timeouts: Timeouts::of_handshake(milliseconds(self.handshake_timeout)),
            ticket_keys: ticket_keys(&self.ticket_keys)?,
            ticket_lifetime_s: self.session_timeout,
        };
        Ok((self.context.shared(), plan, self.rings))
    }
}

impl From<WhereOptions> for Where {
    fn from(options: WhereOptions) -> Self {
        Self {
            host: options.host,
            port: options.port.unwrap_or(0),
            path: options.path,
            fd: options.fd,
            backlog: options.backlog,
            ipv6_only: options.ipv6_only.unwrap_or(false),
            reuse_port: options.reuse_port.unwrap_or(false),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let family = if matches!(address.ip(), IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
        Self { address: address.ip().to_string(), family, port: address.port() }
    }
}

/// Secrets of the length that Node's users give.
pub(super) fn ticket_keys(keys: &[Uint8Array]) -> Result<TicketKeys> {
    let key = |(index, key): (usize, &Uint8Array)| {
        key.as_ref().try_into().map_err(|_| {
            Error::from_reason(format!("ticketKeys[{index}]: {} bytes; give 48", key.len()))
        })
    };
    keys.iter().enumerate().map(key).collect::<Result<_>>().map(Zeroizing::new)
}

fn handover(name: Option<&str>) -> Result<Handover> {
    match name.unwrap_or("auto") {
        "auto" => Ok(Handover::Auto),
        "ring" => Ok(Handover::Ring),
        "socket" => Ok(Handover::Socket),
        other => Err(Error::from_reason(format!("handover: {other:?}; give auto, ring or socket"))),
    }
}

/// 0, or a value that is no number: for ever.
fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1_000.0)
        .ok()
        .filter(|duration| !duration.is_zero())
        .unwrap_or(Duration::MAX)
}

/// Lanes of one server.
const LANES_MAX: usize = 1_024;
/// Connections of one server, more than descriptors: `maxConnections` is for JavaScript to judge.
const CONNECTIONS_MAX: usize = 1 << 22;
