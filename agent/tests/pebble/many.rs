//! What it costs to look after very many certificates that nothing is to be done for.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, Issuer, KeyPair};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_operator::{KeySource, sealing_keys};
use sealane_store::{KeyedStore, Store};

use super::harness::agent::Home;
use super::harness::authority::{Authority, Behaviour};

/// By hand: `SEALANE_AGENT_NAMES=1000000 cargo test --release -p sealane-agent --test pebble many
/// -- --ignored --nocapture`.
#[test]
#[ignore = "takes two minutes, and ten with 1,000,000 certificates"]
fn many_are_looked_after_for_a_hundredth_of_a_core() {
    let count: usize =
        std::env::var("SEALANE_AGENT_NAMES").map_or(20_000, |names| names.parse().unwrap());
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let directory = format!("https://{}/dir", authority.address);
    fill(&home, count, &directory);
    let list = "[[certificate]]\nnames_from = \"names\"\nchallenge = \"http-01\"\n";

    // Of certificates that came otherwise, nobody is asked: this is the look for what is due alone.
    let other = home.authority(authority.address, "").replace("/dir\"", "/other\"");
    home.configure(&[other, list.to_owned()]);
    let scan = share(&home, count, "looked after");
    assert!(scan < 0.01, "{scan}");
    // Of its own, the authority is asked when it would like them renewed, each four times a day.
    home.configure(&[home.authority(authority.address, ""), list.to_owned()]);
    share(&home, count, "looked after, and asked for");
    assert_eq!(authority.issued(), 0, "nothing was due");
}

/// The share of a core that an agent takes, once it has begun.
fn share(home: &Home, count: usize, what: &str) -> f64 {
    let started = Instant::now();
    let agent = home.start();
    agent.wait_until_said(&format!("looks after {count} certificates"));
    let (ready, began) = (started.elapsed(), agent.process.cpu());
    let started = Instant::now();
    std::thread::sleep(LONG);
    let share = (agent.process.cpu() - began).as_secs_f64() / started.elapsed().as_secs_f64();
    println!(
        "{count} certificates {what}: {:.2} percent of a core; begun after {ready:?} with \
         {began:?} of it, {} MiB private",
        share * 100.0,
        agent.process.private_mib(),
    );
    assert!(agent.stop().success());
    share
}

/// Fills the store with certificates that were issued by the authority of a directory.
fn fill(home: &Home, count: usize, directory: &str) {
    let (key, issuer_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let issuer = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    let issuer = Issuer::new(issuer, issuer_key);
    let key_text = key.serialize_pem();
    let keys = sealing_keys(&KeySource::File(home.path("key"))).unwrap();
    let store = Store::open_or_create(&home.path("store")).unwrap();
    let store = KeyedStore::new(Arc::new(store), keys).unwrap();
    let mut names = BufWriter::new(File::create(home.path("names")).unwrap());
    let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap();
    let now = SystemTime::now();
    let now_s = i64::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    for from in (0..count).step_by(BATCH) {
        let mut builder = IndexBuilder::new(&provider.crypto, now_s);
        for number in from..count.min(from + BATCH) {
            let name = format!("n{number}.many.test");
            writeln!(names, "{name}").unwrap();
            let mut leaf = CertificateParams::new(vec![name]).unwrap();
            leaf.not_before = now.into();
            leaf.not_after = (now + LIFETIME).into();
            leaf.use_authority_key_identifier_extension = true;
            let chain = leaf.signed_by(&key, &issuer).unwrap().pem();
            builder.add_pair(directory, chain.as_bytes(), directory, key_text.as_bytes());
        }
        let indexed = builder.finish(DefaultCertificate::Absent);
        assert!(indexed.errors.is_empty(), "{:?}", indexed.errors.first());
        let certificates: Vec<_> = indexed.index.iter().map(Arc::clone).collect();
        store.import(&certificates, now_s).unwrap();
    }
    names.flush().unwrap();
}

/// Certificates of one transaction.
const BATCH: usize = 1_000;
/// How long each certificate is good for: nothing is due while it is measured.
const LIFETIME: Duration = Duration::from_secs(45 * 86_400);
/// How long the agent is watched.
const LONG: Duration = Duration::from_secs(60);
