//! What is served while the cluster is away or full, and how much it takes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair};
use rustix::process::Signal;

use super::harness::agent::Home;
use super::harness::wait_for;
use super::machines::{Machines, pem};
use super::serving::{Serve, body};

#[test]
fn all_serve_what_one_was_pushed_and_serve_on_without_etcd_and_say_so_after_an_hour() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    let serves: Option<Vec<_>> = machines.homes.iter().map(Serve::start).collect();
    let Some(serves) = serves else { return };
    let pushed = pem("a.test");
    machines.homes[0].import(&["a.test"], &pushed);
    for serve in &serves {
        wait_for("the next hello", || (serve.shown("a.test") == body(&pushed)).then_some(()));
    }
    machines.cluster.kill_all();
    for agent in &agents {
        agent.wait_until_said("what is served is served on");
    }
    assert!(serves[1].health().ends_with("ok\n"), "not yet long: {}", serves[1].health());
    // As if it had gone an hour ago; another agent goes on from that.
    for (agent, home) in agents.into_iter().zip(&machines.homes) {
        assert!(agent.stop().success());
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let word = format!("{} nobody listens there", now_s - 3_601);
        home.store().unwrap().store().leave_word(Some(&word)).unwrap();
    }
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for serve in &serves {
        let told = wait_for("what the agent says", || {
            let health = serve.health();
            health.contains("etcd https://").then_some(health)
        });
        assert!(told.starts_with("HTTP/1.1 200 "), "balancers leave it in: {told}");
        assert!(told.contains("degraded: renewals wait since "), "{told}");
        assert_eq!(serve.shown("a.test"), body(&pushed));
    }
    machines.cluster.start_again();
    for serve in &serves {
        wait_for("all to be well", || serve.health().ends_with("ok\n").then_some(()));
    }
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// A server that hangs keeps its connections open and sends nothing.
#[test]
fn watches_leave_a_server_that_hangs() {
    let Some(machines) = Machines::with_three_servers(2, &[]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    for agent in &agents {
        agent.wait_until_said("fleet: etcd answers");
    }
    // All agents begin with the first one.
    machines.cluster.signal(0, Signal::STOP);
    machines.homes[0].import(&["a.test"], &pem("a.test"));
    machines.homes[1].wait_until_held("a.test");
    for agent in &agents {
        agent.wait_until_said("is silent; the watch goes on at another server");
    }
    machines.cluster.signal(0, Signal::CONT);
    for agent in agents {
        assert!(agent.stop().success());
    }
}

fn word_of(home: &Home) -> Option<String> {
    home.store()?.store().word()
}

/// A machine that shares with nobody any more does not say so for ever.
#[test]
fn a_machine_that_left_the_fleet_says_nothing_of_it() {
    let Some(machines) = Machines::new(1, &[]) else { return };
    let home = &machines.homes[0];
    machines.cluster.kill_all();
    let agent = home.start();
    wait_for("its word", || word_of(home).is_some().then_some(()));
    assert!(agent.stop().success());
    let address = machines.authority.address;
    home.configure(&[home.authority(address, ""), home.by_dns(&["blocked.test"])]);
    let agent = home.start();
    wait_for("no word", || word_of(home).is_none().then_some(()));
    agent.wait_until_said("looks after");
    assert!(agent.stop().success());
}

/// The page on fleets has it so: find room, and tell the cluster that there is some.
#[test]
fn what_a_full_cluster_does_not_take_it_takes_once_there_is_room() {
    let Some(machines) = Machines::with_three_servers(2, &[]) else { return };
    let cluster = &machines.cluster;
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    machines.homes[0].import(&["a.test"], &pem("a.test"));
    machines.homes[1].wait_until_held("a.test");
    let full = cluster.fill();
    assert!(full.contains("database space exceeded"), "{full}");
    machines.homes[0].import(&["b.test"], &pem("b.test"));
    agents[0].wait_until_said("its quota is used up: etcdctl compact, then defrag");
    assert!(machines.homes[1].held("b.test").is_none());
    cluster.control(&["del", "/junk"]);
    cluster.shell(ROOM);
    machines.homes[1].wait_until_held("b.test");
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// A cluster that can be read and not written does not answer as it should, since it was full.
#[test]
fn a_cluster_that_stays_full_is_away_since_it_was_full() {
    let Some(machines) = Machines::new(1, &[]) else { return };
    let home = &machines.homes[0];
    let agent = home.start();
    agent.wait_until_said("fleet: etcd answers");
    machines.cluster.fill();
    home.import(&["b.test"], &pem("b.test"));
    agent.wait_until_said("its quota is used up");
    let word = wait_for("its word", || word_of(home));
    let (_, what) = word.split_once(' ').unwrap();
    let long = format!("1000000000 {what}");
    home.store().unwrap().store().leave_word(Some(&long)).unwrap();
    // All is listed again within that.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(word_of(home), Some(long));
    assert_eq!(home.said().matches("etcd answers").count(), 1, "{}", home.said());
    assert!(agent.stop().success());
}

/// Pages of a thousand, each greater than the 4 MiB of a message that gRPC allows by default.
#[test]
fn thousands_of_certificates_come_by_pages() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let all = many(2_500);
    let first = machines.homes[0].start();
    assert_eq!(machines.homes[0].import_all(&all), all.len());
    wait_for("the cluster to have them", || {
        (machines.cluster.keys("certificate/").len() == all.len()).then_some(())
    });
    let second = machines.homes[1].start();
    wait_for("the other one to have them", || {
        let held = machines.homes[1].store()?.store().summary().ok()?;
        (held.certificates == all.len() as u64).then_some(())
    });
    for agent in [first, second] {
        assert!(agent.stop().success());
    }
}

/// etcd takes 1.5 MiB of one request, and all of these are more.
#[test]
fn large_certificates_go_in_several_requests() {
    let Some(machines) = Machines::new(2, &[]) else { return };
    let agents: Vec<_> = machines.homes.iter().map(Home::start).collect();
    let all = many_padded(16, 100 << 10);
    assert_eq!(machines.homes[0].import_all(&all), all.len());
    wait_for("the other one to have them", || {
        let held = machines.homes[1].store()?.store().summary().ok()?;
        (held.certificates == all.len() as u64).then_some(())
    });
    for agent in agents {
        assert!(agent.stop().success());
    }
}

/// How a page says that room is made.
const ROOM: &str = r"
etcdctl compact $(etcdctl endpoint status -w fields | awk '/Revision/ { print $3; exit }')
etcdctl defrag
etcdctl alarm disarm
";

/// Certificates with their keys, each with 4 KiB of intermediate behind it.
fn many(count: usize) -> Vec<String> {
    many_padded(count, 4_096)
}

/// The same with so much of an intermediate.
fn many_padded(count: usize, bytes: usize) -> Vec<String> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let padding = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999], vec![7; bytes]);
    params.custom_extensions.push(padding);
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let each = (0..count).map(|number| {
        let leaf = CertificateParams::new(vec![format!("n{number}.test")]).unwrap();
        leaf.signed_by(&key, &issuer).unwrap().pem() + &root + &key.serialize_pem()
    });
    each.collect()
}
