//! What came out, as text: the figures as Markdown tables, what they rest on, and what they do not
//! show.

use std::{collections::BTreeMap, fmt::Write};

use sealane_lab_model::{
    document::{Comparison, Run, Server, ServerResult, Servers},
    figures::{
        HINT,
        servers::{Subject, percentile_ns, rate_words, total},
    },
    statistics::{ROUNDS_MIN, Spread},
};

use crate::servers::{
    case::{Case, Column, Level},
    levels,
    programs::Program,
    results::{BEST_PEER, FLOOR, columns, measure},
    round::{Failed, Row, Settings},
    summary,
};

/// The whole text.
pub(crate) fn text(settings: &Settings, rows: &[Row], run: &Run) -> String {
    let mut text = heading(settings, run);
    for row in rows {
        let name = &row.entry.name;
        let _ = match &row.failure {
            Some(Failed { why, absent: true }) => writeln!(text, "{name}: skipped: {why}"),
            Some(Failed { why, .. }) => writeln!(text, "{name}: NO FIGURES: {why}"),
            None => {
                writeln!(text, "{name}: {}", who(&row.version, &row.tls_library, &row.settings))
            }
        };
    }
    let Some(servers) = &run.servers else { return text };
    let _ = writeln!(text, "\nMedian [least-most] of the rounds; less is better. {}", signs());
    let columns = columns(settings);
    let mut pairs: Vec<(&str, &str)> = vec![(SEALANE, BEST_PEER)];
    let named = |program: &Program| matches!(program, Program::Haproxy(_) | Program::Command(_));
    let peers = rows.iter().filter(|row| named(&row.entry.program));
    pairs.extend(peers.map(|row| (SEALANE, row.entry.name.as_str())));
    pairs.extend(servers.plain.iter().map(|proxy| (SEALANE, proxy.name.as_str())));
    pairs.extend(servers.servers.iter().map(|server| (server.name.as_str(), FLOOR)));
    for its in tables(&columns) {
        figures(&mut text, run, servers, &its, &pairs);
    }
    rates(&mut text, servers, &columns);
    notes(&mut text, servers, &columns);
    text
}

/// What of a document stands in `SERVERS.md`: what was measured, the summary that
/// docs/performance.md has too, and the tables of costs.
pub(crate) fn digest(run: &Run, servers: &Servers) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "# TLS servers side by side\n\nMachine: {}, {} processors, Linux {}, {}; {}. Load average \
         {:.1} before, the hypervisor took {:.2}%. Median [least-most] of the rounds that count, \
         at most {}; less is better. {} Full load is a closed loop, half load an open one at \
         half of the rate that the same server did in the closed loop just before.\n\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        run.started.split('T').next().unwrap_or_default(),
        servers.placement,
        run.noise.load_average[0],
        run.noise.steal_percent,
        rounds(servers),
        signs()
    );
    let mut pairs: Vec<(&str, &str)> = vec![(SEALANE, BEST_PEER)];
    pairs.extend(servers.plain.iter().map(|proxy| (SEALANE, proxy.name.as_str())));
    let columns = columns_of(servers);
    let (storms, costs) = columns
        .into_iter()
        .filter(|column| column.subject != Subject::Latency && column.case != Case::Names)
        .partition::<Vec<Column>, _>(|column| column.subject == Subject::Storm);
    if !costs.is_empty() {
        text.push_str(&summary::tables(run, servers, &costs));
    }
    for its in tables(&costs).into_iter().chain(tables(&storms)) {
        figures(&mut text, run, servers, &its, &pairs);
    }
    if !servers.discarded.is_empty() {
        let times = servers.discarded.len();
        let _ = writeln!(
            text,
            "\nDiscarded for all servers, because the hypervisor took too much: {times} times a \
             round of a column."
        );
    }
    text.push('\n');
    for server in servers.servers.iter().chain(&servers.plain) {
        if server.failure.is_none() {
            let Server { name, version, tls_library, settings, .. } = server;
            let _ = writeln!(text, "- {name}: {}", who(version, tls_library, settings));
        }
    }
    text
}

/// The columns that a document has.
fn columns_of(servers: &Servers) -> Vec<Column> {
    let loads = servers.cases.iter().filter_map(|case| case.load.as_deref());
    let levels = levels(&loads.filter_map(Level::of_label).collect::<Vec<_>>(), &[]);
    let mut columns: Vec<Column> =
        Case::ALL.iter().flat_map(|case| case.columns(&levels)).collect();
    columns.retain(|column| servers.cases.iter().any(|case| case.name == column.name));
    columns
}

/// What a server is: its version, its TLS and its settings.
fn who(version: &str, tls_library: &str, settings: &[String]) -> String {
    let settings = settings.iter().map(|setting| format!("; {setting}"));
    format!("{version}; {tls_library}{}", settings.collect::<String>())
}

/// The most of any figure.
fn rounds(servers: &Servers) -> usize {
    let results = servers.servers.iter().flat_map(|server| server.cases.values());
    results.map(|result| result.figure.len()).max().unwrap_or(0)
}

/// Which columns share a table: those of some cases, of one load, about one subject. What has no
/// load stands beside the full one.
fn tables(columns: &[Column]) -> Vec<Vec<&Column>> {
    let kind = |column: &Column| (column.subject, column.level.unwrap_or(Level::Full));
    let mut tables: Vec<Vec<&Column>> = Vec::new();
    for subject in [Subject::Cost, Subject::Latency, Subject::Storm] {
        for cases in TABLES {
            let its = columns.iter().filter(|column| cases.contains(&column.case));
            for column in its.filter(|column| column.subject == subject) {
                let same = |table: &&mut Vec<&Column>| {
                    kind(table[0]) == kind(column) && cases.contains(&table[0].case)
                };
                match tables.iter_mut().find(same) {
                    Some(table) => table.push(column),
                    None => tables.push(vec![column]),
                }
            }
        }
    }
    tables
}

fn heading(settings: &Settings, run: &Run) -> String {
    let (machine, noise, amount) = (&run.machine, &run.noise, &settings.amount);
    format!(
        "Machine: {}, {} processors, Linux {}; load average {} before, {} after; steal {:.2}%\n\
         Servers: {} workers each; {}\n\
         Rounds: {}, interleaved; each per server: {} handshakes, {} at once; {} and {} requests \
         on {} connections; {} x {} bytes each way on {}; {} idle connections; {} names; open \
         loops of {} s\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        noise.load_average[0],
        noise.load_average[1],
        noise.steal_percent,
        settings.workers,
        settings.placement.text(),
        settings.rounds,
        amount.handshakes,
        amount.handshakes_at_once,
        amount.requests_3k,
        amount.requests_100k,
        amount.keep_alive_connections,
        amount.transfers,
        amount.transfer_bytes,
        amount.transfer_connections,
        amount.idle_connections,
        amount.names,
        amount.open_seconds
    )
}

/// One table: servers, proxies without TLS, the floor, and the ratios.
fn figures(
    text: &mut String,
    run: &Run,
    servers: &Servers,
    columns: &[&Column],
    pairs: &[(&str, &str)],
) {
    let _ = write!(text, "\n| server |");
    for column in columns {
        let _ = write!(text, " {} |", measure(column));
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns.len()));
    let all = servers.servers.iter().chain(&servers.plain);
    for server in all.filter(|server| server.failure.is_none()) {
        let result = |column: &Column| server.cases.get(&column.name);
        if columns.iter().any(|column| result(column).is_some()) {
            line(text, &server.name, columns, |column| {
                result(column).map_or_else(String::new, |result| figure(result, column))
            });
        }
    }
    let floor = |column: &Column| servers.floor.get(&column.name);
    if columns.iter().any(|column| floor(column).is_some()) {
        let part = |text: &mut String, name: &str, values: &dyn Fn(&str) -> Vec<f64>| {
            line(text, name, columns, |column| spread(&values(&column.name), column.decimals));
        };
        let of = |name: &str| servers.floor.get(name);
        part(text, "floor", &|name| of(name).map(total).unwrap_or_default());
        part(text, "- primitives, AWS-LC", &|name| {
            of(name).map(|floor| floor.primitives.clone()).unwrap_or_default()
        });
        part(text, "- proxy without TLS", &|name| {
            of(name).map(|floor| floor.tcp.clone()).unwrap_or_default()
        });
    }
    for &(of, to) in pairs {
        let ratio = |column: &Column| ratio(run, column, of, to);
        if columns.iter().any(|column| ratio(column).is_some()) {
            let name = format!("{of} / {to}");
            line(text, &name, columns, |column| ratio(column).unwrap_or_default());
        }
    }
}

/// What a server's figure is, or why there is none.
pub(super) fn figure(result: &ServerResult, column: &Column) -> String {
    match result {
        ServerResult { not_offered: Some(_), .. } => "n/o".into(),
        ServerResult { refused: Some(_), .. } => "refused".into(),
        _ => marked(spread(&result.figure, column.decimals), result, column),
    }
}

/// What is told of a result, with what it is worth.
pub(super) fn marked(told: String, result: &ServerResult, column: &Column) -> String {
    match column.subject.mark(result) {
        "" => told,
        mark => format!("{told} {mark}"),
    }
}

/// The comparison of two servers' figures in a column.
pub(super) fn comparison<'a>(
    run: &'a Run,
    column: &Column,
    of: &str,
    to: &str,
) -> Option<&'a Comparison> {
    let measure = measure(column);
    let is_it = |it: &&Comparison| it.measure == measure && it.of == of && it.to == to;
    run.comparisons.iter().find(is_it)
}

/// How the figures of `of` and `to` compare: the ratio with its interval; a hint, if it is marked.
pub(super) fn ratio(run: &Run, column: &Column, of: &str, to: &str) -> Option<String> {
    let found = comparison(run, column, of, to)?;
    let [low, high] = found.interval;
    let mark = if found.is_enough() { "" } else { HINT };
    Some(format!("{mark}{:.2} [{low:.2}-{high:.2}]", found.ratio))
}

/// Rate and latency, with what they are worth.
fn rates(text: &mut String, servers: &Servers, columns: &[Column]) {
    let mut lines = String::new();
    for column in columns {
        for server in servers.servers.iter().chain(&servers.plain) {
            let Some(result) = server.cases.get(&column.name) else { continue };
            let (Some(rate), Some(latency)) = (Spread::of(&result.rate), &result.latency) else {
                continue;
            };
            let ms = |histogram, percentile| {
                percentile_ns(histogram, percentile).map_or(0.0, |ns| ns / 1e6)
            };
            let times = |histogram| {
                format!(
                    "{:.2} / {:.2} / {:.2}",
                    ms(histogram, 50.0),
                    ms(histogram, 99.0),
                    ms(histogram, 100.0)
                )
            };
            let service = result.service.as_ref().map_or(String::new(), times);
            let percent = |shares| Spread::of(shares).map_or(0.0, |busy| busy.median * 1e2);
            let (busy, server_busy) = (percent(&result.client_busy), percent(&result.server_busy));
            let _ = writeln!(
                lines,
                "| {} | {} | {:.0} | {} | {service} | {server_busy:.0}% | {busy:.0}% | {} | {} |",
                column.title,
                server.name,
                rate.median,
                times(latency),
                workers(result),
                rate_words(result)
            );
        }
    }
    if !lines.is_empty() {
        text.push_str(
            "\nRate and latency. Where the last column names a bottleneck other than the server, \
             they are no verdict on it; CPU per operation is, all the same. In an open loop \
             latency counts from the intended time, and the time in service stands beside it.\n\n\
             | case | server | per second | p50 / p99 / max, ms | in service, ms | server busy | \
             client busy | workers' shares | verdict |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        text.push_str(&lines);
    }
}

/// Percent of the server's CPU by worker, most first.
fn workers(result: &ServerResult) -> String {
    let sum: u64 = result.worker_cpu_ns.iter().sum();
    let share = |ns: &u64| format!("{:.0}", *ns as f64 * 1e2 / sum.max(1) as f64);
    let shares: Vec<String> =
        result.worker_cpu_ns.iter().take(WORKERS_SHOWN).map(share).filter(|s| s != "0").collect();
    shares.join(" ")
}

fn notes(text: &mut String, servers: &Servers, columns: &[Column]) {
    let mut lines = String::new();
    for column in columns {
        for server in &servers.servers {
            let Some(result) = server.cases.get(&column.name) else { continue };
            // Of an open loop, its rate, which stands in the table above.
            let note = result.note.iter().filter(|_| column.level.is_none());
            for why in result.not_offered.iter().chain(&result.refused).chain(note) {
                let _ = writeln!(lines, "- {}, {}: {why}", server.name, column.name);
            }
        }
    }
    let mut proxies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (column, floor) in &servers.floor {
        proxies.entry(&floor.proxy).or_default().push(column);
    }
    for (proxy, columns) in proxies {
        let _ =
            writeln!(lines, "- the cheapest proxy without TLS, {}: {proxy}", columns.join(", "));
    }
    for discarded in &servers.discarded {
        let _ = writeln!(lines, "- discarded: {discarded}");
    }
    if !lines.is_empty() {
        let _ = write!(text, "\nNotes:\n{lines}");
    }
}

/// One line of a table.
fn line(text: &mut String, name: &str, columns: &[&Column], cell: impl Fn(&Column) -> String) {
    let _ = write!(text, "| {name} |");
    for column in columns {
        let _ = write!(text, " {} |", cell(column));
    }
    text.push('\n');
}

/// A median with its least and most.
fn spread(values: &[f64], decimals: usize) -> String {
    Spread::of(values).map_or(String::new(), |Spread { min, max, .. }| {
        format!("{} [{min:.decimals$}-{max:.decimals$}]", median(values, decimals))
    })
}

/// The median of a figure, marked as a hint if too few rounds count.
pub(super) fn median(values: &[f64], decimals: usize) -> String {
    let mark = if values.len() < ROUNDS_MIN { HINT } else { "" };
    Spread::of(values).map_or(String::new(), |it| format!("{mark}{:.decimals$}", it.median))
}

/// What the tables' marks and brackets say.
fn signs() -> String {
    format!(
        "n/o: not offered; refused: the load was not reached; *: no verdict on the server; {HINT}: \
         a hint, of fewer than {ROUNDS_MIN} rounds that count. The best peer of a ratio is the \
         cheapest of each round; its brackets are the 95% interval, and those of a hint the least \
         and the most."
    )
}

/// Our own row.
pub(super) const SEALANE: &str = "sealane";
/// Which cases share a table.
const TABLES: [&[Case]; 5] = [
    &[Case::Full, Case::FullRsa, Case::FullMlkem, Case::FullTls12, Case::Resumed],
    &[Case::KeepAlive3k, Case::KeepAlive100k, Case::Down, Case::Up, Case::Idle],
    &[Case::Names],
    &[Case::Storm],
    &[Case::StormEcdsa],
];
const WORKERS_SHOWN: usize = 8;
