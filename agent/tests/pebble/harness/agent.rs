//! A running `sealane-agent`, its settings and its store.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_operator::{KeySource, create_key_file, sealing_keys};
use sealane_store::{KeyedStore, Listed, Store};
use tempfile::TempDir;

use super::authority::Authority;
use super::process::Process;
use super::wait_for;

/// A folder with settings, a key and a store, for agents one after the other.
pub struct Home {
    pub folder: TempDir,
    hook: PathBuf,
    roots: PathBuf,
    started: Cell<usize>,
}

impl Home {
    /// With settings for `authority`, which is spoken to at `address`.
    pub fn new(authority: &Authority) -> Self {
        let folder = tempfile::tempdir().unwrap();
        create_key_file(&folder.path().join("key")).unwrap();
        Self {
            folder,
            hook: authority.path("hook"),
            roots: authority.path("ca.pem"),
            started: Cell::new(0),
        }
    }

    /// Another machine, with the same sealing key.
    pub fn beside(&self, authority: &Authority) -> Self {
        let other = Self::new(authority);
        fs::copy(self.path("key"), other.path("key")).unwrap();
        other
    }

    /// Puts a certificate for these names into the store, as whoever pushes it does.
    pub fn import(&self, names: &[&str], chain_and_key: &str) {
        assert_eq!(self.import_all(&[chain_and_key.to_owned()]), 1, "{names:?}");
    }

    /// Puts certificates into the store, each a chain and its key; returns how many they were.
    pub fn import_all(&self, each: &[String]) -> usize {
        let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap();
        let mut builder = IndexBuilder::new(&provider.crypto, 0);
        each.iter().for_each(|one| builder.add("push", one.as_bytes()));
        let indexed = builder.finish(DefaultCertificate::Absent);
        let certificates: Vec<_> = indexed.index.iter().map(Arc::clone).collect();
        assert!(indexed.errors.is_empty(), "{:?}", indexed.errors);
        let store = wait_for("the store", || self.store());
        store.import(&certificates, unix_now_s()).unwrap();
        certificates.len()
    }

    /// Serves nothing for these names any more, as whoever removes them does.
    pub fn remove(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let store = wait_for("the store", || self.store());
        let removed = store.store().remove(&names, unix_now_s()).unwrap();
        assert_eq!(removed.unknown, [""; 0]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An `[[authority]]` at an address, with more of its keys.
    pub fn authority(&self, address: SocketAddr, more: &str) -> String {
        // Without a profile it takes any.
        let profile = if more.contains("profile") { "" } else { "profile = \"default\"" };
        format!(
            "[[authority]]\ndirectory = \"https://{address}/dir\"\nagree_to_terms = true\n\
             contact = [\"mailto:ops@example.com\"]\nroots = [{:?}]\n{profile}\n{more}\n",
            self.roots
        )
    }

    /// A `[[certificate]]` by a record of DNS.
    pub fn by_dns(&self, names: &[&str]) -> String {
        format!(
            "[[certificate]]\nnames = {names:?}\nchallenge = \"dns-01\"\ndns_command = [{:?}]\n",
            self.hook
        )
    }

    /// Writes the settings, with these tables.
    pub fn configure(&self, tables: &[String]) {
        let text =
            format!("store = \"store\"\nstore_key = {{ file = \"key\" }}\n{}", tables.concat());
        fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// Starts an agent.
    pub fn start(&self) -> Agent {
        self.start_with(&[])
    }

    /// Starts an agent with more in its environment.
    pub fn start_with(&self, environment: &[(&str, String)]) -> Agent {
        let mut command = Command::new(BINARY);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        self.start_by(command)
    }

    /// Starts an agent by a command, which its arguments are added to.
    pub fn start_by(&self, mut command: Command) -> Agent {
        let started = self.started.get() + 1;
        self.started.set(started);
        let path = self.path(&format!("log-{started}"));
        let log = File::create(&path).unwrap();
        command.arg("--config").arg(self.path("agent.toml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Agent { process: Process::new(child.unwrap()), log: path }
    }

    /// The store, opened for a look.
    pub fn store(&self) -> Option<KeyedStore> {
        let keys = sealing_keys(&KeySource::File(self.path("key"))).unwrap();
        let store = Store::open(&self.path("store")).ok()?;
        Some(KeyedStore::new(Arc::new(store), keys).unwrap())
    }

    /// What is in the store for a name.
    pub fn held(&self, name: &str) -> Option<Listed> {
        self.store()?.store().find(name).unwrap().pop()
    }

    /// Names of entries that begin so.
    pub fn entries(&self, prefix: &str) -> Vec<String> {
        let Some(store) = self.store() else { return Vec::new() };
        let found = store.kept_under(prefix, None, 10_000).unwrap();
        found.into_iter().map(|entry| entry.0).collect()
    }

    /// Waits until a certificate for a name is in the store.
    pub fn wait_until_held(&self, name: &str) -> Listed {
        wait_for(&format!("a certificate for {name}"), || self.held(name))
    }

    /// What all of its agents have said.
    pub fn said(&self) -> String {
        let path = |number| self.path(&format!("log-{number}"));
        (1..=self.started.get()).map(|number| fs::read_to_string(path(number)).unwrap()).collect()
    }
}

/// What the agents said shows why a test failed.
impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: {}", self.folder.path().display(), self.said());
        }
    }
}

/// An agent that runs.
pub struct Agent {
    log: PathBuf,
    pub process: Process,
}

impl Agent {
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.end();
    }

    pub fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.end()
    }

    pub fn reload(&self) {
        self.process.signal(Signal::HUP);
    }

    pub fn wait_until_said(&self, words: &str) -> String {
        wait_for(&format!("{words:?} in {}", self.log.display()), || {
            let said = fs::read_to_string(&self.log).unwrap();
            said.contains(words).then_some(said)
        })
    }
}

/// The output of a command of the agent's, and its code.
pub fn run(arguments: &[&str], home: &Home) -> (String, Option<i32>) {
    let output =
        Command::new(BINARY).args(arguments).current_dir(home.folder.path()).output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

pub const BINARY: &str = env!("CARGO_BIN_EXE_sealane-agent");

/// Unix time.
pub fn unix_now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}
