//! Names that clients ask for, told over the admin socket to whoever obtains certificates.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::harness::PATIENCE;
use crate::harness::certificates::KeyKind;
use crate::harness::sealane::Sealane;
use crate::harness::site::Site;

/// A Sealane that notes names, with more settings of its listener, and one lane.
fn site(more: &str) -> Site {
    let mut site = Site::new();
    let listener = &mut site.settings.listeners[0];
    listener.more = format!("on_demand = true\n{more}");
    site.settings.lanes = 1;
    site
}

fn start(mut site: Site) -> Site {
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site
}

/// The status of the answer to a request, and its body.
fn request(site: &Site, request: &str) -> (u16, String) {
    let mut socket = UnixStream::connect(site.path().join("admin.sock")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap(), text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn told(site: &Site, kind: &str) -> Value {
    let (status, body) = request(site, &format!("POST /names/{kind}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_name_is_told_once_and_no_more_when_there_is_a_certificate_for_it() {
    let site = start(site("unknown_names = \"refuse\""));
    for _ in 0..3 {
        assert!(site.served("new.test").is_err());
    }
    let noted = json!({ "name": "new.test", "asked": 3, "from": ["127.0.0.1"] });
    let wanted = json!({ "names": [noted], "dropped": 0 });
    assert_eq!(told(&site, "wanted"), wanted);
    let nothing = json!({ "names": [], "dropped": 0 });
    assert_eq!(told(&site, "wanted"), nothing);
    site.import(&["new.test"], &[]);
    site.served("new.test").unwrap();
    assert_eq!(told(&site, "wanted"), nothing);
    let served = json!({ "names": [{ "name": "new.test", "asked": 1 }], "dropped": 0 });
    assert_eq!(told(&site, "served"), served);
    assert_eq!(request(&site, "GET /names/wanted").0, 405, "what takes something is POST");
}

/// The default certificate stands in from a file, without a look into the store, where nobody wants
/// to know.
#[test]
fn a_name_is_told_where_the_default_certificate_of_a_file_stands_in() {
    let mut site = site("");
    let file = site.path().join("default.pem");
    std::fs::write(&file, site.authority.leaf(KeyKind::P256, &["*.covered.test"])).unwrap();
    let store = format!("store:{}", site.path().join("store").display());
    let listener = &mut site.settings.listeners[0];
    listener.certificates = None;
    listener.more += &format!("\ncertificates = [{file:?}, {store:?}]");
    let site = start(site);
    site.served("a.covered.test").unwrap();
    let asked = site.connector("other.example").connect(site.address());
    assert!(asked.is_err(), "the client refuses the certificate, which is for others");
    let names = |kind| {
        let told = told(&site, kind);
        let names = told["names"].as_array().unwrap().iter();
        names.map(|noted| noted["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("wanted"), ["other.example"]);
    assert_eq!(names("served"), ["a.covered.test"]);
}

#[test]
fn where_no_listener_has_on_demand_nothing_is_noted() {
    let site = Site::start();
    assert!(site.served("new.test").is_err());
    let (status, body) = request(&site, "POST /names/wanted");
    assert_eq!(status, 404);
    assert!(body.contains("no listener has on_demand = true"), "{body}");
}
