//! Challenges of ACME over HTTP (RFC 8555, section 8.3) for clients that run beside Sealane: a
//! [`Responder`] answers with what they have written into a folder, or keep in a store.
//!
//! A lane reads no file. It passes a request for a challenge on as to a backend, to a thread of
//! this process that listens on a unix socket without a file, and looks into the folder only then:
//! a challenge is served from when its file is there. To watch the folder and to publish what comes
//! would be a race, for clients tell the authority at once.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};
use sealane_lanes::kernel::Address;
use sealane_store::{HTTP_01, KeyedStore};

use crate::http::{ContentType, Response, Server, Status, serve};
use crate::notices::Notices;

/// Answers requests for challenges. Dropping it ends it, without waiting for that.
#[derive(Debug)]
pub struct Responder {
    address: Address,
    source: Arc<Mutex<Source>>,
    /// Goes with this value.
    server: Server,
}

/// Out of what challenges are answered.
#[derive(Clone, Debug)]
pub enum Source {
    /// What lies in a folder, as dehydrated writes it, or in the folders of [`PREFIX`] beneath it,
    /// as certbot, lego and acme.sh write into a webroot.
    Folder(PathBuf),
    /// What is kept in a store beside its certificates.
    Store(Arc<KeyedStore>),
}

impl Source {
    /// The folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(folder) => folder,
            Self::Store(store) => store.store().path(),
        }
    }
}

impl Responder {
    /// Begins to answer out of `source`.
    ///
    /// What it says to an operator goes to `notices`, without a request waiting for it.
    ///
    /// # Errors
    /// The socket or the thread could not be had.
    pub fn start(source: Source, notices: Notices) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The kernel chooses a name that nobody has, so nobody can be there before us.
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        listen(&socket, BACKLOG)?;
        let bound = SocketAddrUnix::try_from(getsockname(&socket)?)?;
        let name = bound.abstract_name().ok_or(Errno::AFNOSUPPORT)?;
        let address = Address::Unix(OsString::from_vec([b"\0", name].concat()).into());
        let (source, notices) = (Arc::new(Mutex::new(source)), RefCell::new(notices));
        let asked = Arc::clone(&source);
        let server = serve(socket, THREAD, move |request| {
            let source = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
            respond(request.path, &source, &mut notices.borrow_mut())
        })?;
        Ok(Self { address, source, server })
    }

    /// Answers out of `source` from now on.
    pub fn set_source(&self, source: Source) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
    }

    /// Whether its thread has ended, as it should not.
    pub fn has_ended(&self) -> bool {
        self.server.has_ended()
    }

    /// Where lanes connect to.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// What stands before the token in a request, and before its file in a webroot.
pub const PREFIX: &str = "/.well-known/acme-challenge/";

/// Whether `text` can be a token: base64url, and so never a path.
pub fn is_token(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && is_base64url(text.as_bytes())
}

/// Opens the folder of a responder.
///
/// # Errors
/// Why it cannot be used.
pub fn open_folder(folder: &Path) -> Result<OwnedFd, FolderError> {
    // The dot asks whether it may be entered, too.
    openat(CWD, folder.join("."), FOLDER, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => FolderError::Absent,
        Errno::NOTDIR => FolderError::NoFolder,
        Errno::ACCESS => FolderError::Closed,
        error => FolderError::Other(error),
    })
}

/// Why the folder of a responder cannot be used, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// The folder may come: a client that makes it may take it away, too.
    #[error("is not there; make it, and let the ACME client write there")]
    Absent,
    /// The folder may not be entered.
    #[error("may not be entered by the user of this process; give access")]
    Closed,
    /// The path leads to a file.
    #[error("is no folder; name one that the ACME client writes to")]
    NoFolder,
    /// What else the system said.
    #[error("cannot be opened: {0}; see to that, or name another")]
    Other(Errno),
}

fn respond(path: &str, source: &Source, notices: &mut Notices) -> Response {
    // Anybody on this machine may ask here, and lanes that do have looked at the token already.
    let absent = Response::text(Status::NotFound, "there is no such challenge");
    let token = path.strip_prefix(PREFIX).filter(|token| is_token(token));
    let find = |token| match source {
        Source::Folder(folder) => find(folder, token),
        Source::Store(store) => find_kept(store, token),
    };
    match token.map(|token| (token, find(token))) {
        None | Some((_, Ok(None))) => absent,
        Some((_, Ok(Some(text)))) => Response::new(Status::Ok, ContentType::Text, text),
        Some((token, Err(problem))) => {
            let path = source.path().display();
            notices.say(|| format!("acme_responder: {path}: challenge {token}: {problem}"));
            absent
        }
    }
}

/// What is kept in a store for `token`.
fn find_kept(store: &KeyedStore, token: &str) -> Result<Option<Vec<u8>>, String> {
    let kept = store.kept(&[HTTP_01, token].concat()).map_err(|error| error.to_string())?;
    match kept {
        Some(text) if !is_key_authorization(&text, token) => {
            Err("what is kept for it is no key authorization, and is not served".to_owned())
        }
        kept => Ok(kept.map(|text| text.to_vec())),
    }
}

/// What the file of `token` holds; none if there is none. Nothing but the authorization of that
/// very token leaves, whatever else lies in the folder.
fn find(folder: &Path, token: &str) -> Result<Option<Vec<u8>>, String> {
    let folder = open_folder(folder).map_err(|error| error.to_string())?;
    let file = match open_below(&folder, std::iter::empty(), token) {
        Err(Errno::NOENT) => open_below(&folder, PREFIX.trim_matches('/').split('/'), token),
        found => found,
    };
    let file = match file {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err("is behind a link, and none is followed".to_owned());
        }
        Err(Errno::ACCESS) => {
            return Err("may not be read by the user of this process; give access".to_owned());
        }
        Err(error) => return Err(format!("cannot be opened: {error}")),
    };
    let facts = fstat(&file).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile {
        let read = File::from(file).take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
        read.map_err(|error| format!("cannot be read: {error}"))?;
    }
    match is_key_authorization(&text, token) {
        true => Ok(Some(text)),
        false => Err("its file holds no key authorization, and is not served".to_owned()),
    }
}

/// Opens a file without following a link on the way, and without waiting for whoever is at the
/// other end of a pipe.
fn open_below<'p>(
    folder: &OwnedFd,
    mut below: impl Iterator<Item = &'p str>,
    name: &str,
) -> rustix::io::Result<OwnedFd> {
    let Some(next) = below.next() else {
        return openat(folder, name, UNFOLLOWED_FILE, Mode::empty());
    };
    let mut folder = openat(folder, next, FOLDER.union(OFlags::NOFOLLOW), Mode::empty())?;
    for next in below {
        folder = openat(&folder, next, FOLDER.union(OFlags::NOFOLLOW), Mode::empty())?;
    }
    openat(&folder, name, UNFOLLOWED_FILE, Mode::empty())
}

/// Whether `text` is the token, a dot and the thumbprint of an account's key.
fn is_key_authorization(text: &[u8], token: &str) -> bool {
    let is_short = text.len() as u64 <= FILE_BYTES_MAX;
    let rest = text.trim_ascii_end().strip_prefix(token.as_bytes());
    let thumbprint = rest.and_then(|rest| rest.strip_prefix(b"."));
    is_short && thumbprint.is_some_and(|text| !text.is_empty() && is_base64url(text))
}

fn is_base64url(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const UNFOLLOWED_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Connections that wait to be accepted; beyond it clients are reset.
const BACKLOG: i32 = 1024;
/// Bytes of a key authorization with what a client may put behind it: twice what there can be.
const FILE_BYTES_MAX: u64 = 512;
const THREAD: &str = "acme-responder";
/// Authorities use 43 bytes, and need 22.
const TOKEN_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
    const THUMBPRINT: &str = "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI";

    /// A webroot whose challenges are answered, and what an operator is told.
    struct Answered {
        folder: TempDir,
        responder: Responder,
        said: Receiver<String>,
    }

    impl Answered {
        fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (tell, said) = channel();
            let notices = Notices::new(move |line| tell.send(line).unwrap());
            let source = Source::Folder(folder.path().to_owned());
            let responder = Responder::start(source, notices).unwrap();
            Self { folder, responder, said }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// The status and the body.
        fn ask(&self, method: &str, target: &str) -> (String, String) {
            let Address::Unix(path) = self.responder.address() else { panic!() };
            let name = path.as_os_str().as_bytes().strip_prefix(b"\0").unwrap();
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let mut client = UnixStream::connect_addr(&address).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(client, "{method} {target} HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
        }

        /// The status of the challenge `token`.
        fn status(&self, token: &str) -> String {
            self.ask("GET", &format!("{PREFIX}{token}")).0
        }
    }

    fn authorization() -> String {
        format!("{TOKEN}.{THUMBPRINT}")
    }

    #[test]
    fn a_file_is_served_from_when_it_is_there_until_it_is_gone() {
        let answered = Answered::start();
        let target = format!("{PREFIX}{TOKEN}");
        for name in [TOKEN.to_owned(), format!(".well-known/acme-challenge/{TOKEN}")] {
            assert_eq!(answered.status(TOKEN), "404");
            answered.write(&name, &authorization());
            assert_eq!(answered.ask("GET", &target), ("200".into(), authorization()));
            assert_eq!(answered.ask("HEAD", &target), ("200".into(), String::new()));
            fs::remove_file(answered.path(&name)).unwrap();
        }
        answered.write(TOKEN, &format!("{}\n", authorization()));
        assert_eq!(answered.status(TOKEN), "200", "with an end of line");
        assert!(answered.said.try_recv().is_err(), "there is nothing to say");
        fs::remove_dir_all(answered.folder.path()).unwrap();
        assert_eq!(answered.status(TOKEN), "404");
        assert!(answered.said.recv().unwrap().contains("is not there; make it"));
        fs::create_dir(answered.folder.path()).unwrap();
        answered.write(TOKEN, &authorization());
        assert_eq!(answered.status(TOKEN), "200", "of the folder that took its place");
    }

    #[test]
    fn what_is_no_authorization_of_its_token_leaves_nowhere() {
        for text in [
            String::new(),
            "root:x:0:0".into(),
            TOKEN.into(),
            format!("{TOKEN}."),
            format!("{TOKEN}.a b"),
            format!("{TOKEN}x.{THUMBPRINT}"),
            format!(" {}", authorization()),
            authorization() + &" ".repeat(usize::try_from(FILE_BYTES_MAX).unwrap()),
            format!("{TOKEN}.{}", "a".repeat(1 << 20)),
        ] {
            let answered = Answered::start();
            answered.write(TOKEN, &text);
            assert_eq!(answered.status(TOKEN), "404", "{text:.100}");
            let said = answered.said.recv().unwrap();
            assert!(said.contains("holds no key authorization"), "{said}");
            assert!(!said.contains("root:"), "{said}");
        }
    }

    #[test]
    fn no_link_is_followed_and_nothing_but_a_file_is_read() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join(TOKEN), authorization()).unwrap();
        let link = |from: &str| {
            let answered = Answered::start();
            let path = answered.path(from);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let to = outside.path().join(if from.ends_with(TOKEN) { TOKEN } else { "" });
            symlink(to, path).unwrap();
            answered
        };
        for answered in [link(TOKEN), link(".well-known/acme-challenge")] {
            assert_eq!(answered.status(TOKEN), "404");
            assert!(answered.said.recv().unwrap().contains("none is followed"));
        }
        let answered = Answered::start();
        fs::create_dir(answered.path(TOKEN)).unwrap();
        assert_eq!(answered.status(TOKEN), "404", "a folder");
        let answered = Answered::start();
        let mode = Mode::RUSR.union(Mode::WUSR);
        rustix::fs::mknodat(CWD, answered.path(TOKEN), FileType::Fifo, mode, 0).unwrap();
        assert_eq!(answered.status(TOKEN), "404", "a pipe to which nobody writes");
    }

    #[test]
    fn a_token_is_never_a_path() {
        for good in [TOKEN, "a", &"a".repeat(TOKEN_BYTES_MAX)] {
            assert!(is_token(good), "{good}");
        }
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        for bad in ["", ".", "..", "../a", "a/b", "a%2e", "a=", "a?b", "a b", "\u{e9}", &long] {
            assert!(!is_token(bad), "{bad}");
        }
        let answered = Answered::start();
        answered.write("secret", &format!("secret.{THUMBPRINT}"));
        for target in ["/secret", "/.well-known/acme-challenge/../secret", "/", PREFIX] {
            assert_eq!(answered.ask("GET", target).0, "404", "{target}");
        }
        assert_eq!(answered.ask("POST", &format!("{PREFIX}secret")).0, "405");
    }
}
