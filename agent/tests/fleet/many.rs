//! How 100,000 certificates come from one machine to another.

use std::time::{Duration, Instant};

use rcgen::{CertificateParams, Issuer, KeyPair};

use super::harness::agent::{Agent, Home};
use super::harness::etcd::Cluster;
use super::harness::wait_for;
use super::machines::Machines;

#[test]
#[ignore = "minutes, and its figures are of a release build"]
fn a_machine_that_joins_has_a_hundred_thousand_certificates_within_a_minute() {
    let Some(cluster) = Cluster::start_with(3, QUOTA_BYTES) else { return };
    let Some(machines) = Machines::around(cluster, 2, &[]) else { return };
    let [first, second] = &machines.homes[..] else { panic!() };
    let agent = first.start();
    wait_for("the store", || first.store());
    import(first);
    let begun = Instant::now();
    until_all("put into etcd", &agent, || machines.cluster.count("certificate/"));
    let put = begun.elapsed();
    let size = machines.cluster.field(0, "DBSize").parse::<u64>().unwrap() >> 20;
    println!("put in {put:?}; {}; etcd has {size} MiB of it", cost(&agent));
    let begun = Instant::now();
    let joined = second.start();
    let taken = until_all("taken by another", &joined, || {
        let store = second.store();
        store.map_or(0, |store| store.store().summary().unwrap().certificates)
    });
    println!("taken in {:?}; {taken} MiB private at most; {}", begun.elapsed(), cost(&joined));
    joined.wait_until_said("fleet: etcd answers");
    for agent in [agent, joined] {
        assert!(agent.stop().success());
    }
}

/// Puts all of them into a machine's store: a leaf and the one above it, each with names of its
/// own.
fn import(home: &Home) {
    let issuer_key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    let root = params.self_signed(&issuer_key).unwrap().pem();
    let issuer = Issuer::new(params, issuer_key);
    let key = KeyPair::generate().unwrap();
    for from in (0..COUNT).step_by(5_000) {
        let one = |number| {
            let leaf = CertificateParams::new(vec![format!("n{number}.test")]).unwrap();
            leaf.signed_by(&key, &issuer).unwrap().pem() + &root + &key.serialize_pem()
        };
        home.import_all(&(from..from + 5_000).map(one).collect::<Vec<_>>());
        println!("made {} of {COUNT}", from + 5_000);
    }
}

/// Waits until `count` says that all are there, and tells how far it is; the most memory that the
/// agent had meanwhile, in MiB.
fn until_all(what: &str, agent: &Agent, count: impl Fn() -> u64) -> u64 {
    let (begun, mut told, mut peak) = (Instant::now(), Instant::now(), 0);
    loop {
        peak = peak.max(agent.process.private_mib());
        let there = count();
        if there >= COUNT {
            return peak;
        }
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            let left = begun.elapsed().as_secs_f64() * (COUNT - there) as f64 / there.max(1) as f64;
            println!("{what}: {there} of {COUNT}, {left:.0} s left");
        }
        assert!(begun.elapsed() < Duration::from_mins(20), "{what}: {there}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn cost(agent: &Agent) -> String {
    let (cpu, memory) = (agent.process.cpu(), agent.process.private_mib());
    format!("{cpu:?} of CPU and {memory} MiB private now")
}

const COUNT: u64 = 100_000;
const QUOTA_BYTES: u64 = 2 << 30;
