//! Single values as text: durations, sizes, addresses, names. Files and flags share them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::backend::TLS_SCHEME;
use super::mistake::Problem;
use super::{Address, BackendAddress, ProxyHeader, Told, WrittenBackend};

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
        "v2" => Ok(ProxyHeader::V2(Told::default())),
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
    // A name whose last label is a number would be taken for an IPv4 address by resolvers.
    if name.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit())) {
        return broken("looks like an IPv4 address, but is none", HOST_REMEDY.into());
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok(BackendAddress::Host { name, port }),
        _ => broken("has no port from 1 to 65535", "write HOST:PORT".into()),
    }
}

/// Reads where the admin interface listens: `ADDRESS:PORT` or `unix:PATH`.
pub fn admin_address(text: &str) -> Result<Address, Problem> {
    match text.strip_prefix(UNIX_SCHEME) {
        Some(path) => unix_path(path).map(Address::Unix),
        None => text.parse().map(Address::Tcp).map_err(|_| {
            Problem::new(
                format!("{text:?} is neither an address and port nor a unix socket"),
                "write \"127.0.0.1:9180\" or \"unix:/run/sealane/admin.sock\"",
            )
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

/// Reads a server name, exact or a wildcard for one label, and lower-cases it.
pub fn host_name(text: &str) -> Result<String, Problem> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= NAME_BYTES_MAX && labels.split('.').all(is_label) {
        return Ok(name);
    }
    let remedy = match text.is_ascii() {
        true => "write a name such as \"www.example.com\"",
        false => "write it in its ASCII form (xn--...)",
    };
    Err(Problem::new(format!("{text:?} is not a host name"), remedy))
}

/// An application protocol as ALPN names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlpnProtocol(pub Vec<u8>);

/// Reads the name of an application protocol.
pub fn alpn_protocol(text: &str) -> Result<AlpnProtocol, Problem> {
    match text.len() {
        1..=ALPN_BYTES_MAX => Ok(AlpnProtocol(text.as_bytes().to_vec())),
        bytes => Err(Problem::new(
            format!("a protocol name of {bytes} bytes"),
            format!("write one of 1 to {ALPN_BYTES_MAX} bytes, such as \"http/1.1\""),
        )),
    }
}

/// Reads a duration: a whole number and a unit.
pub fn duration(text: &str) -> Result<Duration, Problem> {
    let (number, unit) = number_and_unit(text);
    let unit_ms = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
    unit_ms
        .zip(number)
        .and_then(|(unit_ms, number)| number.checked_mul(unit_ms))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Problem::new(
                format!("{text:?} is not a duration"),
                "write a whole number and ms, s, m, h or d, such as \"500ms\" or \"12h\"",
            )
        })
}

/// Reads a size: a whole number and a unit.
pub fn size_bytes(text: &str) -> Result<u64, Problem> {
    let (number, unit) = number_and_unit(text);
    let unit_bytes = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    unit_bytes
        .zip(number)
        .and_then(|(unit_bytes, number)| number.checked_mul(unit_bytes))
        .ok_or_else(|| {
            Problem::new(
                format!("{text:?} is not a size"),
                "write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"",
            )
        })
}

/// Writes a duration as it is read, in the largest unit that fits.
pub fn duration_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    in_units(ms, &DURATION_UNITS)
}

/// Writes a size as it is read, in the largest unit that fits.
pub fn size_text(bytes: u64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// Reads a path; `base` is where a relative one starts.
pub fn path(text: &str, base: &Path) -> Result<PathBuf, Problem> {
    match text {
        "" => Err(Problem::new("the path is empty", "write a path or remove the key")),
        _ if text.contains('\0') => Err(Problem::new("the path has a NUL character", "remove it")),
        _ => Ok(base.join(text)),
    }
}

/// Reads the name of a credential: one that stays in the folder of credentials.
pub fn credential_name(text: &str) -> Result<String, Problem> {
    let is_name = !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0']);
    if is_name {
        return Ok(text.to_owned());
    }
    let what = format!("{text:?} is not the name of a credential");
    Err(Problem::new(what, "write the name in LoadCredential=NAME:PATH"))
}

/// Reads the name of a user or a group of this machine.
pub fn account(text: &str) -> Result<String, Problem> {
    let has_no_place = |c: char| c.is_control() || c == ':';
    if text.is_empty() || text.contains(has_no_place) {
        let what = format!("{text:?} is not the name of a user or a group");
        return Err(Problem::new(what, "write one that this machine knows, such as \"sealane\""));
    }
    Ok(text.to_owned())
}

/// Reads a word of a command.
pub fn word(text: &str) -> Result<String, Problem> {
    match text.contains('\0') {
        true => Err(Problem::new("the word has a NUL character", "remove it")),
        false => Ok(text.to_owned()),
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

fn number_and_unit(text: &str) -> (Option<u64>, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number.parse().ok(), unit.strip_prefix(' ').unwrap_or(unit))
}

fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let largest =
        units.iter().rev().find(|(_, size)| value >= *size && value.is_multiple_of(*size));
    let (unit, size) = largest.or(units.first()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / size)
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

/// Digits of a file's permissions with one 0 before them.
const OCTAL_DIGITS_MAX: usize = 4;
/// What stands before the path of a unix socket.
const UNIX_SCHEME: &str = "unix:";
/// Bytes of a unix socket's path: `sun_path` without its end.
pub const UNIX_PATH_BYTES_MAX: usize = 107;

const HOST_REMEDY: &str =
    "write HOST:PORT, such as \"localhost:8080\", \"127.0.0.1:8080\" or \"[::1]:8080\"";
/// RFC 1035, 2.3.4.
const ALPN_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;
const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 4] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

#[cfg(test)]
mod tests;
