//! Version 1: one line of text, with addresses and nothing else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::LINE_BYTES_MAX;
use super::addresses::Ips;
use super::header::{Header, Origin};
use super::malformed::Malformed;

/// Reads the line at the front of `bytes`; `None` as long as its end is not there.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    let begun = bytes.len().min(PREFIX.len());
    if bytes[..begun] != PREFIX[..begun] {
        return Err(Malformed::NotProxy);
    }
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(LINE_END.len()).position(|pair| pair == LINE_END) else {
        return if window.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed::LineTooLong) };
    };
    let origin = window.get(PREFIX.len()..end).and_then(origin).ok_or(Malformed::Line)?;
    Ok(Some(Header::bare(end + LINE_END.len(), origin)))
}

/// The line of a client, and of where it connected to.
pub(super) fn encode(addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((client, local)) = addresses else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let ports = format_args!("{} {}", client.port(), local.port());
    match Ips::of(client, local) {
        Ips::V4(client, local) => format!("PROXY TCP4 {client} {local} {ports}\r\n"),
        Ips::V6(client, local) => format!("PROXY TCP6 {client} {local} {ports}\r\n"),
    }
    .into_bytes()
}

/// What stands between `PROXY` and the end of the line.
fn origin(announced: &[u8]) -> Option<Origin> {
    if let Some(ignored) = announced.strip_prefix(b"UNKNOWN") {
        // Whatever follows is to be passed over, be it text or not.
        return (ignored.is_empty() || ignored.starts_with(b" ")).then_some(Origin::Unknown);
    }
    let mut fields = std::str::from_utf8(announced).ok()?.split(' ');
    let ip = match fields.next()? {
        "TCP4" => ip::<Ipv4Addr>,
        "TCP6" => ip::<Ipv6Addr>,
        _ => return None,
    };
    let [client, local] = [ip(fields.next()?)?, ip(fields.next()?)?];
    let [client_port, local_port] = [port(fields.next()?)?, port(fields.next()?)?];
    fields.next().is_none().then_some(Origin::Tcp {
        client: SocketAddr::new(client, client_port),
        local: SocketAddr::new(local, local_port),
    })
}

/// The standard library takes no leading zero in IPv4, and no zone in IPv6.
fn ip<A: FromStr + Into<IpAddr>>(written: &str) -> Option<IpAddr> {
    written.parse::<A>().ok().map(Into::into)
}

/// Digits alone, without a sign or a leading zero.
fn port(written: &str) -> Option<u16> {
    let is_plain = written == "0" || written.starts_with(|first: char| matches!(first, '1'..='9'));
    written.parse().ok().filter(|_| is_plain)
}

const PREFIX: &[u8] = b"PROXY ";
const LINE_END: &[u8] = b"\r\n";
