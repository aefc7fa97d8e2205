//! BoringSSL's protocol tests (BoGo) against the server's session, behind the first look at the
//! hello: the program that its runner starts for each test. `bogo/run` starts the runner, and
//! `bogo/README.md` lists which tests pass.
//!
//! With `SEALANE_BOGO_BARE=1` rustls' own server takes the place of the look and the session.

mod end;
mod settings;
mod wanted;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;

use end::End;
use settings::Settings;
use wanted::{Unsupported, Wanted};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if std::env::args().any(|argument| argument == "-is-handshaker-supported") {
        // The runner wants this word. Without it, the runner reports the missing word itself.
        let _ = io::stdout().write_all(b"No\n");
        return ExitCode::SUCCESS;
    }
    let is_bare = std::env::var_os("SEALANE_BOGO_BARE").is_some();
    let outcome = Wanted::read(&mut arguments).and_then(|wanted| serve_all(wanted, is_bare));
    let mut errors = io::stderr().lock();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_unsupported = error.is::<Unsupported>();
            // The exit code is enough for the runner.
            let _ = writeln!(errors, "{error}");
            ExitCode::from(if is_unsupported { EXIT_UNIMPLEMENTED } else { 1 })
        }
    }
}

/// Serves one connection, and those that resume its session.
fn serve_all(mut wanted: Wanted, is_bare: bool) -> Result<()> {
    let mut settings = Settings::new(&wanted)?;
    for number in 0..=wanted.resumes {
        if number > 0 && wanted.no_ticket_on_resume {
            wanted.has_tickets = false;
            settings = Settings::new(&wanted)?;
        }
        let end = if is_bare { End::bare(&settings)? } else { End::waiting() };
        serve(&wanted, &settings, end, number)?;
    }
    Ok(())
}

fn serve(wanted: &Wanted, settings: &Settings, mut end: End, number: usize) -> Result<()> {
    let addresses = [
        SocketAddr::from((Ipv6Addr::LOCALHOST, wanted.port)),
        SocketAddr::from((Ipv4Addr::LOCALHOST, wanted.port)),
    ];
    let mut socket = TcpStream::connect(&addresses[..])?;
    socket.write_all(&wanted.shim_id.to_le_bytes())?;
    let mut is_greeted = false;
    let mut received = vec![0; READ_BYTES];
    loop {
        let len = match socket.read(&mut received) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        if len == 0 {
            let is_cut = wanted.checks_close_notify;
            return if is_cut {
                Err("the stream ended without close_notify".into())
            } else {
                Ok(())
            };
        }
        let mut plain = Vec::new();
        let fed = end.feed(settings, &received[..len], &mut plain);
        let is_closed = match fed {
            Ok(is_closed) => is_closed,
            Err(error) => {
                say_last_words(&mut socket, &mut end);
                return Err(error);
            }
        };
        if end.is_established() && !is_greeted {
            is_greeted = true;
            wanted.check(&end, number)?;
            if wanted.writes_first {
                end.send(b"hello")?;
            }
            if wanted.shuts_down {
                end.close()?;
            }
        }
        // The runner expects its own bytes back, each of them inverted.
        plain.iter_mut().for_each(|byte| *byte ^= 0xff);
        if !plain.is_empty() && !wanted.shuts_down {
            end.send(&plain)?;
        }
        socket.write_all(&end.take_wire())?;
        if is_closed {
            return Ok(());
        }
    }
}

/// Sends the alert, and waits until the runner has taken it.
fn say_last_words(socket: &mut TcpStream, end: &mut End) {
    // The runner may be gone, which it knows.
    let _ = socket.write_all(&end.take_wire());
    let _ = socket.shutdown(Shutdown::Write);
    let _ = io::copy(socket, &mut io::sink());
}

/// Exit code for a test that needs a feature that does not exist here.
const EXIT_UNIMPLEMENTED: u8 = 89;
const READ_BYTES: usize = 16 * 1024;
