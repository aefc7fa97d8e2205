//! What a fleet gives by way of a certificate store: looked at first, then served, and answered.

use std::fs;

use sealane_store::{Answer, Given, HELD, PROPOSED};

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::wait_for;

#[test]
fn what_a_fleet_proposes_is_looked_at_and_what_it_gives_is_served() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (folder, backend) = (folder.path(), Backend::echo());
    let (certificates, store) = (folder.join("site.pem"), folder.join("store"));
    fs::write(&certificates, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
    fs::create_dir(&store).unwrap();
    let listener = ListenerSettings::new("own", &certificates, &backend.address);
    let mut settings = Settings::new(vec![listener]);
    settings.more = format!("watch = false\ninclude = [\"store:{}\"]", store.display());
    let mut sealane = Sealane::start(folder, &settings);
    let answered = |holds: u64, checked: u64| {
        wait_for("the answer", || {
            Answer::read(&store).filter(|told| (told.holds, told.checked) == (holds, checked))
        })
    };
    assert_eq!(answered(0, 0).refusal, "");
    let given = |number: u64, file: &str| Given {
        number,
        text: format!(
            "[[listener]]\nname = \"given\"\naddress = \"127.0.0.1:0\"\n\
             certificates = [\"{file}\"]\nbackends = [\"{}\"]\n",
            backend.address
        ),
    };
    // What is refused is named by its line, and changes nothing.
    given(5, "absent.pem").put(&store, PROPOSED).unwrap();
    let refusal = answered(0, 5).refusal;
    assert!(refusal.contains("absent.pem"), "{refusal}");
    assert!(sealane.admin("/healthz").contains("the fleet's configuration 5 is refused here"));
    given(6, "../site.pem").put(&store, PROPOSED).unwrap();
    let refusal = answered(0, 6).refusal;
    assert!(refusal.contains("store/fleet-proposed.toml:4:17: listener[0].cert"), "{refusal}");
    // What is in order is not served before it holds.
    given(7, "site.pem").put(&store, PROPOSED).unwrap();
    assert_eq!(answered(0, 7).refusal, "");
    assert!(sealane.admin("/healthz").ends_with("ok\n"));
    assert!(!sealane.admin("/state").contains("\"given\""));
    assert_eq!(sealane.count_said("reloaded"), 0);
    Given::take_back(&store, PROPOSED).unwrap();
    given(7, "site.pem").put(&store, HELD).unwrap();
    answered(7, 0);
    sealane.wait_until_reloaded(1);
    assert!(sealane.admin("/state").contains("\"given\""));
    // What holds and is refused leaves what is served, and one that was mended is looked at again.
    given(8, "late.pem").put(&store, HELD).unwrap();
    assert!(answered(7, 8).refusal.contains("late.pem"));
    assert!(sealane.admin("/state").contains("\"given\""));
    fs::copy(&certificates, folder.join("late.pem")).unwrap();
    sealane.signal(rustix::process::Signal::HUP);
    answered(8, 0);
    // Who includes nothing any more takes the answer back.
    settings.more.clear();
    settings.write(folder);
    sealane.signal(rustix::process::Signal::HUP);
    wait_for("no answer", || Answer::read(&store).is_none().then_some(()));
    assert!(!sealane.admin("/state").contains("\"given\""));
    assert_eq!(sealane.stop(), Some(0));
}
