//! Single values as text: durations, sizes, addresses, names. Files and flags share them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;

use crate::backend::{BackendAddress, TLS_SCHEME, WrittenBackend};
use crate::proxy_header::{ProxyHeader, Tlvs};

pub use sealane_operator::value::{
    account, credential_name, duration, duration_text, host_name, path, size_bytes, size_text, word,
};

/// What is written to listen on: one address, or every address of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddresses(pub Vec<Address>);

/// Reads what to listen on: `ADDRESS:PORT`, `:PORT` or `*:PORT` for every address, or `unix:PATH`.
pub fn listen_addresses(text: &str) -> Result<ListenAddresses, Problem> {
    if let Some(path) = text.strip_prefix(UNIX_SCHEME) {
        return Ok(ListenAddresses(vec![Address::Unix(unix_path(path)?)]));
    }
    if let Some(("" | "*", port)) = text.rsplit_once(':')
        && let Ok(port) = port.parse::<u16>()
    {
        let every = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        let every = every.map(|address| Address::Tcp((address, port).into()));
        return Ok(ListenAddresses(every.into()));
    }
    listen_address(text).map(|address| ListenAddresses(vec![Address::Tcp(address)]))
}

/// Reads one TCP address to listen on.
pub fn listen_address(text: &str) -> Result<SocketAddr, Problem> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(problem) = port_above_max(text) {
        return Err(problem);
    }
    let remedy = match text.rsplit_once(':') {
        Some((host, port)) if host.parse::<IpAddr>().is_ok() && is_port(port) => {
            format!("write \"[{host}]:{port}\"")
        }
        _ if text.parse::<IpAddr>().is_ok() => format!("add a port: \"{}\"", with_port(text)),
        _ => "write ADDRESS:PORT with a numeric address, such as \"0.0.0.0:443\" or \
              \"[::]:443\", or \"unix:/PATH\""
            .to_owned(),
    };
    Err(Problem::new(format!("{text:?} is not an address and port"), remedy))
}

/// Reads the version of the PROXY header that backends get: `v1` or `v2`.
pub fn proxy_header(text: &str) -> Result<ProxyHeader, Problem> {
    match text {
        "v1" => Ok(ProxyHeader::V1),
        "v2" => Ok(ProxyHeader::V2(Tlvs::default())),
        _ => Err(Problem::new(format!("{text:?} is neither v1 nor v2"), "choose one of them")),
    }
}

/// Reads a backend: its address, behind `tls://` if TLS is spoken there.
pub fn backend(text: &str) -> Result<WrittenBackend, Problem> {
    let (tls, address) = match text.strip_prefix(TLS_SCHEME) {
        Some(address) => (true, address),
        None => (false, text),
    };
    Ok(WrittenBackend { address: backend_address(address)?, tls })
}

/// Reads the address of a backend: `ADDRESS:PORT`, `HOST:PORT` or `unix:PATH`.
fn backend_address(text: &str) -> Result<BackendAddress, Problem> {
    if let Some(path) = text.strip_prefix(UNIX_SCHEME) {
        return unix_path(path).map(BackendAddress::Unix);
    }
    let broken = |what: &str, remedy: String| Err(Problem::new(format!("{text:?} {what}"), remedy));
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => broken("has port 0", "write the port that the backend listens on".into()),
            _ => Ok(BackendAddress::Tcp(address)),
        };
    }
    if text.contains("://") {
        let remedy = "write HOST:PORT, or tls://HOST:PORT for a backend that speaks TLS";
        return broken("is a URL", remedy.into());
    }
    if let Some(problem) = port_above_max(text) {
        return Err(problem);
    }
    if text.parse::<IpAddr>().is_ok() {
        return broken("has no port", format!("add one: \"{}\"", with_port(text)));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        let remedy = "write HOST:PORT, such as \"127.0.0.1:8080\", or \"unix:/PATH\"";
        return broken("has no port", remedy.into());
    };
    let name = match host_name(host) {
        Ok(name) if !name.starts_with('*') => name,
        _ => return broken("does not begin with a host name", HOST_REMEDY.into()),
    };
    // A name with a number as its last label, such as 0x7f000001, is an IPv4 address to resolvers.
    if name.rsplit('.').next().is_some_and(is_resolver_number) {
        return broken("looks like an IPv4 address, but is none", HOST_REMEDY.into());
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok(BackendAddress::Host { name, port }),
        _ => broken("has no port from 1 to 65535", "write HOST:PORT".into()),
    }
}

/// The mistake of an address with a port above 65535.
fn port_above_max(text: &str) -> Option<Problem> {
    let (host, port) = text.rsplit_once(':')?;
    // An IPv6 address without a port ends in a number too.
    let is_host = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_too_large = is_number && port.parse::<u16>().is_err();
    (is_host && is_too_large).then(|| {
        let what = format!("{text:?}: port {port} is above {}", u16::MAX);
        Problem::new(what, "write a port from 1 to 65535")
    })
}

/// Reads where the admin interface listens: `ADDRESS:PORT` or `unix:PATH`.
pub fn admin_address(text: &str) -> Result<Address, Problem> {
    match text.strip_prefix(UNIX_SCHEME) {
        Some(path) => unix_path(path).map(Address::Unix),
        None => text.parse().map(Address::Tcp).map_err(|_| {
            port_above_max(text).unwrap_or_else(|| {
                Problem::new(
                    format!("{text:?} is neither an address and port nor a unix socket"),
                    "write \"127.0.0.1:9180\" or \"unix:/run/sealane/admin.sock\"",
                )
            })
        }),
    }
}

/// Refuses to show the admin interface to a network.
pub fn check_admin_is_local(address: &Address, remedy: &str) -> Result<(), Problem> {
    if is_local(address) {
        return Ok(());
    }
    let what =
        format!("{address} is reachable from the network, and whoever reaches it sees everything");
    Err(Problem::new(what, remedy))
}

/// Whether only programs of this machine reach it.
pub(super) fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(tcp) => tcp.ip().to_canonical().is_loopback(),
        Address::Unix(_) => true,
    }
}

/// Reads who may open a unix socket, in octal as chmod(1) does.
pub(super) fn socket_mode(text: &str) -> Result<u32, Problem> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| text.len() <= OCTAL_DIGITS_MAX);
    match mode {
        Some(mode) if mode & 0o600 == 0o600 && mode & !0o666 == 0 => Ok(mode),
        _ => Err(Problem::new(
            format!("{text:?} is no permission of a socket"),
            "write \"0600\" for its owner, \"0660\" for its group too, or \"0666\" for everybody",
        )),
    }
}

/// An application protocol as ALPN names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlpnProtocol(pub Vec<u8>);

/// Reads the name of an application protocol.
pub fn alpn_protocol(text: &str) -> Result<AlpnProtocol, Problem> {
    if text.contains([',', ' ']) {
        let what = format!("{text:?} is several protocols in one");
        return Err(Problem::new(what, "write each in quotes of its own: [\"h2\", \"http/1.1\"]"));
    }
    let misspelt = MISSPELT_PROTOCOLS.iter().find(|(wrong, _)| text.eq_ignore_ascii_case(wrong));
    if let Some((_, meant)) = misspelt.filter(|(_, meant)| text != *meant) {
        let what = format!("{text:?} is a name that no client offers");
        return Err(Problem::new(what, format!("write {meant:?}")));
    }
    match text.len() {
        1..=ALPN_BYTES_MAX => Ok(AlpnProtocol(text.as_bytes().to_vec())),
        bytes => Err(Problem::new(
            format!("a protocol name of {bytes} bytes"),
            format!("write one of 1 to {ALPN_BYTES_MAX} bytes, such as \"http/1.1\""),
        )),
    }
}

/// The folder of a certificate store in `store:PATH`; none for any other path.
pub fn store_path(written: &Path) -> Option<&Path> {
    written.to_str()?.strip_prefix("store:").filter(|path| !path.is_empty()).map(Path::new)
}

fn unix_path(text: &str) -> Result<PathBuf, Problem> {
    if !text.starts_with('/') {
        let remedy = "write \"unix:\" and the path from the root, such as \"unix:/run/app.sock\"";
        return Err(Problem::new(format!("\"unix:{text}\" has no absolute path"), remedy));
    }
    if text.len() > UNIX_PATH_BYTES_MAX {
        return Err(Problem::new(
            format!("the path of a unix socket has {} bytes", text.len()),
            format!("choose one of at most {UNIX_PATH_BYTES_MAX}, the system's limit"),
        ));
    }
    path(text, Path::new("/"))
}

/// Whether resolvers read a label in lower case as a number.
fn is_resolver_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

fn with_port(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:PORT"),
        false => format!("{address}:PORT"),
    }
}

/// Names that are written for those of the registry of ALPN.
const MISSPELT_PROTOCOLS: [(&str, &str); 9] = [
    ("h1", "http/1.1"),
    ("h2", "h2"),
    ("http", "http/1.1"),
    ("http/1.1", "http/1.1"),
    ("http/2", "h2"),
    ("http/2.0", "h2"),
    ("http1", "http/1.1"),
    ("http1.1", "http/1.1"),
    ("http2", "h2"),
];
/// Digits of a file's permissions with one 0 before them.
const OCTAL_DIGITS_MAX: usize = 4;
/// What stands before the path of a unix socket.
const UNIX_SCHEME: &str = "unix:";
/// Bytes of a unix socket's path: `sun_path` without its end.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

const HOST_REMEDY: &str =
    "write HOST:PORT, such as \"localhost:8080\", \"127.0.0.1:8080\" or \"[::1]:8080\"";
/// RFC 7301, 3.1.
const ALPN_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests;
