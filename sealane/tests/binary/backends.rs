//! Several backends: who gets how much, who stands in, and what happens where all are full.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use rustix::process::Signal;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::wait_for;

/// A backend that answers every byte with a letter of its own, at an address that stays its own
/// while it is away.
pub(crate) struct Lettered {
    letter: u8,
    reserved: ReservedPort,
    backend: Option<Backend>,
}

impl Lettered {
    pub(crate) fn start(letter: u8) -> Self {
        let reserved = ReservedPort::on(Ipv4Addr::LOCALHOST.into()).unwrap();
        let mut lettered = Self { letter, reserved, backend: None };
        lettered.come_back();
        lettered
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.reserved.address()
    }

    pub(crate) fn come_back(&mut self) {
        let letter = self.letter;
        self.backend = Some(Backend::start_at(self.address(), move |mut stream| {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&[letter]).is_ok() {}
        }));
    }

    /// From now on whoever connects is refused.
    pub(crate) fn leave(&mut self) {
        self.backend.take().unwrap().refuse();
    }
}

pub(crate) struct Site {
    pub(crate) sealane: Sealane,
    address: SocketAddr,
    connector: Connector,
    folder: TempDir,
    settings: Settings,
}

/// A site on one lane, with such lines for its listener.
pub(crate) fn start(lines: &str) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    let mut listener = ListenerSettings::new("site", &certificate, &"").with(lines);
    listener.backends.clear();
    let address = listener.address;
    let mut settings = Settings::new(vec![listener]);
    settings.lanes = 1;
    let sealane = Sealane::start(folder.path(), &settings);
    let connector = Connector::new(authority.der(), &TLS13);
    Site { sealane, address, connector, folder, settings }
}

impl Site {
    /// Reloads with such lines for the listener, and waits until lanes serve that.
    pub(crate) fn reload(&mut self, lines: &str) {
        let reloaded = self.sealane.count_said("reload: reloaded");
        self.settings.listeners[0].more = lines.into();
        self.settings.write(self.folder.path());
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_until_reloaded(reloaded + 1);
    }

    /// A client with a backend of the letter.
    pub(crate) fn visit(&self) -> io::Result<(Client, char)> {
        let mut client = self.connector.connect(self.address)?;
        client.write_all(b"?")?;
        let mut letter = [0];
        client.read_exact(&mut letter)?;
        Ok((client, letter[0].into()))
    }

    /// How often each letter comes of so many clients, one after the other.
    pub(crate) fn letters(&self, clients: usize) -> BTreeMap<char, usize> {
        let mut letters = BTreeMap::new();
        for _ in 0..clients {
            *letters.entry(self.visit().unwrap().1).or_default() += 1;
        }
        letters
    }
}

#[test]
fn each_has_its_weight_and_a_backup_stands_in_for_all() {
    let [mut a, mut b, c, d] = [b'a', b'b', b'c', b'd'].map(Lettered::start);
    let site = start(&format!(
        "backends = [\n{{ address = \"{}\", weight = 3 }}, \"{}\",\n\
         {{ address = \"{}\", backup = true }}, {{ address = \"{}\", weight = 0 }},\n]",
        a.address(),
        b.address(),
        c.address(),
        d.address(),
    ));
    assert_eq!(site.letters(8), [('a', 6), ('b', 2)].into());
    a.leave();
    assert_eq!(site.letters(4), [('b', 4)].into());
    b.leave();
    assert_eq!(site.letters(4), [('c', 4)].into());
    b.come_back();
    wait_for("who is back is tried again", || (site.visit().unwrap().1 == 'b').then_some(()));
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn readyz_recovers_without_a_client() {
    let mut backend = Lettered::start(b'a');
    backend.leave();
    let site = start(&format!("backends = [\"{}\"]", backend.address()));
    site.visit().map(drop).unwrap_err();
    backend.come_back();
    let is_ready = || site.sealane.admin_answer("/readyz").starts_with("HTTP/1.1 200");
    wait_for("it is ready", || is_ready().then_some(()));
    assert!(site.sealane.admin("/state").contains("\"state\": \"failing\""));
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn no_backend_has_more_connections_than_it_may_have() {
    let [a, b] = [b'a', b'b'].map(Lettered::start);
    let site = start(&format!(
        "backends = [\n{{ address = \"{}\", connections = 2 }},\n\
         {{ address = \"{}\", connections = 1, backup = true }},\n]",
        a.address(),
        b.address(),
    ));
    let mut left = Vec::new();
    let stay: Vec<_> = (0..3).map(|_| site.visit().unwrap()).collect();
    assert_eq!(stay.iter().map(|(_, letter)| letter).collect::<String>(), "aab");
    assert!(site.visit().is_err(), "all are full");
    site.sealane.wait_for_metrics("it is told why", |metrics| metrics.ended("limit_backend") == 1);
    // The last is that of the backup, the one before it of the other.
    for (client, letter) in stay.into_iter().skip(1).rev() {
        drop(client);
        let stays = wait_for("there is room where one has left", || site.visit().ok());
        assert_eq!(stays.1, letter);
        left.push(stays);
    }
    assert_eq!(site.sealane.stop(), Some(0));
}
