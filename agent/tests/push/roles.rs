//! Who may do what, with which names.

use std::fs;
use std::process::Command;

use rcgen::{DnType, SanType, SerialNumber, date_time_ymd};
use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::harness::wait_for;
use super::site::{BINARY, Site, authority, server};

const ROLES: &str = "
[[push.role]]
client = \"deployer.test\"
names = [\"*.customer.example\", \"example.com\"]
[[push.role]]
client = \"reader\"
names = [\"*\"]
may = [\"get\"]
[[push.role]]
client = \"spiffe://fleet.test/push\"
names = [\"*.other.example\"]
may = [\"put\"]
[[push.role]]
client = \"all\"
names = [\"*\"]
may = [\"put\"]
";

#[test]
fn each_role_does_what_it_may_with_its_names_and_is_told_why_not_more() {
    let site = Site::start(ROLES);
    site.client("deployer.test");
    site.issue("reader", |params| {
        params.distinguished_name.push(DnType::CommonName, "reader");
    });
    site.issue("uri", |params| {
        let uri = "spiffe://fleet.test/push".try_into().unwrap();
        params.subject_alt_names = vec![SanType::URI(uri)];
        // It does not count next to an alternative name.
        params.distinguished_name.push(DnType::CommonName, "reader");
    });
    let put = site.put("deployer.test", server(&["a.customer.example", "example.com"]).as_bytes());
    assert_eq!((put.status, put.field("added")), (200, 1.into()), "{put:?}");
    let said = site.put("deployer.test", server(&["a.other.example"]).as_bytes());
    assert_eq!(said.status, 403);
    for words in [
        "line 1: who sends it may not store a.other.example",
        "\\\"deployer.test\\\" may not put \\\"a.other.example\\\": role \\\"deployer.test\\\" \
         may put, get, delete *.customer.example, example.com; ask for other names, or whoever \
         runs",
    ] {
        assert!(said.body.contains(words), "{words:?} is not in {said:?}");
    }
    assert!(site.held("a.other.example").is_none());
    let said = site.put("uri", server(&["a.other.example"]).as_bytes());
    assert_eq!(said.status, 200, "{said:?}");
    let get = |client, name| site.curl(Some(client), &[], &format!("/certificates?name={name}"));
    let read = get("reader", "a.customer.example");
    assert_eq!(read.status, 200, "{read:?}");
    assert_eq!(read.field("certificates")[0]["names"][1], "example.com");
    assert_eq!(read.field("certificates")[0]["source"], "pushed by \"deployer.test\", line 1");
    let nothing = get("reader", "nobody.example");
    assert_eq!((nothing.status, nothing.field("certificates")), (404, serde_json::json!([])));
    let all = site.curl(Some("reader"), &[], "/certificates");
    assert_eq!(all.field("certificates").as_array().unwrap().len(), 2);
    let its = site.curl(Some("deployer.test"), &[], "/certificates");
    assert_eq!(its.field("certificates").as_array().unwrap().len(), 1, "{its:?}");
    assert_eq!(its.field("generation"), all.field("generation"));
    let said = get("deployer.test", "a.other.example");
    assert_eq!(said.status, 403, "{said:?}");
    assert!(said.body.contains("may not get \"a.other.example\": role"), "{said:?}");
    let said = get("uri", "a.other.example");
    assert_eq!(said.status, 403, "its common name is no name of it: {said:?}");
    assert!(said.body.contains("adds \"get\" to `may` of that role"), "{said:?}");
    // What one role may, the other does not with its names.
    site.issue("both", |params| {
        let dns = SanType::DnsName("deployer.test".try_into().unwrap());
        let uri = SanType::URI("spiffe://fleet.test/push".try_into().unwrap());
        params.subject_alt_names = vec![dns, uri];
    });
    assert_eq!(get("both", "a.other.example").status, 403);
    assert_eq!(get("both", "a.customer.example").status, 200);
    let delete = |client: &str, name: &str| {
        site.curl(Some(client), &["-X", "DELETE"], &format!("/certificates?name={name}"))
    };
    assert_eq!(delete("reader", "example.com").status, 403);
    assert_eq!(delete("deployer.test", "a.other.example").status, 403);
    assert!(site.held("a.other.example").is_some() && site.held("example.com").is_some());
    let said = delete("deployer.test", "example.com");
    assert_eq!((said.status, said.field("removed_names")), (200, 1.into()), "{said:?}");
    assert!(site.held("example.com").is_none() && site.held("a.customer.example").is_some());
    assert_eq!(delete("deployer.test", "example.com").status, 404);
    let said = site.curl(Some("deployer.test"), &["-X", "POST"], "/certificates");
    assert_eq!(said.status, 405, "{said:?}");
    assert_eq!(site.curl(Some("deployer.test"), &[], "/metrics").status, 404);
    site.wait_until_said("push: \"deployer.test\" (127.0.0.1:");
    site.wait_until_said("): stored 1 new, 0 for others, 0 as before");
}

#[test]
fn common_name_next_to_an_email_does_not_count() {
    let site = Site::start(ROLES);
    site.issue("reader", |params| {
        params.distinguished_name.push(DnType::CommonName, "reader");
        params.subject_alt_names = vec![SanType::Rfc822Name("a@b.test".try_into().unwrap())];
    });
    let said = site.curl(Some("reader"), &[], "/certificates");
    assert_eq!(said.status, 403, "{said:?}");
    assert!(said.body.starts_with("a client without a name has no role here"), "{said:?}");
}

#[test]
fn list_reveals_nothing_of_other_roles() {
    let site = Site::start(ROLES);
    site.client("deployer.test");
    site.issue("all", |params| params.distinguished_name.push(DnType::CommonName, "all"));
    for name in ["a.other.example", "b.other.example", "own.customer.example", "c.other.example"] {
        assert_eq!(site.put("all", server(&[name]).as_bytes()).status, 200);
    }
    let list =
        |query: &str| site.curl(Some("deployer.test"), &[], &format!("/certificates{query}"));
    let first = list("?limit=1");
    let certificates = first.field("certificates");
    assert_eq!(certificates.as_array().unwrap().len(), 1, "a page of its own: {first:?}");
    assert_eq!(certificates[0]["names"], serde_json::json!(["own.customer.example"]));
    let next = first.field("next").as_str().unwrap().to_owned();
    for name in ["a.other.example", "b.other.example", "own.customer.example", "c.other.example"] {
        let held = site.held(name).unwrap();
        let digest = sealane_store_requests::hex(&held.digest.0);
        let date = held.not_after_s.to_be_bytes();
        let date = sealane_store_requests::hex(&date);
        assert!(!next.contains(&digest[..16]) && !next.contains(&date), "{next}");
    }
    let rest = list(&format!("?limit=1&after={next}"));
    assert_eq!(rest.field("certificates"), serde_json::json!([]), "{rest:?}");
    assert_eq!(rest.field("next"), serde_json::Value::Null, "{rest:?}");
    let made_up = format!("{}0", &next[..next.len() - 1]);
    let made_up = if made_up == next { format!("{}1", &next[..next.len() - 1]) } else { made_up };
    for after in [made_up.as_str(), "4102444800-00", "zz"] {
        assert_eq!(list(&format!("?after={after}")).status, 400, "{after}");
    }
}

#[test]
fn role_stores_no_more_than_its_quota() {
    let role = "[[push.role]]\nclient = \"few.test\"\nnames = [\"*\"]\ncertificates_max = 2\n";
    let site = Site::start(&[ROLES, role].concat());
    for client in ["few.test", "deployer.test"] {
        site.client(client);
    }
    let put = |name: &str| site.put("few.test", server(&[name]).as_bytes());
    let others = site.put("deployer.test", server(&["a.customer.example"]).as_bytes());
    assert_eq!(others.status, 200, "not of this role: {others:?}");
    let two = [server(&["a.test"]), server(&["b.test"])].concat();
    assert_eq!(site.put("few.test", two.as_bytes()).status, 200);
    let renewed = [server(&["a.test"]), server(&["b.test"])].concat();
    assert_eq!(site.put("few.test", renewed.as_bytes()).status, 200, "renewals are no more");
    let shared = [server(&["a.test", "x.test"]), server(&["a.test", "y.test"])].concat();
    let refused = site.put("few.test", shared.as_bytes());
    assert_eq!(refused.status, 403, "one certificate makes room for one: {refused:?}");
    let refused = put("c.test");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("more than 2, the certificates_max of this role"), "{refused:?}");
    assert!(site.held("c.test").is_none());
    let taken = put("a.customer.example");
    assert_eq!(taken.status, 403, "another role's certificate makes no room: {taken:?}");
    let delete = site.curl(Some("few.test"), &["-X", "DELETE"], "/certificates?name=a.test");
    assert_eq!(delete.status, 200, "{delete:?}");
    assert_eq!(put("c.test").status, 200);
}

#[test]
fn removal_of_an_unknown_name_changes_nothing() {
    let site = Site::start(ROLES);
    site.client("deployer.test");
    let put = site.put("deployer.test", server(&["a.customer.example"]).as_bytes());
    let before = fs::metadata(site.path("store/data.mdb")).unwrap().modified().unwrap();
    let path = "/certificates?name=b.customer.example";
    let said = site.curl(Some("deployer.test"), &["-X", "DELETE"], path);
    assert_eq!((said.status, said.field("generation")), (404, put.field("generation")), "{said:?}");
    let after = fs::metadata(site.path("store/data.mdb")).unwrap().modified().unwrap();
    assert_eq!(after, before, "nothing is written, and nothing erased");
}

#[test]
fn a_certificate_of_others_too_is_shown_without_their_names() {
    let site = Site::start(ROLES);
    site.client("deployer.test");
    for name in ["all", "reader"] {
        site.issue(name, |params| params.distinguished_name.push(DnType::CommonName, name));
    }
    let get = |client, name| site.curl(Some(client), &[], &format!("/certificates?name={name}"));
    // One that others' names are in too is shown to whoever may get one, without those.
    let shared = server(&["b.customer.example", "secret.example"]);
    assert_eq!(site.put("all", shared.as_bytes()).status, 200);
    let said = get("deployer.test", "b.customer.example");
    assert_eq!(said.status, 200, "{said:?}");
    assert_eq!(said.field("certificates")[0]["names"], serde_json::json!(["b.customer.example"]));
    assert!(!said.body.contains("secret"), "{said:?}");
    assert!(get("reader", "b.customer.example").body.contains("secret.example"));
    let its = site.curl(Some("deployer.test"), &[], "/certificates");
    assert!(!its.body.contains("b.customer.example"), "a list has whole ones: {its:?}");
}

#[test]
fn who_shows_no_certificate_or_one_that_does_not_hold_is_told_nothing() {
    let site = Site::start(ROLES);
    let said = site.curl(None, &[], "/certificates");
    assert!(said.status == 0 && said.error.contains("certificate required"), "{said:?}");
    site.wait_until_said("peer sent no certificates; a client shows a certificate of one of");
    let (other, _) = authority("somebody else");
    let deployer = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("deployer.test".try_into().unwrap())];
    };
    site.issue_by(&other, "other", deployer);
    let said = site.curl(Some("other"), &[], "/certificates");
    assert!(said.status == 0 && said.error.contains("unknown ca"), "{said:?}");
    site.issue("expired", |params| {
        deployer(params);
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let said = site.curl(Some("expired"), &[], "/certificates");
    assert!(said.status == 0 && said.error.contains("certificate expired"), "{said:?}");
    let old = site.curl(Some("expired"), &["--tls-max", "1.2"], "/certificates");
    assert!(old.status == 0 && old.error.contains("protocol version"), "{old:?}");
    // A certificate that holds, of somebody who has no role.
    site.client("stranger.test");
    let said = site.put("stranger.test", server(&["example.com"]).as_bytes());
    assert_eq!(said.status, 403, "{said:?}");
    assert!(said.body.starts_with("\"stranger.test\" has no role here; whoever runs"), "{said:?}");
    assert!(site.held("example.com").is_none());
}

#[test]
fn a_reload_takes_other_roles_and_revocations_and_what_is_wrong_changes_nothing() {
    let mut site = Site::start(ROLES);
    site.issue("deployer", |params| {
        params.subject_alt_names = vec![SanType::DnsName("deployer.test".try_into().unwrap())];
        params.serial_number = Some(SerialNumber::from(7));
    });
    site.client("late.test");
    assert_eq!(site.put("late.test", server(&["late.test"]).as_bytes()).status, 403);
    let late = "[[push.role]]\nclient = \"late.test\"\nnames = [\"late.test\"]\n";
    site.configure("", &[ROLES, late].concat());
    site.signal(Signal::HUP);
    wait_for("the role", || {
        (site.put("late.test", server(&["late.test"]).as_bytes()).status == 200).then_some(())
    });
    assert_eq!(site.curl(Some("deployer"), &[], "/certificates").status, 200);
    // Who pushes knows the old address: with another one, nothing of it holds.
    site.configure("", ROLES);
    let (path, other) = (site.path("agent.toml"), ReservedPort::on_loopback().unwrap());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(&site.address().to_string(), &other.address().to_string()))
        .unwrap();
    site.signal(Signal::HUP);
    site.wait_until_said("not reloaded; what runs goes on: [push] and its address take a restart");
    assert_eq!(site.put("late.test", server(&["late.test"]).as_bytes()).status, 200);
    fs::write(site.path("revoked.pem"), "").unwrap();
    let lists = "revocation_lists = [\"revoked.pem\"]";
    site.configure(lists, ROLES);
    site.signal(Signal::HUP);
    site.wait_until_said("revoked.pem: no revocation list (PEM section X509 CRL) in it");
    assert_eq!(site.put("late.test", server(&["late.test"]).as_bytes()).status, 200);
    // A list that has ended refuses all clients of its issuer.
    site.revoke_until(8, 2025);
    site.configure(lists, &[ROLES, late].concat());
    site.signal(Signal::HUP);
    site.wait_until_said("revoked.pem: the list of \"CN=who vouches for clients\" ended on Jan  1");
    let refused = wait_for("the refusal", || {
        let said = site.put("late.test", server(&["late.test"]).as_bytes());
        (said.status == 0).then_some(said)
    });
    assert!(refused.error.contains("certificate unknown"), "the list is at fault: {refused:?}");
    site.wait_until_said("a revocation list is out of date; fetch the next one");
    site.revoke(7);
    site.signal(Signal::HUP);
    wait_for("the revocation", || {
        let said = site.curl(Some("deployer"), &[], "/certificates");
        said.error.contains("certificate revoked").then_some(())
    });
    assert_eq!(site.put("late.test", server(&["late.test"]).as_bytes()).status, 200);
    site.signal(Signal::TERM);
    assert!(site.agent.take().unwrap().end().success());
}

#[test]
fn check_tells_every_mistake_with_its_line() {
    let site = Site::new();
    let check = || {
        let mut command = Command::new(BINARY);
        command.args(["check", "--config"]).arg(site.path("agent.toml"));
        let output = command.output().unwrap();
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    site.configure("", ROLES);
    assert_eq!(check().1, Some(0), "{}", check().0);
    let twice = "[[push.role]]\nclient = \"reader\"\nnames = [\"a b\"]\nmay = [\"push\"]\n";
    site.configure("adress = \"x\"", &[ROLES, twice].concat());
    let path = site.path("agent.toml");
    let text = fs::read_to_string(&path).unwrap().replace("client_roots", "client_root");
    fs::write(&path, text.replace(&site.address().to_string(), "localhost")).unwrap();
    let (said, code) = check();
    assert_eq!(code, Some(3));
    for words in [
        "agent.toml:4:11: push.address: \"localhost\" is no address with a port; write one of",
        "push.adress: is not a known key; did you mean \"address\"?",
        "push.client_root: is not a known key; did you mean \"client_roots\"?",
        "push.client_roots: is missing",
        "push.role[4].names[0]: \"a b\" is not a host name",
        "push.role[4].may[0]: \"push\" is not a choice; choose \"put\"",
        "reader has a role at ",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    site.configure("", ROLES);
    fs::remove_file(site.path("listener.key")).unwrap();
    assert!(check().0.contains("listener.key"), "{}", check().0);
    site.configure("", "");
    assert!(check().0.contains("role: is missing from [push]; add [[push.role]] with"));
}
