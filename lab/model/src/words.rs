//! Units, shares, curves and states in words, the same on every page and in every table.

pub mod kernel;
pub mod scenario;

use crate::{
    document::{Curve, KNEE_THREADS_MIN, Knee, LiveThread},
    number::number,
    verdict::{fallen, kept},
};

pub use scenario::{negotiated, short, whole};

/// A key of a map, such as `server_idle`, as words: `server, idle`.
pub fn spaced(key: &str) -> String {
    match key.split_once('_') {
        Some((side, state)) => format!("{side}, {}", state.replace('_', " ")),
        None => key.to_owned(),
    }
}

/// A unit from a document, with its sign for micro.
pub fn unit(text: &str) -> String {
    text.strip_prefix("us ").map_or_else(|| text.to_owned(), |rest| format!("\u{b5}s {rest}"))
}

/// `1 thread`, `2 threads`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A command line that a shell reads back as it was.
pub fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A share of 1 as percent: whole, or one digit where it is less than 1%.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digit = if percent >= 0.95 { percent.round() } else { (percent * 10.0).round() / 10.0 };
    format!("{}%", number(digit))
}

/// What a curve says of its end: `keeps about 6% (3-12%) of its per-thread speed at 80
/// threads`; nothing if there is none.
pub fn keeps(curve: &Curve) -> Option<String> {
    let last = curve.points.last()?;
    Some(match fallen(curve) {
        Some(point) => kept(&point, "its per-thread speed"),
        None => format!("shows no knee below {} threads", last.threads),
    })
}

/// Where a curve falls below 70%. Below 14 threads no number is given: forecasts are too
/// early there.
pub fn knee(knee: Knee) -> String {
    match knee {
        Knee::At { threads } if threads >= KNEE_THREADS_MIN => format!("about {threads} threads"),
        Knee::At { .. } | Knee::FewCores => "few cores".into(),
        Knee::NoneBelow { threads } => format!("no knee found below {threads}"),
        Knee::Unknown => "not looked for".into(),
    }
}

/// What a thread did by state, the busiest states first.
pub fn states(thread: &LiveThread) -> String {
    let mut states: Vec<(&String, &f64)> = thread.states.iter().collect();
    states.sort_by(|a, b| b.1.total_cmp(a.1));
    let shown = states.iter().take(STATES_SHOWN).filter(|(_, share)| **share >= SHARE_SHOWN);
    let shown: Vec<String> = shown
        .map(|(state, share)| format!("{state} {}%", number((*share * 100.0).round())))
        .collect();
    shown.join(", ")
}

/// A name that tells a place in the source, `name at folder/file.c:9`, without its folders: they
/// are those of whoever built it.
pub fn without_folders(name: &str) -> String {
    match name.rsplit_once(" at ") {
        Some((name, place)) => format!("{name} at {}", place.rsplit('/').next().unwrap_or(place)),
        None => name.to_owned(),
    }
}

const SHARE_SHOWN: f64 = 0.005;
const STATES_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::CurvePoint;

    fn curve(efficiency: f64, low: f64, high: f64) -> Curve {
        let first = CurvePoint { threads: 1, efficiency: 1.0, low: 1.0, high: 1.0 };
        let last = CurvePoint { threads: 80, efficiency, low, high };
        Curve { points: vec![first, last], knee: Knee::default() }
    }

    #[test]
    fn a_forecast_is_a_band_and_the_last_third_is_no_number() {
        let said = |curve: &Curve| keeps(curve).unwrap();
        assert_eq!(
            said(&curve(0.058, 0.029, 0.116)),
            "keeps about 6% (3-12%) of its per-thread speed at 80 threads"
        );
        assert_eq!(said(&curve(0.71, 0.35, 1.0)), "shows no knee below 80 threads");
        assert_eq!(keeps(&Curve::default()), None);
        assert_eq!(percent(0.004), "0.4%");
        assert_eq!(percent(0.0004), "0%");
    }

    #[test]
    fn a_knee_at_few_cores_is_no_number() {
        assert_eq!(knee(Knee::At { threads: 13 }), "few cores");
        assert_eq!(knee(Knee::FewCores), "few cores");
        assert_eq!(knee(Knee::At { threads: 14 }), "about 14 threads");
        assert_eq!(knee(Knee::NoneBelow { threads: 80 }), "no knee found below 80");
    }

    #[test]
    fn a_command_line_survives_a_shell() {
        let words = ["a", "it's", "", "b c", "x=1"].map(str::to_owned);
        assert_eq!(shell(&words), r"a 'it'\''s' '' 'b c' x=1");
    }
}
