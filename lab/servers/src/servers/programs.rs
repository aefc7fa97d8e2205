//! The servers under test, [`Entry`]: which there are, where each [`Program`] is found and how it
//! is asked its version.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use sealane_lab_harness::process::Process;
use sealane_lab_model::error::Error;

use crate::servers::{
    case::Case,
    results::{BEST_PEER, FLOOR},
};

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name in the table.
    pub name: String,
    /// The program that is run.
    pub program: Program,
    /// What it is set to.
    pub(crate) tuning: Tuning,
    /// What is asked of it.
    pub cases: Vec<Case>,
}

/// What a program is set to for the sake of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// Buffers of [`LARGE_BUFFER_BYTES`].
    LargeBuffers,
    /// From socket to socket in the kernel, which takes a proxy without TLS.
    Splicing,
    /// Nothing.
    Usual,
}

/// A server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Debian's Caddy, as a proxy of HTTP.
    Caddy,
    /// A shell's command line with `{port}`, `{backend}`, `{workers}`, `{cert}` and `{folder}`.
    Command(String),
    /// Debian's, or the binary at a path.
    Haproxy(Option<PathBuf>),
    /// Debian's hitch.
    Hitch,
    /// Debian's nginx, as a proxy of HTTP.
    NginxHttp,
    /// Debian's nginx, as a proxy of streams.
    NginxStream,
    /// HAProxy without TLS: a part of the floor.
    PlainHaproxy(Option<PathBuf>),
    /// The lab's own relay without TLS: the other part to choose from.
    PlainRelay,
    /// The terminator itself.
    Sealane,
    /// Debian's stunnel.
    Stunnel,
}

/// What the operator asked for.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The terminator's binary.
    pub sealane: PathBuf,
    /// More binaries of HAProxy.
    pub haproxies: Vec<PathBuf>,
    /// Name and command line.
    pub peers: Vec<(String, String)>,
    /// All, if empty.
    pub only: Vec<String>,
    /// What is asked of each server.
    pub cases: Vec<Case>,
}

impl Choice {
    /// All rows. Larger buffers help transfers and cost memory: such rows take part in the former
    /// alone, so that each peer is judged by its better side.
    ///
    /// # Errors
    /// If `only` names something that is not there.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = vec![
            self.entry("sealane", Program::Sealane),
            self.entry("nginx-stream", Program::NginxStream),
            self.tuned("nginx-stream-64k", Program::NginxStream, Tuning::LargeBuffers),
            self.entry("nginx-http", Program::NginxHttp),
            self.tuned("nginx-http-64k", Program::NginxHttp, Tuning::LargeBuffers),
            self.entry("haproxy", Program::Haproxy(None)),
            self.tuned("haproxy-64k", Program::Haproxy(None), Tuning::LargeBuffers),
        ];
        for path in &self.haproxies {
            let mut name = format!("haproxy-{}", haproxy_number(path)?);
            while entries.iter().any(|entry| entry.name == name) {
                name += "+";
            }
            let program = Program::Haproxy(Some(path.clone()));
            entries.push(self.entry(&name, program.clone()));
            entries.push(self.tuned(&format!("{name}-64k"), program, Tuning::LargeBuffers));
        }
        entries.push(self.entry("hitch", Program::Hitch));
        entries.push(self.entry("stunnel", Program::Stunnel));
        entries.push(self.entry("caddy", Program::Caddy));
        for (name, line) in &self.peers {
            entries.push(self.entry(name, Program::Command(line.clone())));
        }
        self.names_are_free(&entries)?;
        for name in &self.only {
            if !entries.iter().any(|entry| entry.name == *name) {
                let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let names = names.join(", ");
                return Err(Error::Check(format!("--only {name}: there are {names}")));
            }
        }
        entries.retain(|entry| self.only.is_empty() || self.only.contains(&entry.name));
        for entry in &mut entries {
            match entry.program {
                Program::Caddy => entry.cases.retain(|case| case.is_storm()),
                // A thread per connection would be a storm of threads for this machine.
                Program::Stunnel => entry.cases.retain(|case| !case.is_storm()),
                _ => {}
            }
        }
        // The floor goes last and is measured in every round, among the others.
        let haproxy = Program::PlainHaproxy(self.haproxies.first().cloned());
        for mut entry in [
            self.entry(PLAIN_RELAY, Program::PlainRelay),
            self.entry(PLAIN_HAPROXY, haproxy.clone()),
            self.tuned(PLAIN_HAPROXY_64K, haproxy.clone(), Tuning::LargeBuffers),
            self.tuned(PLAIN_HAPROXY_SPLICE, haproxy, Tuning::Splicing),
        ] {
            entry.cases.retain(|case| case.has_floor());
            entries.push(entry);
        }
        entries.retain(|entry| !entry.cases.is_empty());
        Ok(entries)
    }

    /// Figures are kept by name: two servers of one name would get each other's.
    fn names_are_free(&self, entries: &[Entry]) -> Result<(), Error> {
        for (name, _) in &self.peers {
            let same = entries.iter().filter(|entry| entry.name == *name).count();
            if same > 1 || RESERVED.contains(&name.as_str()) {
                let text = format!("--peer {name}=...: that name is taken; give it another");
                return Err(Error::Check(text));
            }
        }
        Ok(())
    }

    fn entry(&self, name: &str, program: Program) -> Entry {
        Entry { name: name.into(), program, tuning: Tuning::Usual, cases: self.cases.clone() }
    }

    fn tuned(&self, name: &str, program: Program, tuning: Tuning) -> Entry {
        let transfers = [Case::KeepAlive100k, Case::Down, Case::Up];
        let mut entry = Entry { tuning, ..self.entry(name, program) };
        entry.cases.retain(|case| transfers.contains(case));
        entry
    }
}

impl Entry {
    /// Whether it is a server under test, and no part of the floor.
    pub fn has_tls(&self) -> bool {
        !matches!(self.program, Program::PlainHaproxy(_) | Program::PlainRelay)
    }
}

impl Program {
    /// Where it is installed, or how to get it.
    pub fn find(&self, sealane: &Path) -> Result<PathBuf, Error> {
        let (name, packages) = match self {
            Self::Caddy => ("caddy", "caddy"),
            Self::Command(_) => ("sh", "dash"),
            Self::Haproxy(Some(path)) | Self::PlainHaproxy(Some(path)) => {
                let remedy = format!("give another --haproxy than {}", path.display());
                return found_at(path, "haproxy", remedy);
            }
            Self::Haproxy(None) | Self::PlainHaproxy(None) => ("haproxy", "haproxy"),
            Self::Hitch => ("hitch", "hitch"),
            Self::NginxHttp => ("nginx", "nginx-light"),
            Self::NginxStream => ("nginx", "nginx-light libnginx-mod-stream"),
            Self::PlainRelay => {
                return env::current_exe().map_err(Error::io("find the lab's own binary"));
            }
            Self::Sealane => {
                let remedy = "cargo build --release -p sealane".into();
                return found_at(sealane, &format!("sealane ({})", sealane.display()), remedy);
            }
            Self::Stunnel => ("stunnel4", "stunnel4"),
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            // Debian keeps servers where a shell without a login does not look.
            .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
            .map(|folder| folder.join(name))
            .find(|file| file.is_file());
        match found {
            Some(file) if *self != Self::NginxStream || Path::new(NGINX_STREAM).is_file() => {
                Ok(file)
            }
            _ => {
                let remedy = format!("apt-get install --no-install-recommends {packages}");
                Err(Error::Missing { program: name.into(), remedy })
            }
        }
    }

    /// The line in which it says what it is.
    pub fn version(&self, binary: &Path) -> String {
        let argument = match self {
            Self::Caddy => "version",
            Self::Command(line) => return line.clone(),
            Self::Haproxy(_) | Self::NginxHttp | Self::NginxStream | Self::PlainHaproxy(_) => "-v",
            Self::Stunnel => "-version",
            Self::Hitch | Self::PlainRelay | Self::Sealane => "--version",
        };
        let text = output(binary, argument);
        let digits = |line: &&str| line.contains(|c: char| c.is_ascii_digit());
        text.lines().find(digits).unwrap_or("version unknown").trim().into()
    }

    /// What its TLS comes from: as it says itself, or the version in the libcrypto that the running
    /// server has mapped, or the crates that the names of source files in its binary tell.
    pub(crate) fn tls_library(&self, process: &Process, binary: &Path) -> Result<String, Error> {
        match self {
            Self::Haproxy(_) => {
                let text = output(binary, "-vv");
                // "OpenSSL version" in older ones, "SSL library version" since.
                let line = text.lines().find(|line| {
                    line.starts_with("Running on ") && line.contains("SSL") && line.contains(" : ")
                });
                if let Some((_, library)) = line.and_then(|line| line.split_once(" : ")) {
                    return Ok(library.trim().into());
                }
            }
            Self::Caddy => return Ok("Go's crypto/tls".into()),
            Self::PlainHaproxy(_) | Self::PlainRelay => return Ok("none".into()),
            _ => {}
        }
        let libraries = process.libraries()?;
        let shared = libraries.iter().find(|path| path.to_string_lossy().contains("/libcrypto"));
        let path = shared.map_or(binary, PathBuf::as_path);
        let bytes = fs::read(path).map_err(Error::file(path))?;
        let mut found: Vec<String> = match shared {
            Some(_) => versions_after(&bytes, "OpenSSL ").into_iter().take(1).collect(),
            None => RUST_LIBRARIES.iter().flat_map(|name| versions_after(&bytes, name)).collect(),
        };
        found.dedup();
        Ok(if found.is_empty() { "TLS library unknown".into() } else { found.join(", ") })
    }
}

fn found_at(path: &Path, program: &str, remedy: String) -> Result<PathBuf, Error> {
    let program = program.into();
    path.canonicalize().map_err(|_| Error::Missing { program, remedy })
}

/// Such as 3.4.0.
fn haproxy_number(path: &Path) -> Result<String, Error> {
    let binary = Program::Haproxy(Some(path.to_owned())).find(path)?;
    let text = output(&binary, "-v");
    let number = text.split_once("version ").map_or("", |(_, rest)| rest);
    let digits = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    if digits == 0 {
        return Err(Error::Check(format!("{} tells no HAProxy version", path.display())));
    }
    Ok(number[..digits].into())
}

fn output(binary: &Path, argument: &str) -> String {
    let Ok(output) = Command::new(binary).arg(argument).output() else { return String::new() };
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Every different "`name`1.2.3" in `bytes`.
fn versions_after(bytes: &[u8], name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in bytes.windows(name.len()).enumerate().filter(|(_, w)| *w == name.as_bytes()) {
        let rest = &bytes[at.0 + name.len()..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let version = String::from_utf8_lossy(&rest[..digits]);
        if version.matches('.').count() == 2 {
            let name = name.trim_matches(['/', '-', ' ']);
            found.push(format!("{name} {}", version.trim_end_matches('.')));
        }
    }
    found.sort();
    found.dedup();
    found
}

pub(crate) const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
pub(crate) const LARGE_BUFFER_BYTES: u32 = 65_536;
const PLAIN_HAPROXY: &str = "plain-haproxy";
const PLAIN_HAPROXY_64K: &str = "plain-haproxy-64k";
const PLAIN_HAPROXY_SPLICE: &str = "plain-haproxy-splice";
const PLAIN_RELAY: &str = "plain-relay";
/// Names of rows that are no peers.
const RESERVED: [&str; 6] =
    [BEST_PEER, FLOOR, PLAIN_HAPROXY, PLAIN_HAPROXY_64K, PLAIN_HAPROXY_SPLICE, PLAIN_RELAY];
const RUST_LIBRARIES: [&str; 3] = ["/rustls-", "/graviola-", "/aws-lc-rs-"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_between_other_bytes() {
        let bytes = b"\0OpenSSL 3.0.19 27 Jan 2026\0OpenSSL x\0/a/rustls-0.23.46/src\0rustls-1";
        assert_eq!(versions_after(bytes, "OpenSSL "), ["OpenSSL 3.0.19"]);
        assert_eq!(versions_after(bytes, "/rustls-"), ["rustls 0.23.46"]);
    }

    #[test]
    fn a_missing_program_names_its_remedy() {
        let error = Program::Sealane.find(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("cargo build --release"), "{error}");
    }

    #[test]
    fn a_peer_takes_no_name_that_another_row_has() {
        for names in [&["haproxy"][..], &["floor"], &["plain-relay"], &["a", "a"]] {
            let peers = names.iter().map(|name| ((*name).into(), "false".into())).collect();
            let (sealane, cases) = ("/nonexistent".into(), vec![Case::Full]);
            let choice = Choice { sealane, haproxies: Vec::new(), peers, only: Vec::new(), cases };
            let error = choice.entries().unwrap_err().to_string();
            assert!(error.contains("is taken"), "{error}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_those_that_are() {
        let choice = Choice {
            sealane: "/nonexistent".into(),
            haproxies: Vec::new(),
            peers: vec![("mine".into(), "false".into())],
            only: vec!["mine".into(), "apache".into()],
            cases: vec![Case::Full],
        };
        let error = choice.entries().unwrap_err().to_string();
        assert!(error.contains("apache") && error.contains("nginx-http"), "{error}");
        let only = vec!["mine".into()];
        let entries = Choice { only, ..choice }.entries().unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["mine", "plain-relay", "plain-haproxy"]);
    }
}
