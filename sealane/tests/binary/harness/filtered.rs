//! Sealane where the kernel, or whoever starts it, refuses it system calls.

use std::path::{Path, PathBuf};

use super::sealane::BINARY;
use super::write_program;

/// A program that starts Sealane under a filter that refuses these system calls.
pub fn filtered(folder: &Path, refused: &str) -> PathBuf {
    let program = folder.join("filtered");
    write_program(&program, &FILTER.replace("REFUSED", refused).replace("BINARY", BINARY));
    program
}

/// In Python, for no safe Rust can filter: every named call fails with EPERM from here on.
const FILTER: &str = r#"#!/usr/bin/env python3
import ctypes, os, platform, struct, sys

x86_64 = platform.machine() == "x86_64"
numbers = {
    "clone3": 435,
    "close_range": 436,
    "mlockall": 151 if x86_64 else 230,
    "mount": 165 if x86_64 else 40,
    "seccomp": 317 if x86_64 else 277,
    "setns": 308 if x86_64 else 268,
    "unshare": 272 if x86_64 else 97,
}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
EPERM, ENOSYS = 1, 38
steps = [struct.pack("HBBI", LOAD, 0, 0, 0)]
for name in "REFUSED".split():
    # Docker says of clone3 that it is not there, so that the C library takes clone.
    error = ENOSYS if name == "clone3" else EPERM
    steps.append(struct.pack("HBBI", EQUAL, 0, 1, numbers[name]))
    steps.append(struct.pack("HBBI", RETURN, 0, 0, 0x00050000 | error))
steps.append(struct.pack("HBBI", RETURN, 0, 0, 0x7FFF0000))
text = b"".join(steps)
memory = ctypes.create_string_buffer(text)
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(memory))
libc = ctypes.CDLL(None, use_errno=True)
for call in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, program, 0, 0)]:
    if libc.prctl(*call) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv("BINARY", ["BINARY"] + sys.argv[1:])
"#;
