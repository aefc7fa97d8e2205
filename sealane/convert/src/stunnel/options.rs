//! Options without a key, each with its remedy.

/// The reason why a known option has no key.
pub(super) fn reason(key: &str) -> Option<&'static str> {
    OTHERS.iter().chain(&PROCESS).find(|(name, _)| *name == key).map(|(_, why)| *why)
}

pub(super) const TICKETS: &str = "[tickets] with count = 0 turns resumption off, for all listeners";

/// Switches that change nothing when they are off.
pub(super) const SWITCHES: [&str; 13] = [
    "compression",
    "delay",
    "fips",
    "foreground",
    "libwrap",
    "ocspaia",
    "pty",
    "renegotiation",
    "requirecert",
    "retry",
    "syslog",
    "verifychain",
    "verifypeer",
];

/// Options of a server that keep clients out.
pub(super) const GUARDS: [&str; 8] =
    ["checkemail", "checkip", "ident", "libwrap", "ocsp", "ocspaia", "pskidentity", "psksecrets"];

/// Options of the process.
pub(super) const PROCESS: [(&str, &str); 18] = [
    ("chroot", UNIT),
    ("compression", "TLS is not compressed: that gives secrets away"),
    ("debug", "set level in [log]"),
    ("egd", "random numbers are the system's"),
    ("engine", ENGINE),
    ("enginectrl", ENGINE),
    ("enginedefault", ENGINE),
    ("fips", "there is no module with a certificate of FIPS"),
    ("foreground", "sealane serve stays in the foreground; the unit starts it"),
    ("log", "[access_log] appends to its file"),
    ("output", "Sealane logs to standard error; [access_log] writes a file"),
    ("pid", "the service manager knows the process"),
    ("rndbytes", "random numbers are the system's"),
    ("rndfile", "random numbers are the system's"),
    ("service", "Sealane logs to standard error, which the service manager names"),
    ("setgid", UNIT),
    ("setuid", UNIT),
    ("syslog", "Sealane logs to standard error, which the service manager collects"),
];
/// Those of them of which peers, or an auditor, see something.
pub(super) const LOST: [&str; 5] = ["compression", "engine", "enginectrl", "enginedefault", "fips"];
const ENGINE: &str = "keys are used by Sealane's own cryptography alone";
const UNIT: &str = "[process] says who it runs as, and the unit where: packaging/sealane.service";

/// Other options that have no key.
const OTHERS: [(&str, &str); 27] = [
    ("caengine", ENGINE),
    ("capath", "name files: roots = [...] in [listener.clients] or [listener.backend_tls]"),
    ("checkemail", "names of clients are DNS:, URI: and CN:"),
    ("checkip", "names of clients are DNS:, URI: and CN:"),
    ("config", "commands of OpenSSL mean nothing here"),
    ("delay", "names that lead nowhere hold no start up; they are looked up every `resolve`"),
    ("engineid", ENGINE),
    ("enginenum", ENGINE),
    ("ident", "nobody is asked who the client's user is"),
    ("libwrap", "allow and deny name networks"),
    ("local", "the system chooses the address that backends see"),
    ("logid", "a line of [access_log] names the connection's lane and client"),
    ("ocsp", "revocation is by lists: crls in [listener.clients]"),
    ("ocspaia", "revocation is by lists: crls in [listener.clients]"),
    ("pskidentity", "clients are known by certificates alone"),
    ("psksecrets", "clients are known by certificates alone"),
    ("redirect", "who shows no certificate is refused"),
    ("renegotiation", "there is none: neither in TLS 1.3 nor here"),
    ("reset", "what is cut never looks complete, whatever was said"),
    ("securitylevel", "what is spoken is as strong as level 2; versions and suites say more"),
    ("sessioncachesize", TICKETS),
    ("sessioncachetimeout", TICKETS),
    ("sessionresume", TICKETS),
    ("socket", "of options of sockets there are keepalive and user_timeout"),
    ("ticketkeysecret", "machines share a file as tickets.root"),
    ("timeoutclose", "half_closed_timeout is the nearest: what may follow one side's end"),
    ("transparent", "tell backends by a PROXY header: proxy_header = \"v1\" or \"v2\""),
];
