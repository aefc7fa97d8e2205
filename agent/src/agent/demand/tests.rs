//! What is asked, remembered and forgotten of names on demand.

use sealane_renewal::{Action, AuthorityId};

use super::super::tests::{DIRECTORY, Home, id, in_tasks};
use super::*;
use crate::agent::Agent;
use crate::certificate;
use crate::failure::Failed;
use crate::on_demand::listen::Wanted;
use crate::settings::{KeyKind, Settings};

/// Settings with a certificate for `a.test` and `b.test`, and a service that nobody is.
fn settings(home: &Home) -> Settings {
    let on_demand =
        "[on_demand]\nask_command = [\"false\"]\nchallenge = \"http-01\"\nadmin = [\"none\"]\n";
    home.settings_with(DIRECTORY, &["a.test\", \"b.test"], on_demand)
}

fn asked(name: &str) -> Asked {
    let wanted = Wanted { from: Vec::new(), name: name.to_owned() };
    Asked { served: Vec::new(), wanted: vec![wanted] }
}

fn allow(agent: &mut Agent, name: &str) {
    let allowed = Outcome::Permission { is_given: true };
    agent.demanded.note_asked(&mut agent.book, asked(name));
    let action = agent.book.schedule.next(now());
    let Some(Action::AskPermission { ticket, id, name }) = action else { panic!("{action:?}") };
    agent.demanded.note_permission(&mut agent.book, id, name, &allowed);
    agent.book.schedule.happened(now(), ticket, allowed);
}

#[test]
fn a_name_that_comes_in_another_certificate_is_not_asked_about() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent_with(settings(&home));
        agent.demanded.note_asked(&mut agent.book, asked("b.test"));
        agent.demanded.note_asked(&mut agent.book, asked("c.test"));
        agent.begin();
        let demand = |agent: &mut Agent, name| agent.book.schedule.on_demand(now(), id(name), name);
        assert!(matches!(demand(&mut agent, "b.test"), Demand::Refused { .. }));
        assert_eq!(demand(&mut agent, "c.test"), Demand::UnderWay);
    });
}

#[test]
fn an_order_goes_on_after_a_restart_and_a_name_that_fails_is_forgotten() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent_with(settings(&home));
        for name in ["c.test", "d.test"] {
            allow(&mut agent, name);
            assert!(agent.demanded.is_still_demanded(&mut agent.book, id(name)));
        }
        let wanted = agent.book.wanted(id("c.test"), AuthorityId(0), false).unwrap();
        let entry = OrderEntry {
            answers: Vec::new(),
            begun_s: 0,
            directory: DIRECTORY.into(),
            held_put_s: None,
            key: certificate::new_key(KeyKind::P256).unwrap(),
            names: wanted.names.clone(),
            records: Vec::new(),
            url: None,
        };
        agent.book.ledger.keep_order(wanted.id, &entry, Vec::new()).unwrap();
        drop(agent);

        let mut agent = home.agent_with(settings(&home));
        assert_eq!(agent.orders.resumed(), [id("c.test")]);
        let known: Vec<_> = agent.book.ledger.demands().unwrap();
        let known: Vec<_> = known.iter().map(|entry| &*entry.name).collect();
        assert_eq!(known, ["c.test"], "nothing had come of the other");
        assert_eq!(agent.certificate_count(), 2);
        let actions = std::iter::from_fn(|| agent.book.schedule.next(now()));
        let ticket = actions.filter_map(|action| match action {
            Action::Order { ticket, id: ordered, .. } => {
                (ordered == id("c.test")).then_some(ticket)
            }
            _ => None,
        });
        let ticket = ticket.last();
        let mut failed = Failed::later("its validation failed");
        failed.failure = Failure::Validation { names: Vec::new() };
        agent.note_failed(&wanted, &failed, ticket);
        assert_eq!(agent.certificate_count(), 1);
        assert!(agent.book.ledger.demands().unwrap().is_empty());
        assert!(agent.book.ledger.order(wanted.id).unwrap().is_none());
    });
}

#[test]
fn without_on_demand_nobody_looks_after_such_names_until_it_is_there_again() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent_with(settings(&home));
        allow(&mut agent, "c.test");
        assert!(agent.demanded.is_still_demanded(&mut agent.book, id("c.test")));
        assert_eq!(agent.certificate_count(), 2);
        agent.reload(settings(&home)).unwrap();
        assert_eq!(agent.certificate_count(), 2, "the same again");
        agent.reload(home.settings(DIRECTORY, &["a.test"])).unwrap();
        assert_eq!((agent.certificate_count(), agent.book.schedule.len()), (1, 1));
        assert_eq!(agent.book.ledger.demands().unwrap().len(), 1);
    });
}

#[test]
fn a_client_who_asks_for_many_names_leaves_what_the_rate_allows_to_others() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent_with(settings(&home));
        let wanted =
            |name: String, client: &str| Wanted { from: vec![client.parse().unwrap()], name };
        let flood = |from: usize, count: usize| {
            (from..from + count).map(|number| wanted(format!("f{number}.test"), "192.0.2.1"))
        };
        // A tenth of ten in a minute is kept back.
        agent.demanded.note_asked(
            &mut agent.book,
            Asked { served: Vec::new(), wanted: flood(0, 8).collect() },
        );
        let late = [wanted("late.test".into(), "192.0.2.2")];
        let both = flood(8, 100).chain(late).collect();
        agent.demanded.note_asked(&mut agent.book, Asked { served: Vec::new(), wanted: both });
        let demand = |agent: &mut Agent, name| agent.book.schedule.on_demand(now(), id(name), name);
        assert_eq!(demand(&mut agent, "late.test"), Demand::UnderWay);
        assert_eq!(demand(&mut agent, "f8.test"), Demand::Full);
    });
}

#[test]
fn asks_again_about_a_removed_name() {
    let home = Home::new();
    in_tasks(async {
        let mut agent = home.agent_with(settings(&home));
        allow(&mut agent, "c.test");
        assert!(agent.demanded.is_still_demanded(&mut agent.book, id("c.test")));
        home.import(&["c.test"], -1, 89);
        agent.followed.follow(&mut agent.book, &mut agent.demanded);
        let demand =
            |agent: &mut Agent| agent.book.schedule.on_demand(now(), id("c.test"), "c.test");
        assert_eq!(demand(&mut agent), Demand::Held);
        agent.book.ledger.remove("c.test").unwrap();
        // The next look at the store is due once some time has passed since the last one.
        for _ in 0..500 {
            agent.followed.follow(&mut agent.book, &mut agent.demanded);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(demand(&mut agent), Demand::Begun);
        assert!(agent.book.ledger.demands().unwrap().is_empty());
    });
}
