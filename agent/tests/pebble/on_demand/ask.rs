//! A service of an operator's, which allows what ends in `allowed.test`.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A service that counts what it is asked.
pub struct Ask {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    asked: Mutex<HashMap<String, usize>>,
    hangs: AtomicBool,
    hung: Mutex<Vec<TcpStream>>,
    is_gone: AtomicBool,
}

impl Ask {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<State>::default());
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.is_gone.load(Ordering::SeqCst) {
                    return;
                }
                answer(stream.unwrap(), &served);
            }
        });
        Self { address, state }
    }

    /// How often it was asked for a name.
    pub fn asked(&self, name: &str) -> usize {
        self.state.asked.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    /// How often it was asked at all.
    pub fn count(&self) -> usize {
        self.state.asked.lock().unwrap().values().sum()
    }

    /// Whether it says nothing any more.
    pub fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::SeqCst);
    }

    /// The service is not there any more.
    pub fn go(&self) {
        self.state.is_gone.store(true, Ordering::SeqCst);
        // It looks when somebody comes.
        drop(TcpStream::connect(self.address));
        super::wait_for("its end", || TcpStream::connect(self.address).is_err().then_some(()));
    }
}

fn answer(mut stream: TcpStream, state: &State) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    let target = first.strip_prefix("GET /ask?name=").unwrap_or_else(|| panic!("{first}"));
    let name = target.split(' ').next().unwrap().to_owned();
    let status = if name.ends_with("allowed.test") { "200 OK" } else { "403 Forbidden" };
    *state.asked.lock().unwrap().entry(name).or_default() += 1;
    if state.hangs.load(Ordering::SeqCst) {
        state.hung.lock().unwrap().push(stream);
        return;
    }
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
}
