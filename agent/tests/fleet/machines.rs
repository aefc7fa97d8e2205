//! What every test here starts: an authority, a cluster, and machines with an agent each.

use std::process::Command;

use rcgen::{CertificateParams, Issuer, KeyPair};

use super::harness::agent::{BINARY, Home};
use super::harness::authority::{Authority, Behaviour};
use super::harness::etcd::Cluster;
use super::harness::serve;

/// Machines with an agent each, which want the same names.
pub struct Machines {
    pub authority: Authority,
    pub cluster: Cluster,
    pub homes: Vec<Home>,
}

impl Machines {
    pub fn new(count: usize, names: &[&str]) -> Option<Self> {
        Self::around(Cluster::start()?, count, names)
    }

    pub fn with_three_servers(count: usize, names: &[&str]) -> Option<Self> {
        Self::around(Cluster::start_three()?, count, names)
    }

    pub fn around(cluster: Cluster, count: usize, names: &[&str]) -> Option<Self> {
        let authority = Authority::start(Behaviour::default())?;
        let mut homes = vec![Home::new(&authority)];
        while homes.len() < count {
            homes.push(homes[0].beside(&authority));
        }
        for (number, home) in homes.iter().enumerate() {
            let mut tables = vec![home.authority(authority.address, "")];
            // One that nobody can order, where nothing is wanted: there has to be one.
            let all: Vec<_> = if names.is_empty() { vec!["blocked.test"] } else { names.to_vec() };
            tables.extend(all.iter().map(|name| home.by_dns(&[name])));
            tables.push(cluster.table(&format!("m{number}")));
            home.configure(&tables);
        }
        Some(Self { authority, cluster, homes })
    }
}

/// A chain and a key, as somebody pushes them.
pub fn pem(name: &str) -> String {
    pem_from(&[name], 2020)
}

/// One for these names, which begins in a year.
pub fn pem_from(names: &[&str], year: i32) -> String {
    let (key, issuer_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let issuer = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    let issuer = Issuer::new(issuer, issuer_key);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut leaf = CertificateParams::new(names).unwrap();
    leaf.not_before = rcgen::date_time_ymd(year, 1, 1);
    leaf.signed_by(&key, &issuer).unwrap().pem() + &key.serialize_pem()
}

/// What `sealane fleet status` prints: on standard error, and on standard output.
pub fn status(home: &Home, more: &[&str]) -> (String, String) {
    let mut command = Command::new(serve::program().unwrap_or_else(|| BINARY.into()));
    command.args(["fleet", "status", "--config"]).arg(home.path("agent.toml")).args(more);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stderr), text(&output.stdout))
}
