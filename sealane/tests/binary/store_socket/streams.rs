//! Streams that are cut, wrong, long, or beside each other; and processes that are killed on them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use rcgen::{CertificateParams, KeyPair};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::process::Process;
use crate::harness::sealane::Sealane;
use crate::harness::site::{Site, error_text};
use crate::harness::{PATIENCE, tools, wait_for};

use super::answer;

/// What is stored in one transaction.
const BATCH: usize = 1_000;

/// So many chains of one authority, with one key, each for a name of its own.
fn chains(count: usize) -> String {
    let (key, issuer_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let issuer = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    let intermediate = issuer.self_signed(&issuer_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(issuer, issuer_key);
    let key_text = key.serialize_pem();
    let mut all = String::new();
    for number in 0..count {
        let leaf = CertificateParams::new(vec![format!("n{number}.many.test")]).unwrap();
        all.push_str(&leaf.signed_by(&key, &issuer).unwrap().pem());
        all.push_str(&intermediate);
        all.push_str(&key_text);
    }
    all
}

impl Site {
    /// A request for so many bytes, of which some are sent.
    fn begin_put(&self, length: usize, part: &[u8]) -> UnixStream {
        let mut socket = self.admin_socket();
        write!(socket, "PUT /certificates HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").unwrap();
        // If the process is killed meanwhile, it takes no more.
        let _ = socket.write_all(part);
        socket
    }

    fn is_well(&self) -> bool {
        self.sealane().admin("/healthz") == "ok\n"
            && self.sealane().metrics().sum("sealane_generation", &[]) == 1
    }
}

#[test]
fn one_stream_at_a_time_and_everything_else_goes_on() {
    let site = Site::start();
    let text = chains(3);
    let (first, rest) = text.as_bytes().split_at(text.len() / 2);
    let mut socket = site.begin_put(text.len(), first);
    let me = std::process::id();
    let upload = wait_for("the first has the store", || {
        let listed: Value =
            serde_json::from_str(&site.request("GET /certificates", "", b"").1).unwrap();
        listed.get("upload").cloned()
    });
    assert_eq!((&upload["sender"], &upload["certificates"]), (&me.into(), &0.into()));
    let (status, refused) = site.put(site.leaf("a.test").as_bytes());
    assert_eq!(status, 409, "{refused}");
    assert!(refused.contains(&format!("process {me} sends certificates")), "{refused}");
    assert!(site.is_well(), "the admin socket waits for nobody");
    assert_eq!(site.request("GET /certificates?name=kept.test", "", b"").0, 200);
    assert_eq!(site.request("DELETE /certificates?name=absent.test", "", b"").0, 404);
    socket.write_all(rest).unwrap();
    let (status, words) = answer(socket);
    let put: Value = serde_json::from_str(&words).unwrap();
    assert_eq!((status, &put["added"]), (200, &3.into()));
    assert_eq!(site.put(site.leaf("a.test").as_bytes()).0, 200, "and then the next one");

    // Who leaves in the middle leaves nothing behind, and no place taken.
    drop(site.begin_put(text.len(), first));
    let before = site.stored();
    wait_for("the place is free", || (site.put(b"no PEM").0 == 422).then_some(()));
    assert_eq!(site.stored(), before);
}

#[test]
fn what_is_wrong_or_too_long_is_refused_and_serves_on() {
    let site = Site::start();
    let leaf = site.leaf("a.test");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let put = |headers: &str, body: &[u8]| site.request("PUT /certificates", headers, body);
    assert_eq!(put("", leaf.as_bytes()).0, 411);
    assert_eq!(put(&format!("{chunked}Content-Length: 3\r\n"), b"0\r\n").0, 400);
    assert_eq!(put(chunked, b"zz\r\n").0, 400);
    assert_eq!(put("Content-Length: 0\r\n", b"").0, 422);
    let long = "-----BEGIN CERTIFICATE-----\n".to_owned() + &"A".repeat(2 << 20);
    let (status, words) = site.put(long.as_bytes());
    assert!(status == 422 && words.contains("admin socket, line 1: "), "{status} {words}");
    // The body ends early, in either framing: what came is not taken for all of it.
    for (headers, body) in [
        (format!("Content-Length: {}\r\n", leaf.len() + 1), leaf.clone()),
        (chunked.to_owned(), format!("{:x}\r\n{leaf}\r\n", leaf.len())),
    ] {
        let mut socket = site.admin_socket();
        write!(socket, "PUT /certificates HTTP/1.1\r\n{headers}\r\n{body}").unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let (status, words) = answer(socket);
        assert!(status == 400 && words.contains("the sender left"), "{status} {words}");
    }
    assert_eq!(site.stored(), 1);

    // A mistake behind a whole batch leaves that.
    let many = chains(BATCH);
    let (status, words) = site.put((many.clone() + &leaf[..leaf.len() / 2]).as_bytes());
    let put: Value = serde_json::from_str(&words).unwrap();
    assert_eq!((status, &put["added"]), (422, &BATCH.into()), "{put}");
    assert_eq!(site.stored(), BATCH as u64 + 1);
    let mut command = site.over_socket(&["import", "-"]);
    let said = tools::run_with_input(&mut command, (many + &leaf[..90]).as_bytes());
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    let expected = "1000 certificates before these were imported, and nothing from here on:";
    assert!(error_text(&said).contains(expected), "{said:?}");
    assert!(site.is_well());
}

/// Writes over all of the store, between two changes.
fn damage(site: &Site) {
    let folder = fs::File::open(site.path().join("store")).unwrap();
    flock(&folder, FlockOperation::LockExclusive).unwrap();
    let data = site.path().join("store/data.mdb");
    let data = fs::File::options().write(true).open(data).unwrap();
    let len = data.metadata().unwrap().len();
    data.write_all_at(&vec![0xff; usize::try_from(len).unwrap()], 0).unwrap();
}

fn is_refused_as_damaged((status, words): &(u16, String)) -> bool {
    let is_told = words.contains("damaged") || words.contains("nothing is served from it");
    *status == 500 && is_told
}

/// The process would end by it: nothing is written to a file that is not in order.
#[test]
fn nothing_is_written_to_a_damaged_store() {
    let put = |site: &Site| site.put(site.leaf("a.test").as_bytes());
    let delete = |site: &Site| site.request("DELETE /certificates?name=kept.test", "", b"");
    for order in [&put as &dyn Fn(&Site) -> (u16, String), &delete] {
        let site = Site::start();
        damage(&site);
        let said = order(&site);
        assert!(is_refused_as_damaged(&said), "{said:?}");
        assert_eq!(site.sealane().admin("/healthz"), "ok\n");
    }
    // The answer to a stream within which that happens is made without it, too.
    let site = Site::start();
    let text = chains(BATCH + 1);
    let (begun, rest) = text.split_at(text.len() - 10);
    let mut socket = site.begin_put(text.len(), begun.as_bytes());
    wait_for("the first batch", || (site.stored() > BATCH as u64).then_some(()));
    damage(&site);
    socket.write_all(rest.as_bytes()).unwrap();
    let said = answer(socket);
    assert!(is_refused_as_damaged(&said), "{said:?}");
    assert!(said.1.contains("\"added\": 1000"), "{said:?}");
    assert_eq!(site.sealane().admin("/healthz"), "ok\n");
}

/// Whenever the process is killed, the store is whole, and has whole batches of the stream.
#[test]
fn a_process_that_is_killed_leaves_whole_batches_and_the_stream_may_come_again() {
    let mut site = Site::start();
    let text = chains(2 * BATCH);
    for percent in [20, 49, 51, 80, 99] {
        let part = &text.as_bytes()[..text.len() * percent / 100];
        let socket = site.begin_put(text.len(), part);
        site.sealane().signal(Signal::KILL);
        let mut sealane = site.sealane.take().unwrap();
        sealane.process.wait(PATIENCE);
        drop(socket);
        let of_stream = site.stored() - 1;
        assert_eq!(of_stream % BATCH as u64, 0, "killed at {percent} percent");
        site.sealane = Some(Sealane::start(site.path(), &site.settings));
        site.served("kept.test").unwrap();
    }
    // When it is known that there is something to keep.
    let mut socket = site.begin_put(text.len(), &text.as_bytes()[..text.len() * 3 / 4]);
    wait_for("the first batch", || (site.stored() > BATCH as u64).then_some(()));
    site.sealane().signal(Signal::KILL);
    site.sealane.take().unwrap().process.wait(PATIENCE);
    assert!(socket.write_all(b"more").is_err());
    assert_eq!(site.stored(), BATCH as u64 + 1);
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    let put = site.push(&text);
    let counts = [&put["added"], &put["unchanged"]];
    assert_eq!(counts, [BATCH, BATCH], "{put}");
    // Who sends when the process ends is told what holds.
    let mut command = site.over_socket(&["import", "-"]);
    let child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = child;
    let (mut input, mut errors) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
    let mut sender = Process::new(child);
    input.write_all(&text.as_bytes()[..1 << 20]).unwrap();
    site.sealane().signal(Signal::KILL);
    site.sealane.take().unwrap().process.wait(PATIENCE);
    // It notices when it sends more, and does not wait for what is still to come.
    let _ = input.write_all(text.as_bytes());
    assert_eq!(sender.wait(PATIENCE).code(), Some(3));
    drop(input);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert!(said.contains("What it has stored is whole"), "{said}");
}

#[test]
fn a_person_at_a_terminal_sees_how_far_a_stream_is() {
    if tools::required("script").is_none() {
        return;
    }
    let site = Site::start();
    let [file, typescript] = ["all.pem", "typescript"].map(|name| site.path().join(name));
    fs::write(&file, chains(6 * BATCH)).unwrap();
    let command = format!("{:?} < {file:?}", site.over_socket(&["import", "-"]));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command", &command]).arg(&typescript);
    tools::output(&mut script);
    let shown = fs::read_to_string(typescript).unwrap();
    assert!(shown.contains("sealane: sent 5") && shown.contains(" left\r\n"), "{shown}");
    assert!(shown.contains("6000 certificates added"), "{shown}");
}

/// By hand: `cargo test --release -p sealane --test binary store_socket -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute and more with 100,000 certificates"]
fn a_hundred_thousand_come_in_one_stream() {
    let count: usize =
        std::env::var("SEALANE_STORE_NAMES").map_or(100_000, |names| names.parse().unwrap());
    let site = Site::start();
    let text = chains(count);
    let file = site.path().join("all.pem");
    fs::write(&file, &text).unwrap();
    let bytes = text.len();
    drop(text);
    let before = site.sealane().process.memory_mib();
    let started = Instant::now();
    let mut command = site.over_socket(&["import", "--json", "-"]);
    command.stdin(fs::File::open(&file).unwrap()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut sender = Process::new(child);
    // Everybody else is served meanwhile.
    let (mut asked, mut most_mib) = (0, 0);
    while sender.status().is_none() {
        assert!(site.is_well());
        site.served("kept.test").unwrap();
        asked += 1;
        most_mib = most_mib.max(site.sealane().process.memory_mib().1);
    }
    let took = started.elapsed();
    let mut put = String::new();
    std::io::Read::read_to_string(&mut out, &mut put).unwrap();
    let put: Value = serde_json::from_str(&put).unwrap();
    assert_eq!(put["added"], count, "{put}");
    println!(
        "{count} certificates, {} MB, in {took:?}; asked for health and a handshake {asked} times \
         meanwhile; private memory {} MiB before, {most_mib} MiB at most",
        bytes / 1_000_000,
        before.1,
    );
    site.served(&format!("n{}.many.test", count - 1)).unwrap_err();
    let shown = site.shown_over_socket(&["show", "--json", &format!("n{}.many.test", count - 1)]);
    assert_eq!(shown["listeners"][0]["serves"]["from"], "store");
    assert!(most_mib < before.1 + 200, "a stream is never in memory as a whole");
}
