//! Requests to the admin address: no panic, an end to every head, and no page for a foreign name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_traffic::http::{Answer, HEAD_BYTES_MAX, Hosts, Opening, Response, Status, answer};

fuzz_target!(|bytes: &[u8]| {
    let hosts = Hosts::with(&["metrics.example.com".into()]);
    let asked = |received: &[u8], opening: &Opening| {
        let page = |path: &str| Answer::Now(Response::text(Status::Ok, path));
        match answer(received, opening, false, &|request| page(request.path))?.answer {
            Answer::Now(response) => Some(response.status),
            Answer::Later(_) | Answer::WithBody(_) => unreachable!("the page is there at once"),
        }
    };
    let requests = [Opening::Request(None), Opening::Request(Some(hosts))];
    for opening in [Opening::ProxyHeader, Opening::Order].into_iter().chain(requests) {
        let whole = asked(bytes, &opening);
        assert!(whole.is_some() || bytes.len() < 2 * HEAD_BYTES_MAX, "it waits without an end");
        if let (Some(Status::Ok), Opening::Request(Some(_))) = (&whole, &opening) {
            // A second way to look: the one Host, or none in HTTP/1.0.
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            let named = ["localhost", "metrics.example.com"].iter().any(|n| text.contains(n));
            let numeric = text.contains("host:") && text.chars().any(|c| c.is_ascii_digit());
            assert!(named || numeric || text.contains("http/1.0"), "{text}");
        }
        // Bytes that come one by one are refused no earlier than the whole, or for good.
        let half = asked(&bytes[..bytes.len() / 2], &opening);
        assert!(half.is_none() || whole.is_some());
    }
});
