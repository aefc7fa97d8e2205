//! The page of the demo's backend: what the terminator told it about the connection.

use std::fmt::Write as _;
use std::net::SocketAddr;

use sealane_traffic::http::{ContentType, Request, Response, Status};
use sealane_traffic::proxy_header::Facts;

/// Answers with the page, as HTML where that is asked for by name.
pub(super) fn respond(request: &Request<'_>, lanes: usize) -> Response {
    if request.path != "/" {
        return Response::text(Status::NotFound, "not found; the page is /");
    }
    let header = request.proxy_header.unwrap_or_default();
    if request.accept.is_some_and(|accept| accept.contains("text/html")) {
        Response::new(Status::Ok, ContentType::Html, html(&header, lanes))
    } else {
        Response::new(Status::Ok, ContentType::Text, text(&header, lanes))
    }
}

/// What is shown, in this order.
fn facts(header: &Facts<'_>) -> [(&'static str, String); 8] {
    let tls = header.tls.unwrap_or_default();
    let or_none = |fact: Option<&str>| fact.unwrap_or("none").to_owned();
    [
        ("lane", header.lane.map_or_else(|| or_none(None), |lane| lane.to_string())),
        ("TLS version", or_none(tls.version)),
        ("suite", or_none(tls.suite)),
        // A resumed session of TLS 1.2 exchanges no key.
        ("group", or_none(tls.group)),
        ("server name", or_none(header.server_name)),
        ("protocol", header.alpn.map_or_else(|| or_none(None), |p| p.escape_ascii().to_string())),
        ("resumed", if header.resumed == Some(true) { "yes" } else { "no" }.to_owned()),
        ("client", client(header.addresses)),
    ]
}

fn client(addresses: Option<(SocketAddr, SocketAddr)>) -> String {
    addresses.map_or_else(|| "none".to_owned(), |(client, _)| client.to_string())
}

fn text(header: &Facts<'_>, lanes: usize) -> String {
    let mut page = "Sealane ended the TLS of this connection.\n\n".to_owned();
    for (name, fact) in facts(header) {
        let _ = writeln!(page, "  {name:<12}  {fact}");
    }
    let number = if lanes == 1 { "is 1 lane" } else { &format!("are {lanes} lanes") };
    let _ = writeln!(page, "\nThere {number}; a connection stays on its own for life.");
    page
}

fn html(header: &Facts<'_>, lanes: usize) -> String {
    let mut rows = String::new();
    for (name, fact) in facts(header) {
        let fact = escaped(&fact);
        let _ = writeln!(rows, "<div><dt>{name}</dt><dd>{fact}</dd></div>");
    }
    let mut drawn = String::new();
    for lane in 0..lanes.min(LANES_DRAWN_MAX) {
        let here = header.lane.is_some_and(|own| usize::from(own) == lane);
        let class = if here { "lane here" } else { "lane" };
        let _ = write!(drawn, "<li class=\"{class}\">{lane}</li>");
    }
    let lane = header.lane.map_or_else(|| "a lane".to_owned(), |lane| format!("lane {lane}"));
    let how = match header.resumed {
        Some(true) => "It resumed an earlier session: no certificate, no signature.",
        _ => "It took a full handshake. Reload to see its session resumed.",
    };
    TEMPLATE
        .replace("{lane}", &lane)
        .replace("{how}", how)
        .replace("{lanes}", &drawn)
        .replace("{rows}", &rows)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const TEMPLATE: &str = include_str!("page.html");
/// Beyond it a row of lanes is no drawing any more.
const LANES_DRAWN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_traffic::proxy_header::Tls;

    fn page(accept: Option<&str>, server_name: &str) -> String {
        let tls = Tls { suite: Some("A_SUITE"), version: Some("TLSv1.2"), ..Tls::default() };
        let header = Facts {
            addresses: Some(("[::1]:7".parse().unwrap(), "[::1]:8".parse().unwrap())),
            alpn: Some(b"http/1.1"),
            lane: Some(1),
            resumed: Some(true),
            server_name: Some(server_name),
            tls: Some(tls),
            ..Facts::default()
        };
        let request =
            Request { path: "/", accept, proxy_header: Some(header), ..Request::default() };
        let response = respond(&request, 3);
        assert_eq!(response.status, Status::Ok);
        String::from_utf8(response.body).unwrap()
    }

    #[test]
    fn text_shows_every_fact() {
        for accept in [None, Some("*/*")] {
            let page = page(accept, "localhost");
            for line in [
                "  lane          1\n",
                "  TLS version   TLSv1.2\n",
                "  suite         A_SUITE\n",
                "  group         none\n",
                "  server name   localhost\n",
                "  protocol      http/1.1\n",
                "  resumed       yes\n",
                "  client        [::1]:7\n",
                "\nThere are 3 lanes; ",
            ] {
                assert!(page.contains(line), "{line} in\n{page}");
            }
        }
    }

    #[test]
    fn browsers_get_html_that_is_escaped_and_complete() {
        let page = page(Some("text/html,application/xhtml+xml,*/*;q=0.8"), "<b>&\"");
        assert!(page.starts_with("<!doctype html>"), "{page}");
        assert!(page.contains("<dt>server name</dt><dd>&lt;b&gt;&amp;&quot;</dd>"), "{page}");
        let lanes = "<li class=\"lane\">0</li><li class=\"lane here\">1</li><li class=\"lane\">2";
        assert!(page.contains(lanes), "{page}");
        for left in ["{lane}", "{how}", "{lanes}", "{rows}", "src=\"http", "href=\"http"] {
            assert!(!page.contains(left), "{left} in\n{page}");
        }
    }

    #[test]
    fn there_is_one_page() {
        let request = Request { path: "/favicon.ico", ..Request::default() };
        assert_eq!(respond(&request, 1).status, Status::NotFound);
    }
}
