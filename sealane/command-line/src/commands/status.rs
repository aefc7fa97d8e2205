//! `sealane status`: what a running Sealane does, once or until Ctrl-C.

mod look;
mod view;

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::error;

use crate::args::StatusArguments;
use crate::exit::Exit;

use super::running::{Answered, Running};
use look::Look;
use view::{Room, backends_of, draw};

/// Shows it.
///
/// # Errors
/// The writer's, and the system's if it refuses to tell of signals.
pub fn run(arguments: &StatusArguments, out: &mut dyn Write) -> io::Result<Exit> {
    let running = Running { socket: &arguments.socket.socket };
    if arguments.watch && !io::stdout().is_terminal() {
        let text = "--watch draws on a terminal; without one, use --json";
        error!("{text}");
        return Ok(Exit::Usage);
    }
    let first = match Look::at(&running) {
        Ok(first) => first,
        Err(text) => {
            error!("{text}");
            return Ok(Exit::Failed);
        }
    };
    if arguments.json {
        return out.write_all(&first.json).map(|()| Exit::Ok);
    }
    if arguments.watch {
        return watch(&running, first, out);
    }
    thread::sleep(ONE_LOOK);
    match Look::at(&running) {
        Ok(second) => write!(out, "{}", draw(&second, &first, Room::UNBOUNDED)).map(|()| Exit::Ok),
        Err(text) => {
            error!("{text}");
            Ok(Exit::Failed)
        }
    }
}

/// The backends alone of what is shown.
pub(super) fn backends(answered: &Answered) -> String {
    answered.read().map_or_else(|_| answered.words() + "\n", |state| backends_of(&state))
}

/// Draws until a signal comes; whatever happens, the terminal is left as it was.
fn watch(running: &Running<'_>, first: Look, out: &mut dyn Write) -> io::Result<Exit> {
    let (sender, ended) = channel();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let listen = move || {
        // The first is enough: whoever draws may have left.
        let _ = signals.forever().next().map(|_| sender.send(()));
    };
    thread::Builder::new().name("signals".into()).spawn(listen)?;
    write!(out, "{ENTER}")?;
    let mut before = first;
    let mut wait = ONE_LOOK;
    let outcome = loop {
        match ended.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break Ok(Exit::Ok),
        }
        wait = REFRESH;
        let now = match Look::at(running) {
            Ok(now) => now,
            Err(text) => break Err(text),
        };
        write!(out, "{HOME}{}{CLEAR_REST}", draw(&now, &before, room()).replace('\n', CLEAR_LINE))?;
        out.flush()?;
        before = now;
    };
    write!(out, "{LEAVE}")?;
    out.flush()?;
    outcome.or_else(|text| {
        error!("{text}");
        Ok(Exit::Failed)
    })
}

/// What fits on the terminal now.
fn room() -> Room {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 => {
            Room { lines: usize::from(size.ws_row) - 1, columns: size.ws_col.into() }
        }
        _ => Room::UNBOUNDED,
    }
}

/// Between the two looks that a rate takes.
const ONE_LOOK: Duration = Duration::from_secs(1);
/// Between two pictures.
const REFRESH: Duration = Duration::from_secs(2);

// From the control sequences that every terminal since xterm has: a screen of its own, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_REST: &str = "\x1b[J";
