//! Real terminators: their own CPU per operation beside the floor, and latency.

use sealane_lab_model::{
    document::{Histogram, Server, ServerCase, ServerResult, Servers},
    figures::servers::{NO_VERDICT, Subject, percentile_ns, times_the_floor, total},
    number::number,
    statistics::Spread,
    words,
};

use crate::plot::{
    Bar, BarPlot, Floor, LinePlot, Point, Reading, Row, Scale, Segment, Series, Switch, Ticks,
    escape,
};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    service,
    sources::Sources,
    spectrum::{spectrum, tail},
    threads::spread,
};

/// The section, if servers were measured.
pub(crate) fn section(sources: &Sources) -> Option<Section> {
    let mut body = String::new();
    let several = sources.servers().count() > 1;
    for (run, servers) in sources.servers() {
        if several {
            let file = escape(&sources.runs[run].file);
            body += &format!("<h3 class=\"group\">Run {}: {file}</h3>", run + 1);
        }
        body += "<div class=\"grid\">";
        // A storm's figures are many, and in some of them more is better: they have the table.
        for case in servers.cases.iter().filter(|case| Subject::of(case) != Subject::Storm) {
            let plot = case_plot(sources, servers, case);
            if !plot.rows.is_empty() {
                let title = sentence_case(&case.title);
                let look = case_look(servers, case);
                let tag = Tag::Measured;
                let drawing = &plot.draw();
                body += &Figure { title: &title, tag, look: &look, drawing }.html();
            }
        }
        body += &latency_figures(sources, servers);
        body += "</div>";
        body += &overview(servers);
        body += &service::rates_table(servers);
        body += &failures(servers);
        body += &service::remarks(servers);
    }
    let lead = "Each terminator runs as its own process, all in the same interleaved rounds; the \
        figure is the server's own processor time, whatever the client costs.";
    let section = Section {
        id: "servers",
        short: "Servers",
        title: "Servers over sockets",
        lead: lead.into(),
        body,
    };
    (!section.body.is_empty()).then_some(section)
}

/// One case's bars against its floor.
pub(crate) fn case_plot(sources: &Sources, servers: &Servers, case: &ServerCase) -> BarPlot {
    let floor = floor(servers, case).map(|(value, _)| value);
    let rows = servers.servers.iter().filter_map(|server| {
        let result = server.cases.get(&case.name)?;
        let Spread { median, min, max } = Spread::of(&result.figure)?;
        let ratio = times_the_floor(servers, case, &result.figure);
        let ratio = ratio.map(|ratio| format!("({}\u{d7}) ", number(ratio.median)));
        let remark = ratio.unwrap_or_default() + Subject::of(case).mark(result);
        let remark = remark.trim_end().to_owned();
        let bar = Bar { value: median, range: Some([min, max]) };
        let color = Some(sources.server_color(server));
        Some(Row { label: server.name.clone(), remark, color, bars: vec![Some(bar)], sum: None })
    });
    let unit = words::unit(&case.unit);
    BarPlot {
        name: format!("{}: {unit}", case.title),
        segments: vec![Segment { label: String::new(), color: 0 }],
        rows: rows.collect(),
        floor: floor.map(|value| Floor { label: "floor".into(), value }),
        unit,
        stacked: false,
    }
}

/// The floor of a case, and its two parts in words.
pub(crate) fn floor(servers: &Servers, case: &ServerCase) -> Option<(f64, String)> {
    let floor = servers.floor.get(&case.name)?;
    let part = |values: &[f64]| Spread::of(values).map(|spread| spread.median);
    let words = |value: Option<f64>, what: &str| value.map(|v| format!("{what} {}", number(v)));
    let named = match floor.proxy.as_str() {
        "" => "TCP of a proxy without TLS".to_owned(),
        name => format!("TCP of {name}, a proxy without TLS,"),
    };
    let parts = [(part(&floor.primitives), "primitives"), (part(&floor.tcp), named.as_str())];
    let said: Vec<String> = parts.iter().filter_map(|(v, what)| words(*v, what)).collect();
    Some((part(&total(floor))?, said.join(" + ")))
}

fn case_look(servers: &Servers, case: &ServerCase) -> String {
    let mut look = format!(
        "{}; shorter is better. Bar: median of the rounds; thin line: least to most.",
        sentence_case(&words::unit(&case.unit))
    );
    if let Some((value, parts)) = floor(servers, case) {
        look += &format!(
            " The line is the floor, {}: {parts}; in brackets, how many times the floor.",
            number(value)
        );
    }
    if let Some(load) = &case.load {
        look += match load.as_str() {
            "full" => FULL_LOAD,
            _ => OPEN_LOAD,
        };
    }
    let results = || servers.servers.iter().filter_map(|server| server.cases.get(&case.name));
    if results().any(|result| !Subject::of(case).mark(result).is_empty()) {
        look += &format!(" {NO_VERDICT} no verdict on the server: the table below says why.");
    }
    for server in &servers.servers {
        let Some(result) = server.cases.get(&case.name) else { continue };
        if result.not_offered.is_some() {
            look += &format!(" {} does not offer it: see below.", server.name);
        }
        if result.refused.is_some() {
            look += &format!(" {} did not get this load: see below.", server.name);
        }
    }
    look
}

fn latency_figures(sources: &Sources, servers: &Servers) -> String {
    let mut html = String::new();
    // In a closed loop whoever is slow is also asked less: that latency stands in the table alone.
    let open = |case: &&ServerCase| {
        let mut results = servers.servers.iter().filter_map(|s| s.cases.get(&case.name));
        results.any(|result| result.service.is_some())
    };
    for case in servers.cases.iter().filter(open) {
        let series = latency_series(sources, servers, case, |result| result.latency.as_ref());
        let title = format!("Latency: {}", case.title);
        html += &latency_figure(&title, "\u{b5}s from the intended time on", LATENCY, series);
        let series = latency_series(sources, servers, case, |result| result.service.as_ref());
        let title = format!("Time in service: {}", case.title);
        html += &latency_figure(&title, "\u{b5}s from the actual start", SERVICE, series);
    }
    let mut works: Vec<&str> = servers.cases.iter().filter(open).map(work).collect();
    works.dedup();
    for its in works {
        let plot = load_plot(sources, servers, its);
        if plot.series.iter().any(|line| line.points.len() > 1) {
            let title = match its {
                "" => "Latency by load".to_owned(),
                its => format!("Latency by load: {its}"),
            };
            let drawing = &plot.draw();
            html += &Figure { title: &title, tag: Tag::Measured, look: LOAD, drawing }.html();
        }
    }
    html
}

/// What a case does, whatever its load; nothing in documents of before, whose open loops were all
/// of one work.
fn work(case: &ServerCase) -> &str {
    let load = case.load.as_deref();
    load.map_or("", |load| {
        let cut = case.name.strip_suffix(load).and_then(|name| name.strip_suffix('-'));
        cut.unwrap_or(&case.name)
    })
}

fn latency_series(
    sources: &Sources,
    servers: &Servers,
    case: &ServerCase,
    of: fn(&ServerResult) -> Option<&Histogram>,
) -> Vec<Series> {
    let series = servers.servers.iter().filter_map(|server| {
        let points = tail(of(server.cases.get(&case.name)?)?);
        let color = sources.server_color(server);
        Some(Series { label: server.name.clone(), color, points, ..Series::default() })
    });
    series.filter(|line| !line.points.is_empty()).collect()
}

fn latency_figure(title: &str, unit: &str, look: &str, series: Vec<Series>) -> String {
    if series.is_empty() {
        return String::new();
    }
    let drawing = &LinePlot { switch: Switch::Neither, ..spectrum(unit, series) }.draw();
    Figure { title, tag: Tag::Measured, look, drawing }.html()
}

/// The 99th percentile against the rate reached, over all cases of that work that have both.
fn load_plot(sources: &Sources, servers: &Servers, its: &str) -> LinePlot {
    let same = |case: &&ServerCase| work(case) == its;
    let series = servers.servers.iter().map(|server| {
        let results = servers.cases.iter().filter(same).map(|case| server.cases.get(&case.name));
        let mut points: Vec<Point> = results.flatten().filter_map(load_point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let color = sources.server_color(server);
        Series { label: server.name.clone(), color, points, ..Series::default() }
    });
    LinePlot {
        name: "99th percentile of latency by operations per second".into(),
        x: "operations per second".into(),
        y: "\u{b5}s, 99th percentile from the intended time on".into(),
        x_scale: Scale::Linear,
        ticks: Ticks::Round,
        reading: Reading::Nearest,
        ..spectrum("", series.filter(|line| !line.points.is_empty()).collect())
    }
}

fn load_point(result: &ServerResult) -> Option<Point> {
    // In a closed loop the server sets the rate itself.
    let histogram = result.latency.as_ref().filter(|_| result.service.is_some())?;
    let ns = percentile_ns(histogram, 99.0)?;
    Some(Point { x: Spread::of(&result.rate)?.median, y: ns / 1e3, range: None, hint: false })
}

fn overview(servers: &Servers) -> String {
    let heads: Vec<String> = servers
        .cases
        .iter()
        .map(|case| format!("#{} ({})", case.title, words::unit(&case.unit)))
        .collect();
    let mut heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    heads.insert(0, "server");
    let cell = |server: &Server, case: &ServerCase| {
        let result = server.cases.get(&case.name)?;
        if result.not_offered.is_some() {
            return Some("not offered".into());
        }
        if result.refused.is_some() {
            return Some("refused".into());
        }
        let figure = Spread::of(&result.figure)?;
        let ratio = times_the_floor(servers, case, &result.figure);
        let ratio = ratio.map(|ratio| format!("; {}\u{d7} floor", number(ratio.median)));
        let said = format!("{}{} ", spread(figure), ratio.unwrap_or_default());
        Some((said + Subject::of(case).mark(result)).trim_end().to_owned())
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let all = servers.servers.iter().chain(&servers.plain);
    for server in all.filter(|server| server.failure.is_none()) {
        let figures = servers.cases.iter().map(|case| cell(server, case));
        let figures =
            figures.map(|figure| Cell::Number(figure.unwrap_or_else(|| "\u{2013}".into())));
        rows.push([Cell::Text(server.name.clone())].into_iter().chain(figures).collect());
    }
    let floors = servers.cases.iter().map(|case| floor(servers, case));
    if floors.clone().any(|floor| floor.is_some()) {
        let text =
            |floor: Option<(f64, String)>| floor.map_or("\u{2013}".into(), |(f, _)| number(f));
        let cells = floors.map(|floor| Cell::Number(text(floor)));
        rows.push([Cell::Text("floor".into())].into_iter().chain(cells).collect());
    }
    table("Median [least\u{2013}most] of the rounds; lower is better", &heads, &rows)
}

fn failures(servers: &Servers) -> String {
    let failed = servers.servers.iter().filter_map(|s| Some((&s.name, s.failure.as_ref()?)));
    failed.fold(String::new(), |html, (name, failure)| {
        let (name, failure) = (escape(name), escape(failure));
        html + &format!("<p class=\"failure\"><b>{name}</b>: no figures: {failure}</p>")
    })
}

/// With a capital, unless the first word has one within, or is a sign.
pub(crate) fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if first.is_ascii_lowercase() && !text[1..].starts_with(' ') => {
            first.to_ascii_uppercase().to_string() + chars.as_str()
        }
        _ => text.to_owned(),
    }
}

const LATENCY: &str = "Time per operation in an open loop, spread out towards the slowest. It \
    counts from when the operation was due, so that a server that stalls cannot hide it.";
const SERVICE: &str = "The same operations from their actual start: what a closed loop would have \
    shown. The difference to the latency is time that operations waited to be begun.";
const FULL_LOAD: &str = " At full load: a closed loop, as much as the server does beside client \
    and backend.";
const OPEN_LOAD: &str = " An open loop: operations begin by a schedule, at half load (or another \
    share) at that part of the rate that the same server reached at full load in the same round.";
const LOAD: &str = "How slow the slowest hundredth gets as more is asked. Each line ends at the \
    highest load measured; where it turns up, the server is full.";
