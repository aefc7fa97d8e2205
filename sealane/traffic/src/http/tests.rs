//! Tests of the HTTP server, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::*;

#[test]
fn answers_get_and_head_and_then_closes() {
    let site = Site::start();
    let got = site.ask("GET /hello?a=b?c HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
    assert!(got.contains("\r\nContent-Length: 21\r\n"), "{got}");
    assert!(got.contains("\r\nConnection: close\r\n"), "{got}");
    assert!(got.ends_with("\r\n\r\n/hello Some(\"a=b?c\")\n"), "{got}");
    let head = site.ask("HEAD /hello?a=b?c HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.contains("\r\nContent-Length: 21\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn refuses_what_it_does_not_speak() {
    let site = Site::start();
    let line = |request: &str| site.ask(request).lines().next().unwrap_or("").to_owned();
    assert_eq!(line("\x16\x03\x01\x02\x00\x01"), "HTTP/1.1 400 Bad Request");
    assert_eq!(line("POST / HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert!(site.ask("PUT / HTTP/1.1\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
    let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
    assert!(line(&format!("GET / HTTP/1.1\r\n{many}\r\n")).contains(" 431 "));
    let long = "a".repeat(HEAD_BYTES_MAX);
    assert!(line(&format!("GET /{long}")).contains(" 431 "));
}

#[test]
fn a_request_may_come_byte_by_byte_and_a_body_does_not_cost_the_response() {
    let site = Site::start();
    let mut client = TcpStream::connect(site.address).unwrap();
    client.set_nodelay(true).unwrap();
    for byte in b"GET /slow HTTP/1.1\r\n\r\n" {
        client.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/slow None\n"), "{answer}");
    // A server that has closed would answer this with a reset, and fail a later write.
    for _ in 0..32 {
        client.write_all(&[b'x'; 1024]).unwrap();
        thread::yield_now();
    }
}

#[test]
fn silent_clients_hold_up_nobody_and_the_oldest_makes_room() {
    let site = Site::with_timeout(Duration::from_secs(600));
    let mut oldest = TcpStream::connect(site.address).unwrap();
    oldest.write_all(b"GET /oldest").unwrap();
    let others: Vec<_> =
        (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(site.address).unwrap()).collect();
    assert!(site.ask("GET / HTTP/1.1\r\n\r\n").ends_with("/ None\n"));
    assert_closed(&mut oldest);
    // The newest of the silent ones is still there, and gets its answer.
    let mut newest = others.last().unwrap();
    newest.write_all(b"GET /newest HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/newest None\n"), "{answer}");
}

#[test]
fn a_client_that_never_ends_its_request_is_cut() {
    let site = Site::with_timeout(Duration::from_millis(1));
    let mut client = TcpStream::connect(site.address).unwrap();
    assert_closed(&mut client);
}

#[test]
fn a_response_larger_than_the_socket_takes_arrives_whole() {
    let body = vec![b'x'; 8 << 20];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = body.clone();
    let server = serve(listener, "large", move |_| {
        Response::new(Status::Ok, ContentType::Html, sent.clone())
    })
    .unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&body) && answer.len() < body.len() + HEAD_BYTES_MAX);
    server.stop();
}

/// For example `nc -N`, and a lane that forwards the end of a client.
#[test]
fn client_may_close_its_side_first() {
    let site = Site::start();
    for _ in 0..100 {
        let mut client = TcpStream::connect(site.address).unwrap();
        client.write_all(b"GET /half HTTP/1.1\r\n\r\n").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("/half None\n"), "{answer}");
    }
}

#[test]
fn panic_of_a_handler_ends_its_request_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handler = |request: &Request<'_>| match request.path {
        "/panic" => panic!("as a test wants it"),
        _ => echo(request),
    };
    let site = Site { address, server: serve(listener, "panics", handler).unwrap() };
    let other = TcpStream::connect(address).unwrap();
    assert!(site.ask("GET /panic HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 500 "));
    assert!(site.ask("GET /next HTTP/1.1\r\n\r\n").ends_with("/next None\n"));
    let mut answer = String::new();
    (&other).write_all(b"GET /other HTTP/1.1\r\n\r\n").unwrap();
    (&other).read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/other None\n"), "{answer}");
}

#[test]
fn stop_closes_the_listener_and_what_is_open() {
    let site = Site::start();
    let mut silent = TcpStream::connect(site.address).unwrap();
    assert!(site.ask("GET / HTTP/1.1\r\n\r\n").ends_with("/ None\n"));
    let address = site.address;
    site.server.stop();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn serves_a_unix_socket_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http");
    let server = serve(UnixListener::bind(&path).unwrap(), "unix", echo).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET /unix HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("/unix None\n"), "{answer}");
    server.stop();
}

/// A client that waits for its order holds nobody up; one too many, and one whose worker panics,
/// get their answer too.
#[test]
fn orders_are_carried_out_beside_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders");
    let (begin, begun) = channel();
    let held = Arc::new(Mutex::new(()));
    let hold = held.lock().unwrap();
    let (gate, started) = (Arc::clone(&held), Mutex::new(begin));
    let handler = move |request: &Request<'_>| match (request.method, request.path) {
        (Method::Post, "/wait") => {
            let (gate, begin) = (Arc::clone(&gate), started.lock().unwrap().clone());
            Answer::Later(Box::new(move || {
                begin.send(()).unwrap();
                drop(gate.lock());
                Response::text(Status::Ok, "waited")
            }))
        }
        (Method::Post, _) => Answer::Later(Box::new(|| panic!("as a test wants it"))),
        (Method::Put, path) => {
            let path = path.to_owned();
            Answer::WithBody(Box::new(move |mut body| {
                let (mut all, mut part) = (Vec::new(), [0; 1000]);
                loop {
                    match body.read(&mut part) {
                        Ok(0) => break,
                        Ok(count) => all.extend_from_slice(&part[..count]),
                        Err(error) => return Response::text(Status::BadRequest, error),
                    }
                }
                Response::text(Status::Ok, format_args!("{path} {}", all.len()))
            }))
        }
        (Method::Delete | Method::Get, path) => Response::text(Status::Ok, path).into(),
    };
    let server = serve_orders(UnixListener::bind(&path).unwrap(), "orders", handler).unwrap();
    let begin = |line: &str| {
        let mut client = UnixStream::connect(&path).unwrap();
        write!(client, "{line} HTTP/1.1\r\n\r\n").unwrap();
        client
    };
    let end = |mut client: UnixStream| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let waiting: Vec<_> = (0..WORKERS_MAX)
        .map(|_| {
            let client = begin("POST /wait");
            begun.recv().unwrap();
            // It waits for its answer nevertheless.
            client.shutdown(std::net::Shutdown::Write).unwrap();
            client
        })
        .collect();
    assert!(end(begin("GET /page")).ends_with("/page\n"), "pages are served meanwhile");
    assert!(end(begin("POST /wait")).starts_with("HTTP/1.1 503 "));
    drop(hold);
    for client in waiting {
        assert!(end(client).ends_with("waited\n"));
    }
    let panicked = || Some(end(begin("POST /panic"))).filter(|text| !text.contains(" 503 "));
    // The last of them may still be leaving.
    let answer = (0..1_000).find_map(|_| {
        panicked().or_else(|| {
            thread::yield_now();
            None
        })
    });
    assert!(answer.unwrap().starts_with("HTTP/1.1 500 "));
    bodies_arrive(&path);
    server.stop();
}

fn bodies_arrive(path: &std::path::Path) {
    let put = |headers: &str, parts: &[&[u8]]| {
        let mut client = UnixStream::connect(path).unwrap();
        write!(client, "PUT /body HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
        // Who is refused early reads no more.
        let _ = parts.iter().try_for_each(|part| client.write_all(part));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let long = vec![b'x'; 1 << 20];
    let whole = put("Content-Length: 1048577", &[b"a", &long]);
    assert!(whole.starts_with("HTTP/1.1 200 ") && whole.ends_with("/body 1048577\n"), "{whole}");
    let chunked = put("Transfer-Encoding: chunked", &[b"100000\r\n", &long, b"\r\n0\r\n\r\n"]);
    assert!(chunked.ends_with("/body 1048576\n"), "{chunked}");
    let asked = put("Content-Length: 1\r\nExpect: 100-Continue", &[b"a"]);
    // Told to go on, unless the body came before that was known.
    assert!(asked.ends_with("/body 1\n"), "{asked}");
    let nothing = put("Expect: 100-continue\r\nContent-Length: 0", &[]);
    assert!(nothing.starts_with("HTTP/1.1 200 "), "{nothing}");
    assert!(put("Host: x", &[]).starts_with("HTTP/1.1 411 "), "how long is it?");
    assert!(put("Transfer-Encoding: chunked", &[b"x\r\n"]).starts_with("HTTP/1.1 400 "));
    let mut client = UnixStream::connect(path).unwrap();
    let head = "PUT /body HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    let mut told = [0; 25];
    client.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"a").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn behind_a_terminator_its_header_comes_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = serve_proxied(listener, "proxied", |request| {
        let lane = request.proxy_header.unwrap().lane.unwrap();
        Response::text(Status::Ok, format_args!("lane {lane}, {}", request.accept.unwrap()))
    })
    .unwrap();
    let header = proxy_header::Facts { lane: Some(7), ..Default::default() };
    let header = header.encode(&proxy_header::Values::default());
    let request = b"GET / HTTP/1.1\r\nACCEPT: text/html\r\n\r\n";
    let ask = |pieces: &[&[u8]]| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_nodelay(true).unwrap();
        for piece in pieces {
            client.write_all(piece).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let whole = [&header[..], &request[..]].concat();
    assert!(ask(&[&whole]).ends_with("\r\n\r\nlane 7, text/html\n"));
    let bytes: Vec<_> = whole.chunks(1).collect();
    assert!(ask(&bytes).ends_with("\r\n\r\nlane 7, text/html\n"));
    let refused = ask(&[request]);
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(
        refused.ends_with("no PROXY header comes first; is whoever connects set to send one?\n"),
        "{refused}"
    );
    server.stop();
}

#[test]
fn only_known_hosts_are_answered_where_hosts_are_judged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hosts = Hosts::with(&["metrics.test".into()]);
    let site = Site { address, server: serve_hosts(listener, hosts, "hosts", echo).unwrap() };
    let line = |request: &str| site.ask(request).lines().next().unwrap_or("").to_owned();
    for host in ["localhost", "127.0.0.1:80", "METRICS.test:9180"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(line(&request), "HTTP/1.1 200 OK", "{host}");
    }
    let rebound = site.ask("GET /state HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421 Misdirected Request\r\n"), "{rebound}");
    assert!(rebound.contains("in [admin] hosts") && !rebound.contains("evil"), "{rebound}");
    let absolute = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert!(line(absolute).contains(" 421 "));
    assert_eq!(line("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(line("GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
}

struct Site {
    address: std::net::SocketAddr,
    server: Server,
}

impl Site {
    fn start() -> Self {
        Self::with_timeout(REQUEST_TIMEOUT)
    }

    fn with_timeout(timeout: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, opening) = (listener.local_addr().unwrap(), Opening::Request(None));
        Self {
            address,
            server: serve_within(timeout, listener.into(), "http", opening, at_once(echo)).unwrap(),
        }
    }

    /// Sends `request` and returns all that comes back.
    fn ask(&self, request: &str) -> String {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn echo(request: &Request<'_>) -> Response {
    Response::text(Status::Ok, format_args!("{} {:?}", request.path, request.query))
}

/// Waits for the end of a connection, or hangs.
fn assert_closed(client: &mut TcpStream) {
    let end = client.read(&mut [0]);
    let reset = end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(reset || matches!(end, Ok(0)), "{end:?}");
}
