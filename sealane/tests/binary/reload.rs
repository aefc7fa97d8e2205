//! Reload under load: new connections, kept ones and tickets do not notice, and a bad change
//! changes nothing.

mod every_key;
mod under_load;

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use serde_json::Value;
use tempfile::TempDir;

use every_key::Changing;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings, replace};
use crate::harness::wait_for;

/// Sealane with one listener in front of an echo, and what a test changes about it.
struct Site {
    sealane: Sealane,
    settings: Settings,
    authority: Authority,
    backend: Backend,
    folder: TempDir,
}

impl Site {
    fn start() -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let backend = Backend::echo();
        let listener = ListenerSettings::new("site", &certificates(&folder), &backend.address);
        Self::with(folder, authority, backend, Settings::new(vec![listener]))
    }

    /// With listeners whose every key changes.
    fn changing() -> (Self, Changing) {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let mut changing = Changing::new(folder.path(), &authority);
        let certificates = certificates(&folder);
        let mut settings = Settings::new(changing.listeners(&certificates));
        changing.apply(0, &certificates, &mut settings);
        settings.listeners[every_key::SITE].more.clear();
        let site = Self::with(folder, authority, Backend::echo(), settings);
        changing.assert_changed();
        (site, changing)
    }

    fn with(folder: TempDir, authority: Authority, backend: Backend, settings: Settings) -> Self {
        let certificates = certificates(&folder);
        std::fs::create_dir(&certificates).unwrap();
        replace(&certificates.join("site.pem"), &authority.leaf(KeyKind::P256, &NAMES));
        let sealane = Sealane::start(folder.path(), &settings);
        Self { sealane, settings, authority, backend, folder }
    }

    /// Changes every key, for the `number`th time, and waits until all lanes serve that.
    fn change(&mut self, number: usize, changing: &mut Changing) {
        const LEAVES: [KeyKind; 3] = [KeyKind::P256, KeyKind::Ed25519, KeyKind::P256];
        let leaf = self.authority.leaf(LEAVES[number % LEAVES.len()], &NAMES);
        replace(&self.certificate(), &leaf);
        changing.apply(number, &certificates(&self.folder), &mut self.settings);
        self.settings.write(self.path());
        changing.assert_changed();
        self.sealane.signal(Signal::HUP);
        // The watch may have begun a reload before all was written.
        let wanted = Changing::connections_max(number);
        wait_for("the reload", || {
            let state: Value = serde_json::from_str(&self.sealane.admin("/state")).unwrap();
            (state["limits"]["connections_max"] == wanted).then_some(())
        });
        self.sealane.wait_until_lanes_serve();
    }

    fn address(&self) -> SocketAddr {
        self.settings.listeners[0].address
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn certificate(&self) -> PathBuf {
        self.path().join("certificates/site.pem")
    }

    /// Whether the kernel tells Sealane of changes in `folder`.
    fn watches(&self, folder: &Path) -> bool {
        let inode = format!(" ino:{:x} ", std::fs::metadata(folder).unwrap().ino());
        let facts = format!("/proc/{}/fdinfo", self.sealane.process.id());
        let each = std::fs::read_dir(facts).unwrap().flatten();
        let told = each.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        told.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .any(|line| line.starts_with("inotify ") && line.contains(&inode))
    }

    fn connector(&self) -> Connector {
        Connector::new(self.authority.der(), &TLS13).with_own_tickets()
    }

    fn connect(&self) -> Client {
        self.connector().connect(self.address()).unwrap()
    }

    /// Reloads by signal and waits until that is decided.
    fn reload(&self) {
        let before = self.reloads();
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_for_metrics("the reload", |m| {
            m.sum("sealane_reloads_total", &[]) > before.0 + before.1
        });
    }

    /// Reloads so far: accepted, and refused.
    fn reloads(&self) -> (u64, u64) {
        let metrics = self.sealane.metrics();
        let count = |outcome| metrics.sum("sealane_reloads_total", &[("outcome", outcome)]);
        (count("accepted"), count("refused"))
    }
}

fn certificates(folder: &TempDir) -> PathBuf {
    folder.path().join("certificates")
}

fn served_certificate(client: &Client) -> CertificateDer<'static> {
    client.tls.peer_certificates().unwrap()[0].clone().into_owned()
}

/// What arrives in two steps, of which the first is half of something.
#[test]
fn new_folder_with_a_fault_is_followed() {
    let mut site = Site::start();
    let folder = site.certificate().with_file_name("new.test");
    std::fs::create_dir(&folder).unwrap();
    let text = site.authority.leaf(KeyKind::P256, &["new.test"]);
    let (chain, key) = text.split_at(text.find("-----BEGIN PRIVATE KEY").unwrap());
    replace(&folder.join("fullchain.pem"), chain);
    site.sealane.wait_until_said("fullchain.pem: no private key in it");
    // A change that comes at once is seen by a look at the files that needs no watch.
    wait_for("a watch of the folder", || site.watches(&folder).then_some(()));
    replace(&folder.join("privkey.pem"), key);
    let connector = site.connector().with_name("new.test");
    wait_for("the new name", || connector.connect(site.address()).ok());
}

#[test]
fn a_changed_certificate_is_served_to_new_connections_only() {
    let site = Site::start();
    let mut old = site.connect();
    let before = served_certificate(&old);
    replace(&site.certificate(), &site.authority.leaf(KeyKind::Rsa2048, &NAMES));
    site.reload();
    let mut new = site.connect();
    assert_ne!(served_certificate(&new), before);
    old.echo(b"the old connection goes on").unwrap();
    new.echo(b"the new one works").unwrap();
    let live = |count| {
        let what = format!("{count} live generations");
        site.sealane.wait_for_metrics(&what, |m| m.sum("sealane_generations_live", &[]) == count);
    };
    live(2);
    old.end(true).unwrap();
    old.read_rest().unwrap();
    live(1);
    new.echo(b"and still does").unwrap();
}

#[test]
fn a_bad_change_changes_nothing_and_says_why() {
    let site = Site::start();
    let mut kept = site.connect();
    let before = served_certificate(&kept);
    let config = site.path().join("sealane.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    let spoilt = [
        (good.replace("certificates", "certifcates"), "certifcates"),
        (good.replace("lanes = 2", "lanes = \"many\""), "lanes"),
        (good.replace("/certificates\"", "/nowhere\""), "nowhere"),
        (format!("{good}\nbackends = []\n"), "sealane.toml:"),
    ];
    for (index, (text, reason)) in spoilt.iter().enumerate() {
        let before_it = site.sealane.said().len();
        replace(&config, text);
        site.reload();
        let says = |text: &str| {
            wait_for(text, || {
                let said = site.sealane.said().split_off(before_it);
                said.iter().any(|line| line.contains(text)).then_some(())
            });
        };
        says("refused");
        says(reason);
        let mut client = site.connect();
        assert_eq!(served_certificate(&client), before, "change {index}");
        client.echo(b"new").unwrap();
        kept.echo(b"old").unwrap();
    }
    let metrics = site.sealane.metrics();
    assert_eq!(metrics.sum("sealane_generation", &[]), 1);
    assert_eq!(metrics.sum("sealane_reload_last_accepted", &[]), 0);
    replace(&config, &good);
    site.reload();
    assert_eq!(site.sealane.metrics().sum("sealane_reload_last_accepted", &[]), 1);
}

#[test]
fn listeners_open_and_close_without_touching_the_others() {
    let mut site = Site::start();
    let certificates = site.path().join("certificates");
    let second = ListenerSettings::new("second", &certificates, &site.backend.address);
    let second_address = second.address;
    let refused = |address| {
        TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    assert!(refused(second_address));
    let mut first = site.connect();
    site.settings.listeners.push(second);
    site.settings.write(site.path());
    site.reload();
    first.echo(b"goes on").unwrap();
    let mut on_second =
        wait_for("the new listener", || site.connector().connect(second_address).ok());
    on_second.echo(b"new").unwrap();

    let first_listener = site.settings.listeners.remove(0);
    site.settings.write(site.path());
    site.reload();
    wait_for("the old listener closes", || refused(first_listener.address).then_some(()));
    first.echo(b"its connections live on").unwrap();
    on_second.echo(b"untouched").unwrap();
    site.connector().connect(second_address).unwrap().echo(b"new").unwrap();
    first.end(true).unwrap();
    assert!(first.read_rest().unwrap().is_empty());
}

#[test]
fn replaced_files_are_noticed_without_a_signal() {
    let mut site = Site::start();
    let mut last = served_certificate(&site.connect());
    let mut changes = |what: &str, site: &Site| {
        wait_for(what, || {
            let now = served_certificate(&site.connect());
            (now != last).then(|| last = now)
        });
    };
    replace(&site.certificate(), &site.authority.leaf(KeyKind::P256, &NAMES));
    changes("a certificate renamed into place", &site);
    let mut file = std::fs::File::create(site.certificate()).unwrap();
    file.write_all(site.authority.leaf(KeyKind::Ed25519, &NAMES).as_bytes()).unwrap();
    drop(file);
    changes("a certificate written in place", &site);

    // The configuration names another folder, which is then a link that moves on.
    let releases = site.path().join("releases");
    std::fs::create_dir(&releases).unwrap();
    for release in ["one", "two"] {
        let folder = releases.join(release);
        std::fs::create_dir(&folder).unwrap();
        replace(&folder.join("site.pem"), &site.authority.leaf(KeyKind::P256, &NAMES));
    }
    let current = releases.join("current");
    std::os::unix::fs::symlink("one", &current).unwrap();
    site.settings.listeners[0].certificates = Some(current.clone());
    site.settings.write(site.path());
    changes("the configuration renamed into place", &site);
    let next = releases.join("next");
    std::os::unix::fs::symlink("two", &next).unwrap();
    std::fs::rename(&next, &current).unwrap();
    changes("a link to a folder that moves on", &site);
    let leaf = site.authority.leaf(KeyKind::Ed25519, &NAMES);
    replace(&releases.join("two/site.pem"), &leaf);
    changes("a certificate in the folder that the link leads to now", &site);
}

/// Kubernetes renews what it mounts so: names lead through one link, which moves to another folder.
#[test]
fn a_renewed_volume_of_kubernetes_is_served_without_a_signal() {
    let mut site = Site::start();
    let volume = site.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, volume.join(name)).unwrap();
    };
    for moment in ["..2026_1", "..2026_2"] {
        let folder = volume.join(moment);
        std::fs::create_dir(&folder).unwrap();
        replace(&folder.join("site.pem"), &site.authority.leaf(KeyKind::P256, &NAMES));
    }
    link("..2026_1", "..data");
    link("..data/site.pem", "site.pem");
    let begun = served_certificate(&site.connect());
    let other_than = |known: &[_], site: &Site| {
        wait_for("another certificate", || {
            let now = served_certificate(&site.connect());
            (!known.contains(&now)).then_some(now)
        })
    };
    site.settings.listeners[0].certificates = Some(volume.clone());
    site.settings.write(site.path());
    let first = other_than(std::slice::from_ref(&begun), &site);
    link("..2026_2", "..data_tmp");
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    other_than(&[begun, first], &site);
}
