//! Streams: many certificates, mistakes among them, agents that are killed meanwhile, and what a
//! running `sealane serve` makes of them.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;
use sealane_store::examine;

use super::harness::{serve, wait_for};
use super::site::{Site, server};

const ROLES: &str = "[[push.role]]\nclient = \"good.test\"\nnames = [\"*.test\"]\n";

/// Certificates for `N.many.test`, all of one key.
fn many(count: usize) -> Vec<String> {
    let key = KeyPair::generate().unwrap();
    let text = key.serialize_pem();
    let one = |number| {
        let params = CertificateParams::new(vec![format!("{number}.many.test")]).unwrap();
        [params.self_signed(&key).unwrap().pem(), text.clone()].concat()
    };
    (0..count).map(one).collect()
}

#[test]
fn ten_thousand_come_in_one_stream_twice() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let body = many(10_000).concat();
    let said = site.put("good.test", body.as_bytes());
    assert_eq!((said.status, said.field("added")), (200, 10_000.into()), "{said:?}");
    let said = site.put("good.test", body.as_bytes());
    assert_eq!((said.status, said.field("unchanged")), (200, 10_000.into()), "{said:?}");
    let page = site.curl(Some("good.test"), &[], "/certificates?limit=1000");
    assert_eq!(page.field("certificates").as_array().unwrap().len(), 1_000);
    assert!(page.field("next").is_string());
}

#[test]
fn what_came_before_a_mistake_is_stored_and_nothing_after_and_the_mistake_is_told() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let mut all = many(2_500);
    all[1_200] = server(&["1200.many.other"]);
    let said = site.put("good.test", all.concat().as_bytes());
    assert_eq!((said.status, said.field("added")), (403, 1_000.into()), "{said:?}");
    assert!(said.body.contains("may not store 1200.many.other"), "{said:?}");
    assert!(site.held("999.many.test").is_some() && site.held("1000.many.test").is_none());
    let said = site.put("good.test", b"-----BEGIN CERTIFICATE-----\nAAAA\n");
    assert_eq!(said.status, 422, "{said:?}");
    let said = site.put("good.test", b"");
    assert_eq!(said.status, 422, "{said:?}");
    assert!(said.body.contains("nothing in it; send chains with their keys"), "{said:?}");
}

#[test]
fn one_stream_at_a_time_and_one_that_breaks_off_leaves_room_for_the_next() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let mut first = site.spawn_curl(Some("good.test"), &["-T", "-"], "/certificates");
    let all = many(1_001).concat();
    first.stdin.as_mut().unwrap().write_all(all.as_bytes()).unwrap();
    first.stdin.as_mut().unwrap().flush().unwrap();
    wait_for("the first part", || site.held("0.many.test"));
    let said = site.put("good.test", server(&["next.test"]).as_bytes());
    assert_eq!(said.status, 409, "{said:?}");
    first.kill().unwrap();
    first.wait().unwrap();
    wait_for("room", || {
        let said = site.put("good.test", server(&["next.test"]).as_bytes());
        (said.status == 200).then_some(())
    });
    assert!(site.held("999.many.test").is_some() && site.held("1000.many.test").is_none());
}

#[test]
fn an_agent_that_is_killed_in_the_midst_leaves_whole_parts() {
    let mut site = Site::start(ROLES);
    site.client("good.test");
    let body = many(5_000).concat();
    for part in [0, 1_000, 3_000] {
        let mut child = site.spawn_curl(Some("good.test"), &["-T", "-"], "/certificates");
        let mut stdin = child.stdin.take().unwrap();
        let sent = body.clone();
        // It ends where the agent does.
        let writer = std::thread::spawn(move || drop(stdin.write_all(sent.as_bytes())));
        wait_for("a part", || site.held(&format!("{part}.many.test")));
        site.signal(Signal::KILL);
        site.agent.as_mut().unwrap().end();
        child.wait().unwrap();
        writer.join().unwrap();
        examine(&site.path("store"), || {}).unwrap();
        let held = site.store().store().summary().unwrap().certificates;
        assert!(held > part && held.is_multiple_of(1_000), "{held} after {part}");
        site.run();
    }
    let said = site.put("good.test", body.as_bytes());
    assert_eq!(said.status, 200, "{said:?}");
    assert_eq!(site.store().store().summary().unwrap().certificates, 5_000);
}

#[test]
fn a_machine_serves_at_the_next_hello_what_was_pushed_to_it() {
    let site = Site::start(ROLES);
    site.client("good.test");
    let port = ReservedPort::on_loopback().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "lanes = 1\nstore_key = {{ file = \"store.key\" }}\n[[listener]]\naddress = \"{}\"\n\
         backends = [\"{}\"]\ncertificates = [\"store:store\"]\n",
        port.address(),
        backend.local_addr().unwrap(),
    );
    let Some(_serve) = serve::start(site.folder.path(), &text) else { return };
    wait_for("sealane serve", || TcpStream::connect(port.address()).ok());
    for _ in 0..2 {
        let said = site.put("good.test", server(&["www.test"]).as_bytes());
        assert_eq!(said.status, 200, "{said:?}");
        let read = site.curl(Some("good.test"), &[], "/certificates?name=www.test");
        let leaf = read.field("certificates")[0]["chain"][0].as_str().unwrap().to_owned();
        // As docs/push-certificates.md has it.
        let shown = format!(
            "openssl s_client -connect {} -servername www.test </dev/null 2>/dev/null |
             openssl x509 -noout -fingerprint -sha256",
            port.address()
        );
        let shown = Command::new("sh").args(["-c", &shown]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap().replace(':', "").to_lowercase();
        assert!(shown.trim().ends_with(&leaf), "{shown} is not {leaf}");
    }
}
