//! A name that clients asked for on one machine of a fleet, once that machine is gone.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::harness::agent::Home;
use super::harness::wait_for;
use super::machines::Machines;

/// Certificates of this authority are good for half a minute.
#[test]
fn a_name_on_demand_is_renewed_by_another_machine_once_the_one_that_obtained_it_is_gone() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let asks = service.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in service.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            answer(stream.unwrap(), |_| String::new());
        }
    });
    for (number, home) in machines.homes.iter().enumerate() {
        let by_dns = home.by_dns(&["any.test"]);
        let command = by_dns.lines().find(|line| line.starts_with("dns_command")).unwrap();
        home.configure(&[
            home.authority(machines.authority.address, "profile = \"moments\""),
            format!(
                "[on_demand]\nask = \"http://{asks}/ask\"\nchallenge = \"dns-01\"\n{command}\n\
                 admin = [\"admin.sock\"]\n"
            ),
            machines.cluster.table(&format!("m{number}")),
        ]);
        serve_names(home, number == 0);
    }
    let (one, other) = (first.start(), second.start());
    second.wait_until_held(NAME);
    one.kill();
    // The last one of the first may come after its end.
    wait_for("one that the other has obtained", || {
        second.said().contains(&format!("{NAME}: issued by")).then_some(())
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1, "that it is allowed is known to all");
    assert!(other.stop().success());
}

/// What stands for `sealane serve`: clients ask for the name all the time, at one machine before
/// there is a certificate, too.
fn serve_names(home: &Home, has_wanted: bool) {
    let path = home.path("admin.sock");
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), |target| match target {
                "/names/wanted" if !has_wanted => "{\"names\":[]}".to_owned(),
                _ => format!("{{\"names\":[{{\"name\":\"{NAME}\",\"asked\":1}}]}}"),
            });
        }
    });
}

/// Answers one request.
fn answer<S: Read + Write>(mut stream: S, with: impl Fn(&str) -> String) {
    let mut lines = BufReader::new(&mut stream).lines();
    let first = lines.next().unwrap().unwrap();
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    drop(lines);
    let body = with(first.split(' ').nth(1).unwrap());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
    // Whoever asked may be gone.
    let _ = write!(stream, "{head}Connection: close\r\n\r\n{body}");
}

const NAME: &str = "asked.test";
