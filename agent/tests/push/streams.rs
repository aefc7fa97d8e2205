//! Streams: many certificates, mistakes among them, agents that are killed meanwhile, and what a
//! running `sealane serve` makes of them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;
use sealane_store::examine;

use super::bounds::connect;
use super::harness::{serve, wait_for};
use super::site::{Said, Site, server};

const ROLES: &str = "[[push.role]]\nclient = \"good.test\"\nnames = [\"*.test\"]\n";

/// Roles of these clients, each for all names below `test`.
fn roles(clients: &[&str]) -> String {
    let role = |client| format!("[[push.role]]\nclient = \"{client}\"\nnames = [\"*.test\"]\n");
    clients.iter().map(role).collect()
}

/// Certificates for `N.many.test`, all of one key.
fn many(count: usize) -> Vec<String> {
    many_below(count, "many.test")
}

/// The same below another name.
fn many_below(count: usize, domain: &str) -> Vec<String> {
    let key = KeyPair::generate().unwrap();
    let text = key.serialize_pem();
    let one = |number| {
        let params = CertificateParams::new(vec![format!("{number}.{domain}")]).unwrap();
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

/// Who reads no word before all is sent would find a closed connection, and no answer.
#[test]
fn whoever_sends_all_before_it_reads_comes_to_its_answer_and_whoever_waits_sends_nothing() {
    let reader = "[[push.role]]\nclient = \"reader.test\"\nnames = [\"*\"]\nmay = [\"get\"]\n";
    let site = Site::start(&(ROLES.to_owned() + reader));
    for client in ["good.test", "reader.test"] {
        site.client(client);
    }
    let mut all = many(2_500);
    all[1_200] = server(&["1200.many.other"]);
    // More than lies in the buffers of sockets.
    let body = all.concat().repeat(16);
    let ask = |client: &str, expects: bool| {
        let expect = if expects { "Expect: 100-continue\r\n" } else { "" };
        let length = body.len();
        let mut stream = connect(&site, client);
        let head = "PUT /certificates HTTP/1.1\r\nHost: x\r\n";
        write!(stream, "{head}{expect}Content-Length: {length}\r\n\r\n").unwrap();
        if !expects {
            stream.write_all(body.as_bytes()).unwrap();
        }
        let mut answer = String::new();
        // It may end without a word of farewell.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let within = ask("good.test", false);
    assert!(within.starts_with("HTTP/1.1 403 "), "{within}");
    assert!(within.contains("may not store 1200.many.other"), "{within}");
    let mut first = begun(&site, "good.test", "0.many.test", &many(1_001).concat());
    for expects in [false, true] {
        let refused = ask("reader.test", expects);
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        let second = ask("good.test", expects);
        assert!(second.starts_with("HTTP/1.1 409 "), "{second}");
        // It stands still for no longer than that.
        first.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
}

/// A client's stream that has begun, and stays there.
fn begun(site: &Site, client: &str, sign: &str, all: &str) -> Child {
    let mut child = site.spawn_curl(Some(client), &["-T", "-"], "/certificates");
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(all.as_bytes()).unwrap();
    stdin.flush().unwrap();
    wait_for("the first part", || site.held(sign));
    child
}

#[test]
fn a_client_has_one_stream_at_a_time_and_one_that_breaks_off_leaves_room_for_the_next() {
    let site = Site::start(&roles(&["good.test", "other.test"]));
    for client in ["good.test", "other.test"] {
        site.client(client);
    }
    let mut first = begun(&site, "good.test", "0.many.test", &many(1_001).concat());
    let next = || site.put("good.test", server(&["next.test"]).as_bytes());
    let said = next();
    assert_eq!(said.status, 409, "{said:?}");
    assert!(said.body.starts_with("another stream of this client's is on its way"), "{said:?}");
    let said = site.put("other.test", server(&["other.test"]).as_bytes());
    assert_eq!(said.status, 200, "whoever takes its time keeps itself waiting: {said:?}");
    assert!(first.try_wait().unwrap().is_none(), "beside it, and not after it");
    first.kill().unwrap();
    first.wait().unwrap();
    wait_for("room", || (next().status == 200).then_some(()));
    assert!(site.held("999.many.test").is_some() && site.held("1000.many.test").is_none());
}

#[test]
fn a_stream_goes_on_whoever_else_comes_and_says_nothing() {
    let site = Site::start(&roles(&["good.test", "other.test"]));
    for client in ["good.test", "other.test"] {
        site.client(client);
    }
    let stream = begun(&site, "good.test", "0.many.test", &many(1_001).concat());
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(site.address()).unwrap()).collect();
    let said = site.put("other.test", server(&["other.test"]).as_bytes());
    assert_eq!(said.status, 200, "{said:?}");
    // Its end is that of the stream.
    let output = stream.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("\n200\n"), "{text}");
    assert!(site.held("1000.many.test").is_some());
    drop(silent);
}

#[test]
fn who_finds_all_places_taken_has_the_next_that_is_free_and_others_are_answered_meanwhile() {
    let clients = ["a.test", "b.test", "c.test", "d.test", "e.test"];
    let site = Site::start(&roles(&clients));
    for client in clients {
        site.client(client);
    }
    let bodies = clients.map(|client| many_below(1_001, client).concat());
    let mut slow: Vec<Child> = Vec::new();
    for (client, body) in clients.iter().zip(&bodies).take(4) {
        slow.push(begun(&site, client, &format!("0.{client}"), body));
        // None of them stands still for too long.
        for child in &mut slow {
            child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
    }
    assert!(slow.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "all at once");
    let open = site.open_sockets();
    let mut fifth = site.spawn_curl(Some("e.test"), &["-T", "-"], "/certificates");
    fifth.stdin.take().unwrap().write_all(server(&["e.test"]).as_bytes()).unwrap();
    wait_for("the fifth", || (site.open_sockets() > open).then_some(()));
    for _ in 0..10 {
        let read = site.curl(Some("e.test"), &[], "/certificates?name=0.a.test");
        assert_eq!(read.status, 200, "{read:?}");
    }
    assert!(site.held("e.test").is_none());
    slow[0].kill().unwrap();
    slow[0].wait().unwrap();
    let text = String::from_utf8(fifth.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.ends_with("\n200\n"), "{text}");
    for child in &mut slow[1..] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The process would end by it: a file that is not in order is neither read nor written.
#[test]
fn a_damaged_store_is_left_alone_before_a_stream_and_within_it() {
    let put: &dyn Fn(&Site) -> Said = &|site| site.put("good.test", server(&["a.test"]).as_bytes());
    let get: &dyn Fn(&Site) -> Said =
        &|site| site.curl(Some("good.test"), &[], "/certificates?name=kept.test");
    let remove: &dyn Fn(&Site) -> Said =
        &|site| site.curl(Some("good.test"), &["-X", "DELETE"], "/certificates?name=kept.test");
    for request in [put, get, remove] {
        let site = Site::start(ROLES);
        site.client("good.test");
        assert_eq!(site.put("good.test", server(&["kept.test"]).as_bytes()).status, 200);
        let before = site.damage_store();
        let said = request(&site);
        assert!(said.status == 500 && said.body.contains("damaged"), "{said:?}");
        // In order again, which whoever serves has found out first.
        site.overwrite_store(&before);
        let store = site.store();
        let stamp = store.store().look().unwrap().unwrap().stamp;
        assert!(store.store().vouch(stamp).unwrap());
        drop(store);
        let said = request(&site);
        assert_eq!(said.status, 200, "{said:?}");
    }
    let site = Site::start(ROLES);
    site.client("good.test");
    let stream = begun(&site, "good.test", "0.many.test", &many(1_001).concat());
    site.damage_store();
    let said = Said::of(&stream.wait_with_output().unwrap());
    assert!(said.status == 500 && said.body.contains("damaged"), "{said:?}");
    assert_eq!(said.field("added"), 1_000);
    // Nor does the rest of the agent read it from now on.
    site.signal(Signal::HUP);
    site.wait_until_said("damaged, so nothing is read from it");
    assert_eq!(site.curl(Some("good.test"), &[], "/").status, 404, "it goes on");
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
