//! Agents that are killed at every step of an order.

use super::harness::agent::Home;
use super::harness::authority::{Authority, Behaviour};
use super::harness::gate::{Gate, Stop};

/// An agent is killed when it has sent its n-th request, before the authority has it or before it
/// has the answer, and another goes on: it has the certificate, and the authority has issued one.
#[test]
fn an_order_goes_on_wherever_the_agent_was_killed() {
    let Some(authority) = Authority::start(Behaviour::default()) else { return };
    let gate = Gate::before(&authority);
    let mut stopped_at = Vec::new();
    for (stop, kind) in [(Stop::Before as fn(usize) -> Stop, "b"), (Stop::After, "a")] {
        for number in 1.. {
            let name = format!("{kind}{number}.test");
            let home = Home::new(&authority);
            home.configure(&[home.authority(gate.address, ""), home.by_dns(&[&name])]);
            let count = || (authority.issued(), authority.count_said("Added order"));
            let before = count();
            gate.stop(stop(number));
            let agent = home.start();
            let Some(path) = gate.wait_until_stopped(|| home.held(&name).is_some()) else {
                assert!(number > 5, "an order takes more requests than {number}");
                break;
            };
            agent.kill();
            // Where the order is, the authority has told, and nobody has heard.
            let is_lost = kind == "a" && path.contains("order-plz");
            stopped_at.push(path);
            gate.stop(Stop::Never);
            let agent = home.start();
            home.wait_until_held(&name);
            assert!(agent.stop().success());
            let now = count();
            let what = format!("{name}, stopped at {stopped_at:?}");
            assert_eq!(now.0 - before.0, 1, "certificates: {what}");
            assert_eq!(now.1 - before.1, 1 + usize::from(is_lost), "orders: {what}");
            assert_eq!(home.entries("acme/order/"), Vec::<String>::new());
            let said = home.said();
            assert!(!said.contains("not reloaded") && !said.contains("refuses"), "{said}");
        }
    }
    for part in ["sign-me-up", "order-plz", "authZ", "chalZ", "finalize-order", "certZ"] {
        let count = stopped_at.iter().filter(|path| path.contains(part)).count();
        assert!(count >= 2, "never stopped twice at {part}: {stopped_at:?}");
    }
}
