//! Traces of an uploaded private key in the process's memory.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use rcgen::{CertificateParams, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};

use crate::harness::site::Site;
use crate::harness::wait_for;

/// Only root may read the memory of another process that hides it.
#[test]
fn uploaded_key_is_not_left_in_memory() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this user may not read the memory of Sealane");
        return;
    }
    let site = Site::start();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (pem, der) = (key.serialize_pem(), key.serialize_der());
    let text = [leaf.pem(), pem.clone()].concat();
    assert_eq!(site.put(text.as_bytes()).0, 200);
    let chunked = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let headers = "Transfer-Encoding: chunked\r\n";
    assert_eq!(site.request("PUT /certificates", headers, chunked.as_bytes()).0, 200);
    // Rejected before the body arrives, which the server then reads in vain, and closes.
    let mut socket = site.admin_socket();
    write!(socket, "PUT /certificates?x=y HTTP/1.1\r\n{headers}\r\n").unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 400");
    // On a busy machine it may have closed by now.
    let _ = socket.write_all(chunked.as_bytes());
    poll(&mut [PollFd::new(&socket, PollFlags::empty())], None).unwrap();
    let process = site.sealane().process.id();
    assert!(memory_has(process, b"sealane.toml"), "the memory is that of Sealane");
    // In PKCS #8 the secret of P-256 begins here. A connection's buffers go when it closes.
    let (line, secret) = (pem.lines().nth(1).unwrap().as_bytes(), &der[36..68]);
    for (what, needle) in [("a line of PEM", line), ("the secret", secret)] {
        wait_for(&format!("{what} to be gone"), || (!memory_has(process, needle)).then_some(()));
    }
}

/// Whether the bytes are in the private memory of a process that is no stack of its first thread.
fn memory_has(process: u32, needle: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    maps.lines().any(|line| {
        let mut parts = line.split_whitespace();
        let (range, rights) = (parts.next().unwrap(), parts.next().unwrap());
        let is_heap = matches!(parts.nth(3), None | Some("[heap]"));
        if !is_heap || !rights.starts_with("rw-p") {
            return false;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        // It may be gone by now.
        let read = memory.read_at(&mut bytes, start).unwrap_or(0);
        bytes[..read].windows(needle.len()).any(|window| window == needle)
    })
}
