//! Orders that come to a certificate, and those that do not.

use super::harness::agent::Home;
use super::harness::authority::{Authority, Behaviour};

#[test]
fn a_wildcard_is_obtained_by_dns_and_kept_sealed() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let home = Home::new(&authority);
    let tables = [home.authority(authority.address, ""), home.by_dns(&["a.test", "*.a.test"])];
    home.configure(&tables);
    let agent = home.start();
    let held = home.wait_until_held("any.a.test");
    assert_eq!(held.names, ["a.test", "*.a.test"]);
    assert_eq!(held.label, format!("https://{}/dir", authority.address));
    agent.wait_until_said("a.test, *.a.test: issued by");
    assert!(agent.stop().success());
    // Nothing of the order is left: no entry, no record.
    assert_eq!(home.entries("acme/order/"), Vec::<String>::new());
    assert_eq!(home.entries("challenge/"), Vec::<String>::new());
    assert_eq!(home.entries("acme/account/").len(), 1);
    let calls = authority.hook_calls();
    let count = |what: &str| calls.iter().filter(|call| call.starts_with(what)).count();
    let (made, taken) = ("present _acme-challenge.a.test ", "cleanup _acme-challenge.a.test ");
    assert_eq!((count(made), count(taken), calls.len()), (2, 2, 4), "{calls:?}");
    // One that starts later has what it needs, and the account it had.
    let agent = home.start();
    agent.wait_until_said("looks after 1 certificates");
    assert!(agent.stop().success());
    assert_eq!(authority.issued(), 1);
}
