//! Cards of servers: the figure, its ratio to the floor and to the best of the others.

use sealane_lab_model::{
    document::{Server, ServerCase, Servers},
    figures::{
        Standing,
        servers::{Subject, best_other, measurable, times_the_floor},
    },
    number::number,
    statistics::{self, ROUNDS_MIN, Row, Spread},
    words,
};

use super::{card::Card, frame::Tag, sources::Sources, terminators::floor};

/// One per server that has a figure in the first case.
pub(crate) fn cards(sources: &Sources, servers: &Servers) -> Vec<Card> {
    let Some(first) = servers.cases.first() else { return Vec::new() };
    servers.servers.iter().filter_map(|server| card(sources, servers, first, server)).collect()
}

fn card(sources: &Sources, servers: &Servers, first: &ServerCase, server: &Server) -> Option<Card> {
    let median = |case: &ServerCase| {
        let result = server.cases.get(&case.name)?;
        Spread::of(&result.figure).map(|spread| spread.median)
    };
    let figure = median(first)?;
    let mut facts = Vec::new();
    let result = server.cases.get(&first.name)?;
    let ratio = times_the_floor(servers, first, &result.figure);
    if let (Some((floor, _)), Some(ratio)) = (floor(servers, first), ratio) {
        let what = format!("of the floor, {}", number(floor));
        facts.push((format!("{}\u{d7}", number(ratio.median)), what));
    }
    facts.extend(best_peer(servers, first, server));
    for case in servers.cases.iter().skip(1).take(FACTS) {
        let what = format!("{}, {}", words::unit(&case.unit), case.title);
        facts.extend(median(case).map(|value| (number(value), what)));
    }
    Some(Card {
        label: server.name.clone(),
        color: sources.server_color(server),
        figure: number(figure),
        words: format!("{}{}", words::unit(&first.unit), reservation(server, first)),
        tag: Tag::Measured,
        facts,
        context: first.title.clone(),
    })
}

/// What keeps a figure from being a verdict; empty if nothing does.
pub(crate) fn reservation(server: &Server, case: &ServerCase) -> &'static str {
    let Some(result) = server.cases.get(&case.name) else { return "" };
    match result.figure.len() {
        _ if Subject::of(case).standing(result) == Standing::Hint => " (disturbed: a hint)",
        rounds if rounds < ROUNDS_MIN => " (a hint: too few rounds for a verdict)",
        _ => "",
    }
}

/// The ratio to the best of the others in each round.
fn best_peer(servers: &Servers, case: &ServerCase, server: &Server) -> Option<(String, String)> {
    let ours = measurable(&server.cases.get(&case.name)?.figure);
    let best = measurable(&best_other(servers, case, &server.name)?);
    let row = |figures| Row { name: "", figures };
    let found = statistics::compare("", row(&ours), row(&best))?;
    let [low, high] = found.interval;
    let doubt = if !found.is_enough() {
        " (too few rounds)"
    } else if low <= 1.0 && 1.0 <= high {
        " (no difference shown)"
    } else {
        ""
    };
    let what = format!("of the best other{doubt}");
    Some((format!("{}\u{d7}", number(found.ratio)), what))
}

const FACTS: usize = 3;

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::{Bottleneck, NoVerdict, ServerResult};

    use super::*;

    fn servers(figures: &[(&str, &[f64])]) -> Servers {
        let case = ServerCase { name: "full".into(), ..ServerCase::default() };
        let server = |(name, figure): &(&str, &[f64])| {
            let result = ServerResult { figure: figure.to_vec(), ..ServerResult::default() };
            let cases = [("full".to_owned(), result)].into();
            Server { name: (*name).into(), cases, ..Server::default() }
        };
        let servers = figures.iter().map(server).collect();
        Servers { cases: vec![case], servers, ..Servers::default() }
    }

    fn said(figures: &[(&str, &[f64])]) -> Option<(String, String)> {
        let servers = servers(figures);
        best_peer(&servers, &servers.cases[0], &servers.servers[0])
    }

    #[test]
    fn the_best_of_the_others_may_be_another_in_each_round() {
        let others: [(&str, &[f64]); 2] =
            [("b", &[20.0, 40.0, 20.0, 40.0, 20.0]), ("c", &[40.0, 20.0, 40.0, 20.0, 40.0])];
        let ratio = |figures: &[f64]| said(&[("a", figures), others[0], others[1]]).unwrap();
        assert_eq!(ratio(&[10.0; 5]), ("0.5\u{d7}".into(), "of the best other".into()));
        assert!(ratio(&[19.0, 20.0, 21.0, 19.0, 21.0]).1.ends_with("(no difference shown)"));
        assert_eq!(said(&[("a", &[1.0])]), None, "alone");
        assert!(said(&[("a", &[1.0]), ("b", &[2.0])]).unwrap().1.ends_with("(too few rounds)"));
    }

    #[test]
    fn one_round_and_a_disturbed_one_are_hints() {
        let mut servers = servers(&[("a", &[1.0]), ("b", &[1.0; 5])]);
        let case = servers.cases[0].clone();
        assert_eq!(
            reservation(&servers.servers[0], &case),
            " (a hint: too few rounds for a verdict)"
        );
        assert_eq!(reservation(&servers.servers[1], &case), "");
        let result = servers.servers[1].cases.get_mut("full").unwrap();
        result.invalid = Some(NoVerdict::new(Bottleneck::Client, "x"));
        assert_eq!(reservation(&servers.servers[1], &case), "");
        let result = servers.servers[1].cases.get_mut("full").unwrap();
        result.invalid = Some(NoVerdict::new(Bottleneck::Hypervisor, "x"));
        assert_eq!(reservation(&servers.servers[1], &case), " (disturbed: a hint)");
    }
}
