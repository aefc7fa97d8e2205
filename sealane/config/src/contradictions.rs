//! Keys of a listener that contradict each other or mean nothing together.

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::Table;

use crate::addresses::SOCKET_MODE;
use crate::certificates::{CERTIFICATES, DEFAULT_CERTIFICATE, ON_DEMAND};
use crate::check::CHECK;
use crate::client_trust::CLIENTS;
use crate::destination::{DESTINATION_KEYS, Destination, RESOLVE};
use crate::listener_limits::{
    ALLOW, CONNECTIONS_PER_CLIENT, DENY, HANDSHAKES_PER_CLIENT, ListenerLimits, STEER, Steering,
};
use crate::policy::{ALPN, HANDSHAKE_KEYS, UNKNOWN_NAMES};
use crate::proxy::{AcceptProxy, PROXY_FROM};
use crate::proxy_header::ProxyHeader;
use crate::route::{ROUTE, Route, ends_tls, written_routes};
use crate::spoken::{ALLOW_REMOTE, PASSTHROUGH, PLAIN, STARTTLS, Spoken};
use crate::value;

/// Reports keys without effect, and dangerous ones, for this protocol at `addresses`.
pub(crate) fn check_spoken(
    spoken: Spoken,
    table: &Table<'_>,
    addresses: &[Address],
    destination: Option<&Destination>,
    routes: &[Route],
) {
    let allow_remote = table.get(&ALLOW_REMOTE);
    if spoken != Spoken::Relay {
        let what = "means nothing but with plain = \"relay\"";
        table.refuse(&[ALLOW_REMOTE.name], what, "remove it");
    }
    match spoken {
        Spoken::Postgres => {
            let of_routes = routes.iter().filter_map(|route| route.destination.as_ref());
            let mut told = destination.into_iter().chain(of_routes).map(|to| to.proxy_header);
            if told.any(|told| told != ProxyHeader::Off) {
                let what = "PostgreSQL does not read PROXY headers";
                table.refuse(&[STARTTLS.name], what, "remove proxy_header");
            }
            let passes_on = table.get(&PASSTHROUGH);
            if passes_on || routes.iter().any(|route| route.policy.is_none()) {
                let what = "who answers the request for TLS has to end it";
                table.refuse(&[STARTTLS.name], what, "remove passthrough");
            }
        }
        Spoken::Redirect => {
            let remedy = "remove it, or plain";
            let what = "means nothing where every request is sent elsewhere";
            table.refuse(&DESTINATION_KEYS, what, remedy);
            table.refuse(&[CHECK.name, RESOLVE.name], what, remedy);
            refuse_tls(table, remedy);
        }
        Spoken::Relay => {
            refuse_tls(table, "remove it, or plain");
            if destination.is_some_and(|destination| destination.backend_tls.is_none()) {
                let what = "relays plain bytes to plain backends";
                table.refuse(&[PLAIN.name], what, "write \"tls://...\" or remove plain");
            }
            if !allow_remote && !addresses.iter().all(value::is_local) {
                let what = "whoever reaches this address speaks to the backends as if it were you";
                table.refuse(
                    &[PLAIN.name],
                    what,
                    "use 127.0.0.1, [::1] or unix:PATH, or say allow_remote = true",
                );
            }
        }
        Spoken::Tls => {}
    }
}

fn refuse_tls(table: &Table<'_>, remedy: &str) {
    let what = "means nothing where clients speak in the clear";
    table.refuse(&HANDSHAKE_KEYS, what, remedy);
    table.refuse(&TLS_KEYS, what, remedy);
}

/// Reports keys that contradict the pass-through of TLS by a listener or a route.
pub(crate) fn check_passed_on(table: &Table<'_>, passthrough: bool, routes: &[Route]) {
    for (route, at) in routes.iter().zip(written_routes(table)) {
        if passthrough && route.names.is_empty() {
            let what = "the listener passes TLS through, so no protocol is known";
            at.wrong(Problem::new(what, "name the host names whose TLS is terminated"));
        }
        // A backend for decrypted bytes cannot read TLS, and the other way round.
        if route.destination.is_none() && route.policy.is_none() != passthrough {
            let what = "the backends of its listener get something else than this route has";
            at.wrong(Problem::new(what, "name its backends"));
        }
    }
    if passthrough {
        let remedy = "put it into the routes that end TLS";
        table.refuse(&[CLIENTS.name], "nobody is asked where TLS is passed on", remedy);
        if !ends_tls(routes) {
            let what = "means nothing where all TLS is passed on";
            table.refuse(&HANDSHAKE_KEYS, what, "remove it, or passthrough");
            table.refuse(&UNUSED_WHERE_PASSED_ON, what, "remove it, or passthrough");
        }
    }
}

/// Reports keys without effect on unix sockets, or without one.
pub(crate) fn check_sockets(
    table: &Table<'_>,
    addresses: &[Address],
    proxy: Option<&AcceptProxy>,
    limits: &ListenerLimits,
) {
    if limits.steering == Steering::Client && proxy.is_some() {
        let what = "the peer is always the balancer";
        table.refuse(&[STEER.name], what, "remove it; limits per client are then per lane");
    }
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let (has_unix, has_tcp) = (addresses.iter().any(is_unix), !addresses.iter().all(is_unix));
    match proxy {
        Some(proxy) if has_unix && !proxy.from_unix => {
            let what = "nobody who uses the unix socket is believed, so nobody gets in there";
            table.refuse(&[PROXY_FROM.name], what, "add \"unix\"");
        }
        Some(proxy) if has_tcp && proxy.from.is_empty() && proxy.from_unix => {
            let what = "nobody who comes by TCP is believed, so nobody gets in there";
            table.refuse(&[PROXY_FROM.name], what, "add the networks of your balancers");
        }
        Some(proxy) if !has_unix && proxy.from_unix => {
            let what = "\"unix\" means nothing without a unix socket";
            table.refuse(&[PROXY_FROM.name], what, "remove it");
        }
        None if has_unix => {
            let what = "clients of a unix socket have no address";
            let remedy = "remove it, say accept_proxy = \"required\", or give the socket a \
                          listener of its own";
            for (key, is_meant) in [
                (ALLOW.name, !limits.allow.is_empty()),
                (CONNECTIONS_PER_CLIENT.name, limits.per_client.connections_max.is_some()),
                (DENY.name, !limits.deny.is_empty()),
                (HANDSHAKES_PER_CLIENT.name, limits.per_client.handshakes_per_s.is_some()),
            ] {
                if is_meant {
                    table.refuse(&[key], what, remedy);
                }
            }
        }
        Some(_) | None => {}
    }
    if !has_unix {
        table.refuse(&[SOCKET_MODE.name], "means nothing without a unix socket", "remove it");
    } else if !has_tcp {
        let what = "is about TCP, and all addresses are unix sockets";
        table.refuse(&[STEER.name], what, "remove it");
    }
}

/// Keys of a listener, beside [`HANDSHAKE_KEYS`].
static TLS_KEYS: [&str; 8] = [
    ALPN.name,
    CERTIFICATES.name,
    CLIENTS.name,
    DEFAULT_CERTIFICATE.name,
    ON_DEMAND.name,
    PASSTHROUGH.name,
    ROUTE.name,
    UNKNOWN_NAMES.name,
];

static UNUSED_WHERE_PASSED_ON: [&str; 5] =
    [ALPN.name, CERTIFICATES.name, DEFAULT_CERTIFICATE.name, ON_DEMAND.name, UNKNOWN_NAMES.name];
