//! Indexes N generated P-256 certificates (default 10,000) with one common intermediate and prints
//! the time and memory: `cargo run --release -p sealane-engine --example index_scale -- 10000`.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse::<usize>())?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    // One text, so that the process grows by the index and not by the input.
    let mut texts = String::new();
    let mut ends = Vec::with_capacity(count);
    for number in 0..count {
        let key = KeyPair::generate()?;
        let name = format!("site-{number}.example.com");
        let leaf = CertificateParams::new([name])?.signed_by(&key, &issuer)?;
        texts += &leaf.pem();
        texts += &issuer.pem();
        texts += &key.serialize_pem();
        ends.push(texts.len());
    }

    let resident_before = resident_kib()?;
    let start = Instant::now();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut builder = IndexBuilder::new(&provider, 1_800_000_000);
    let mut begin = 0;
    for (number, end) in ends.into_iter().enumerate() {
        builder.add(&format!("certificates/{number}.pem"), &texts.as_bytes()[begin..end]);
        begin = end;
    }
    let indexed = builder.finish(DefaultCertificate::First);
    let elapsed = start.elapsed();
    let resident_after = resident_kib()?;

    if !indexed.errors.is_empty() || indexed.index.name_count() != count {
        return Err("some certificates are not in the index".into());
    }
    writeln!(
        io::stdout(),
        "{count} certificates of {} PEM bytes each: indexed in {elapsed:.1?}, estimate {} KiB, \
         resident memory grew by {} KiB",
        texts.len() / count.max(1),
        indexed.index.memory_bytes() / 1024,
        resident_after.saturating_sub(resident_before),
    )?;
    Ok(())
}

fn resident_kib() -> Result<usize, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kib.parse()?)
}
