//! Traces of a pushed private key in the agent's memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use rcgen::{CertificateParams, KeyPair};

use super::harness::wait_for;
use super::site::Site;

const ROLES: &str = "[[push.role]]\nclient = \"good.test\"\nnames = [\"*\"]\n";

/// Only root may read the memory of another process that hides it.
#[test]
fn pushed_key_is_not_left_in_memory() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this user may not read the agent's memory");
        return;
    }
    let site = Site::start(ROLES);
    site.client("good.test");
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (pem, der) = (key.serialize_pem(), key.serialize_der());
    let said = site.put("good.test", [leaf.pem(), pem.clone()].concat().as_bytes());
    assert_eq!(said.status, 200, "{said:?}");
    let process = site.agent.as_ref().unwrap().id();
    assert!(memory_has(process, b"client = \"good.test\"") || memory_has(process, b"good.test"));
    // In PKCS #8 the secret of P-256 begins here. The connection's buffers go when it closes.
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
