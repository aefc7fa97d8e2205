//! What stands behind the servers' figures: rate, latency, how evenly work was dealt, and all that
//! the run had to say.

use std::collections::BTreeMap;

use sealane_lab_model::{
    document::{Histogram, Server, ServerCase, ServerResult, Servers},
    figures::servers::{percentile_ns, rate_words},
    number::number,
    statistics::Spread,
};

use crate::plot::escape;

use super::{
    frame::{Cell, table},
    terminators::sentence_case,
    threads::{real, whole},
};

/// Rate, latency and workers, one row per case and server; empty if no case has them.
pub(crate) fn rates_table(servers: &Servers) -> String {
    let mut rows = Vec::new();
    for case in &servers.cases {
        for server in servers.servers.iter().chain(&servers.plain) {
            let Some(result) = server.cases.get(&case.name) else { continue };
            let rate = Spread::of(&result.rate);
            let times = result.latency.as_ref();
            let skew = skew(&result.worker_cpu_ns);
            if rate.is_none() && times.is_none() && skew.is_none() {
                continue;
            }
            let percent = |shares: &[f64]| {
                let busy = Spread::of(shares);
                busy.map_or_else(String::new, |b| format!("{}%", number(100.0 * b.median)))
            };
            rows.push(vec![
                Cell::Text(sentence_case(&case.title)),
                Cell::Text(server.name.clone()),
                Cell::Number(rate.map_or_else(String::new, |rate| number(rate.median))),
                Cell::Number(times.map_or_else(String::new, milliseconds)),
                Cell::Number(result.service.as_ref().map_or_else(String::new, milliseconds)),
                Cell::Number(skew.unwrap_or_default()),
                Cell::Number(percent(&result.server_busy)),
                Cell::Number(percent(&result.client_busy)),
                Cell::Text(rate_words(result)),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = [
        "case",
        "server",
        "#per second",
        "#latency, ms: 50% / 99% / most",
        "#in service, ms: 50% / 99% / most",
        "#workers: most CPU / mean",
        "#server busy",
        "#client busy",
        "the rate",
    ];
    table(RATES_CAPTION, &heads, &rows)
}

/// What servers do not offer, what the last round had to tell, and what the figures rest on.
pub(crate) fn remarks(servers: &Servers) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut item = |what: &str, text: &str| {
        items.push(format!("<li><b>{}</b>: {}</li>", escape(what), escape(text)));
    };
    if !servers.placement.is_empty() {
        item("Where they ran", &servers.placement);
    }
    let mut proxies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, floor) in servers.floor.iter().filter(|(_, floor)| !floor.proxy.is_empty()) {
        proxies.entry(&floor.proxy).or_default().push(title(servers, case));
    }
    for (proxy, cases) in proxies {
        let cases = cases.join("; ");
        item("The floor's proxy", &format!("{proxy} was the cheapest without TLS for: {cases}"));
    }
    for discarded in &servers.discarded {
        item("Discarded", &format!("{discarded}; for every server of that round"));
    }
    for (server, case, text) in told(servers, |result| result.not_offered.as_deref()) {
        item(&format!("{}, {}, not offered", server.name, case.title), text);
    }
    for (server, case, text) in told(servers, |result| result.refused.as_deref()) {
        item(&format!("{}, {}, refused", server.name, case.title), text);
    }
    for server in servers.servers.iter().chain(&servers.plain) {
        if !server.settings.is_empty() {
            item(&format!("{} is set to", server.name), &server.settings.join("; "));
        }
    }
    for (server, case, text) in told(servers, |result| result.note.as_deref()) {
        item(&format!("{}, {}", server.name, case.title), text);
    }
    if items.is_empty() {
        return String::new();
    }
    format!("<ul class=\"remarks\">{}</ul>", items.concat())
}

/// What results have to tell, in the order of the table.
fn told<'a>(
    servers: &'a Servers,
    text: fn(&'a ServerResult) -> Option<&'a str>,
) -> Vec<(&'a Server, &'a ServerCase, &'a str)> {
    let mut told = Vec::new();
    for case in &servers.cases {
        for server in &servers.servers {
            let text = server.cases.get(&case.name).and_then(text);
            told.extend(text.map(|text| (server, case, text)));
        }
    }
    told
}

fn title<'a>(servers: &'a Servers, case: &'a str) -> &'a str {
    servers.cases.iter().find(|known| known.name == case).map_or(case, |known| &known.title)
}

fn milliseconds(histogram: &Histogram) -> String {
    let at = |percentile: f64| {
        percentile_ns(histogram, percentile).map_or_else(|| "?".into(), |ns| number(ns / 1e6))
    };
    format!("{} / {} / {}", at(50.0), at(99.0), at(100.0))
}

/// The busiest worker's CPU as a multiple of the mean: 1 is even. One alone has no skew.
fn skew(worker_cpu_ns: &[u64]) -> Option<String> {
    let sum = whole(worker_cpu_ns.iter().sum());
    // Threads that only start or supervise the others are no workers.
    let least = sum * WORKER_SHARE_MIN;
    let workers: Vec<f64> = worker_cpu_ns.iter().map(|ns| whole(*ns)).collect();
    let workers: Vec<f64> = workers.into_iter().filter(|ns| *ns > least).collect();
    let most = workers.iter().copied().fold(0.0, f64::max);
    let mean = workers.iter().sum::<f64>() / real(workers.len().max(1));
    let count = workers.len();
    (count > 1).then(|| format!("{} of {count}", number(most / mean)))
}

const WORKER_SHARE_MIN: f64 = 0.01;
const RATES_CAPTION: &str = "Rate, latency and workers: an open loop's latency counts from when \
    each operation was due, and the time in service stands beside it; else latency is from the \
    start. Workers: the busiest one's CPU in the last round as a multiple of the mean, 1 is even. \
    Where the client was the limit, the CPU per operation above counts all the same; where the \
    hypervisor took time, it is a hint.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_is_of_those_that_work() {
        assert_eq!(skew(&[300, 100]).as_deref(), Some("1.5 of 2"));
        assert_eq!(skew(&[100_000, 100_000, 90]).as_deref(), Some("1 of 2"));
        assert_eq!(skew(&[100]), None);
        assert_eq!(skew(&[0, 0]), None);
    }

    #[test]
    fn latency_is_read_at_the_first_point_that_reaches_the_percentile() {
        let percentiles = vec![[0.0, 1e5], [50.0, 1e6], [99.2, 2.5e6], [100.0, 1e7]];
        let histogram = Histogram { percentiles, ..Histogram::default() };
        assert_eq!(milliseconds(&histogram), "1 / 2.5 / 10");
    }
}
