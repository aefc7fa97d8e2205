//! The PEM reader against OpenSSL's: 2,000 mutated files of certificates, keys and lists give the
//! sections that OpenSSL reads, or an error.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use sealane_engine::certificates::KeyEncoding;
use sealane_engine::pem::{SectionKind, sections};

macro_rules! testdata {
    ($file:literal) => {
        include_str!(concat!("../../testdata/certificates/", $file))
    };
}

const CERTIFICATE: &str = testdata!("p256.crt");
const PARTS: [&str; 6] = [
    CERTIFICATE,
    testdata!("rsa.crt"),
    testdata!("p256.pkcs8.key"),
    testdata!("p256.sec1.key"),
    testdata!("rsa.pkcs1.key"),
    testdata!("p256.encrypted.key"),
];
const TEXTS: [&str; 4] = ["\n", "subject=/CN=a\n", "# -----END of one-----\n", "Bag Attributes\n"];
const FILES: u64 = 2_000;

/// Reads files, each behind its length, with `PEM_read_bio`, and writes a line for each: whether it
/// came to the end, and type, header's length and content of each section.
const OPENSSL: &str = r#"
import ctypes, ctypes.util, struct, sys
c = ctypes.CDLL(ctypes.util.find_library("crypto"))
c.BIO_new_mem_buf.restype = ctypes.c_void_p
c.BIO_new_mem_buf.argtypes = [ctypes.c_char_p, ctypes.c_int]
c.BIO_free.argtypes = [ctypes.c_void_p]
c.PEM_read_bio.argtypes = [ctypes.c_void_p] + [ctypes.c_void_p] * 4
c.CRYPTO_free.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
c.ERR_peek_last_error.restype = ctypes.c_ulong
text = sys.stdin.buffer.read()
at = 0
while at < len(text):
    (size,) = struct.unpack_from(">I", text, at)
    file = text[at + 4:at + 4 + size]
    at += 4 + size
    bio = c.BIO_new_mem_buf(file, size)
    found = []
    while True:
        c.ERR_clear_error()
        parts = [ctypes.c_void_p() for _ in range(3)]
        length = ctypes.c_long()
        if not c.PEM_read_bio(bio, *map(ctypes.byref, parts), ctypes.byref(length)):
            break
        name, header, data = parts
        label = ctypes.string_at(name).decode("latin-1")
        content = ctypes.string_at(data, length.value).hex()
        found.append("%s:%d:%s" % (label, len(ctypes.string_at(header)), content))
        for part in parts:
            c.CRYPTO_free(part, b"", 0)
    no_start_line = 108
    print("\t".join([str(c.ERR_peek_last_error() & 0x7fffff == no_start_line)] + found))
    c.BIO_free(bio)
"#;

/// Numbers by chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

fn file(chance: &mut Chance) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..=chance.below(4) {
        if chance.below(3) == 0 {
            text += chance.one_of(&TEXTS);
        }
        let part = chance.one_of(&PARTS);
        let label = chance.one_of(&["CERTIFICATE", "X509 CERTIFICATE", "X509 CRL", "PUBLIC KEY"]);
        text += &part.replace("CERTIFICATE", label);
    }
    text.into_bytes()
}

/// Changes that leave the sections as they are.
fn change_harmlessly(text: &mut Vec<u8>, chance: &mut Chance) {
    match chance.below(4) {
        0 => *text = [b"\xef\xbb\xbf", text.as_slice()].concat(),
        1 => *text = String::from_utf8_lossy(text).replace('\n', "\r\n").into_bytes(),
        2 => *text = String::from_utf8_lossy(text).replace('\n', " \n").into_bytes(),
        _ if text.ends_with(b"\n") => drop(text.pop()),
        _ => {}
    }
}

fn damage(text: &mut Vec<u8>, chance: &mut Chance) {
    let at = chance.below(text.len());
    let lines: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let line = lines.get(chance.below(lines.len().max(1))).copied().unwrap_or(0);
    let end =
        text[line..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| line + at);
    let byte = chance.one_of(b"\0\r\n -=:#AZaz09+/\t\x1a\x80\xef.");
    match chance.below(14) {
        0 => drop(text.remove(at)),
        1 => text[at] = byte,
        2 => text.insert(at, byte),
        3 => drop(text.drain(line..end)),
        4 => drop(text.drain(line.saturating_sub(1)..line)),
        5 => text.insert(line, byte),
        6 => text.insert(end, byte),
        7 => text.truncate(at),
        8 => drop(text.splice(line..line, *b"-----BEGIN CERTIFICATE-----\n")),
        9 => drop(text.splice(line..line, *b"-----END CERTIFICATE-----\n")),
        10 => drop(text.splice(line..line, *b"\xef\xbb\xbf")),
        11 => drop(text.splice(line..line, *b"Proc-Type: 4,ENCRYPTED\n\n")),
        12 => {
            let copied = text[line..end].to_vec();
            drop(text.splice(line..line, copied));
        }
        _ => text[at] ^= 0x20,
    }
}

fn read_by_openssl(files: &[Vec<u8>]) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-c", OPENSSL])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut input = python.stdin.take().unwrap();
    let framed: Vec<u8> = files
        .iter()
        .flat_map(|file| [&u32::try_from(file.len()).unwrap().to_be_bytes()[..], file].concat())
        .collect();
    let writer = std::thread::spawn(move || input.write_all(&framed));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(str::to_owned).collect()
}

/// The sections that OpenSSL found and that are used; `None` if it could not read all.
fn used(line: &str) -> Option<Vec<(SectionKind, String)>> {
    let mut fields = line.split('\t');
    if fields.next() != Some("True") {
        return None;
    }
    let mut found = Vec::new();
    for field in fields {
        let (label, rest) = field.split_once(':')?;
        let (header, content) = rest.split_once(':')?;
        let kind = match label {
            _ if header != "0" => SectionKind::EncryptedKey,
            "CERTIFICATE" | "X509 CERTIFICATE" => SectionKind::Certificate,
            "X509 CRL" => SectionKind::RevocationList,
            "PRIVATE KEY" => SectionKind::Key(KeyEncoding::Pkcs8),
            "RSA PRIVATE KEY" => SectionKind::Key(KeyEncoding::Pkcs1),
            "EC PRIVATE KEY" => SectionKind::Key(KeyEncoding::Sec1),
            "ENCRYPTED PRIVATE KEY" => SectionKind::EncryptedKey,
            "EC PARAMETERS" | "PUBLIC KEY" => continue,
            other => panic!("a section of type {other} was accepted"),
        };
        found.push((kind, content.to_owned()));
    }
    Some(found)
}

/// The byte order marks that Sealane skips before any section: OpenSSL only before the next one.
fn without_marks(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    while let Some(at) = text.windows(3).position(|window| window == b"\xef\xbb\xbf") {
        text.drain(at..at + 3);
    }
    text
}

#[test]
fn reads_what_openssl_reads_or_rejects() {
    let mut chance = Chance(0x5ea1_a4e5);
    let mut files = Vec::new();
    let mut harmless = Vec::new();
    for number in 0..FILES {
        let mut text = file(&mut chance);
        let is_harmless = number % 4 == 0;
        harmless.push(is_harmless);
        for _ in 0..=chance.below(2) {
            if is_harmless {
                change_harmlessly(&mut text, &mut chance);
            } else if !text.is_empty() {
                damage(&mut text, &mut chance);
            }
        }
        files.push(text);
    }
    let readings =
        read_by_openssl(&files.iter().map(|text| without_marks(text)).collect::<Vec<_>>());
    assert_eq!(readings.len(), files.len());
    let mut accepted = 0;
    for ((text, line), is_harmless) in files.iter().zip(&readings).zip(harmless) {
        let shown = String::from_utf8_lossy(text);
        let found = match sections(text) {
            Ok(found) => found,
            Err(error) => {
                assert!(!is_harmless, "{error:?} in\n{shown}");
                continue;
            }
        };
        // Keys under a passphrase are rejected by name, and not decoded.
        if found.iter().any(|section| section.kind == SectionKind::EncryptedKey) {
            continue;
        }
        accepted += 1;
        let hex = |der: &[u8]| der.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let ours: Vec<_> = found.iter().map(|each| (each.kind, hex(&each.der))).collect();
        assert_eq!(Some(ours), used(line), "{shown}");
    }
    assert!(accepted > 400, "only {accepted} files were accepted");
}
