//! Pebble, the authority that Let's Encrypt's people test clients with, and its challenge server.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use super::process::Process;
use super::{required, wait_for};

/// An authority of this test's own.
pub struct Authority {
    pub folder: TempDir,
    pub address: SocketAddr,
    /// Where it takes orders of a test's.
    pub managed: SocketAddr,
    _programs: [Process; 2],
    _reserved: [ReservedPort; 4],
}

/// How an authority behaves.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Percent of numbers that are refused though they are good.
    pub nonces_refused: u8,
    /// Whether it takes up to 15 s for each validation, as it likes.
    pub is_slow: bool,
    /// Where it looks for HTTP-01 and TLS-ALPN-01: every name leads to this machine.
    pub ports: (u16, u16),
    /// Whether an account takes a key that it has given.
    pub binds_accounts: bool,
    /// Whether it refuses `blocked.test`.
    pub blocks: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            nonces_refused: 0,
            is_slow: false,
            ports: (1, 1),
            binds_accounts: false,
            blocks: true,
        }
    }
}

impl Authority {
    pub fn start(behaviour: Behaviour) -> Option<Self> {
        let (pebble, names) = (program("pebble")?, program("pebble-challtestsrv")?);
        required("/usr/bin/curl".into())?;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write_certificates(folder.path());
        let reserved = [(); 4].map(|()| ReservedPort::on_loopback().unwrap());
        let [served, managed, resolver, of_names] = reserved.each_ref().map(ReservedPort::address);
        let settings = serde_json::json!({ "pebble": {
            "listenAddress": served.to_string(),
            "managementListenAddress": managed.to_string(),
            "certificate": path("server.pem"),
            "privateKey": path("server.pem"),
            "httpPort": behaviour.ports.0,
            "tlsPort": behaviour.ports.1,
            "externalAccountBindingRequired": behaviour.binds_accounts,
            "externalAccountMACKeys": { "kid-1": EXTERNAL_KEY, "kid-2": EXTERNAL_KEY },
            "domainBlocklist": if behaviour.blocks { vec!["blocked.test"] } else { vec![] },
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": {
                "default": { "description": "ninety days", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "six days", "validityPeriod": 518_400 },
                "moments": { "description": "half a minute", "validityPeriod": 30 },
            },
        }});
        fs::write(path("pebble.json"), settings.to_string()).unwrap();
        let mut names = Command::new(names);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        names.args(["-defaultIPv6", "", "-dnsserver", &resolver.to_string()]);
        names.args(["-management", &of_names.to_string()]);
        let names = names.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let log = File::create(path("pebble.log")).unwrap();
        let mut pebble = Command::new(pebble);
        pebble.arg("-config").arg(path("pebble.json")).args(["-dnsserver", &resolver.to_string()]);
        pebble.env("PEBBLE_WFE_NONCEREJECT", behaviour.nonces_refused.to_string());
        pebble.env("PEBBLE_AUTHZREUSE", "0");
        if !behaviour.is_slow {
            pebble.env("PEBBLE_VA_NOSLEEP", "1");
        }
        let pebble = pebble.stderr(log.try_clone().unwrap()).stdout(log).spawn().unwrap();
        let programs = [Process::new(pebble), Process::new(names)];
        for address in [resolver, served, of_names] {
            wait_for("Pebble", || TcpStream::connect(address).ok());
        }
        let hook = path("hook");
        fs::write(&hook, HOOK.replace("NAMES", &of_names.to_string())).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { folder, address: served, managed, _programs: programs, _reserved: reserved })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How many certificates it has issued in all.
    pub fn issued(&self) -> usize {
        self.count_said("Issued certificate serial")
    }

    /// How often it said so.
    pub fn count_said(&self, words: &str) -> usize {
        fs::read_to_string(self.path("pebble.log")).unwrap().matches(words).count()
    }

    /// What the hook of DNS was called with, a line each.
    pub fn hook_calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    required(cache.unwrap().join("sealane/pebble-2.10.1/bin").join(name))
}

/// A root in `ca.pem`, and the certificate and key of a server on loopback in `server.pem`.
fn write_certificates(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "who vouches for Pebble");
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    fs::write(folder.join("ca.pem"), root.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let text = [leaf.pem(), key.serialize_pem()].concat();
    fs::write(folder.join("server.pem"), text).unwrap();
}

/// The key of the external account `kid-1`.
pub const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// The command that makes records: it tells the challenge server.
const HOOK: &str = "#!/bin/sh
set -eu
echo \"$1 $2 $3\" >> \"$(dirname \"$0\")/calls\"
while [ -e \"$(dirname \"$0\")/hook-waits\" ]; do sleep 0.1; done
if [ -e \"$(dirname \"$0\")/hook-fails\" ]; then echo 'no such zone' >&2; exit 3; fi
case $1 in
  present) exec curl -sSf -o /dev/null -d \"{\\\"host\\\":\\\"$2.\\\",\\\"value\\\":\\\"$3\\\"}\" \
    http://NAMES/set-txt ;;
  cleanup) exec curl -sSf -o /dev/null -d \"{\\\"host\\\":\\\"$2.\\\"}\" http://NAMES/clear-txt ;;
esac
";
