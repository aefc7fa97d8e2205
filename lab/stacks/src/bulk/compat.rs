//! The lines of the Asio write-up's program. Its megabytes are 1,048,576 bytes.

use sealane_lab_model::{
    document::{BulkRound, BulkSeries},
    error::Error,
    figures::{Shown, Tally, bulk::mib_in_whole_ms},
};

use crate::compat::six_digits;

/// Whose lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    /// The program of the Asio write-up, whose line tells one transfer.
    Asio,
}

/// The lines for one series, one for each round that is shown.
///
/// # Errors
/// There is no such round, so there is nothing to print.
pub(crate) fn lines(series: &BulkSeries) -> Result<String, Error> {
    if let Some(why) = &series.failure {
        return Err(Error::Check(why.clone()));
    }
    let shown = Shown::of(&series.rounds);
    if shown.is_empty() && !series.rounds.is_empty() {
        let tally = Tally::of(&series.rounds);
        return Err(Error::Check(format!("no round can be used: {tally}")));
    }
    Ok(shown.rounds().iter().map(|round| asio(round)).collect())
}

/// The write-up computed its bytes from its arguments; these have arrived.
fn asio(round: &BulkRound) -> String {
    let [mib, seconds, rate] = mib_in_whole_ms(round).map(six_digits);
    format!("{mib} megabytes sent and received in {seconds} seconds. ({rate} MB/s)\n")
}

#[cfg(test)]
mod tests {
    use sealane_lab_model::{document::Invalid, scenario::Scenario};

    use super::*;

    fn series() -> BulkSeries {
        let round = BulkRound { bytes: 100 << 20, wall_ns: 383_100_000, ..BulkRound::default() };
        BulkSeries {
            stack: "openssl".into(),
            runtime: "asio".into(),
            driver: None,
            loops: None,
            emulate: None,
            scenario: Scenario::default(),
            threads: 1,
            connections: 1,
            messages: 100,
            message_bytes: 1 << 20,
            verify: None,
            negotiated: None,
            rounds: vec![round],
            failure: None,
        }
    }

    #[test]
    fn the_write_ups_line() {
        let text = lines(&series()).unwrap();
        assert_eq!(text, "100 megabytes sent and received in 0.384 seconds. (260.417 MB/s)\n");
    }

    #[test]
    fn rounds_that_do_not_count_print_no_line_where_others_do() {
        let mut series = series();
        let good = series.rounds[0].clone();
        let wrong = BulkRound { invalid: Some(Invalid::Steal), ..good.clone() };
        series.rounds.extend([wrong, good]);
        let printed = |series: &BulkSeries| lines(series).map(|it| it.lines().count());
        assert_eq!(printed(&series).unwrap(), 2);
        series.rounds.iter_mut().for_each(|round| round.invalid = Some(Invalid::Steal));
        assert_eq!(printed(&series).unwrap(), 3);
        series.rounds.iter_mut().for_each(|round| round.invalid = Some(Invalid::Accounting));
        assert!(printed(&series).is_err());
    }

    #[test]
    fn a_failure_prints_no_line() {
        let failed = BulkSeries { failure: Some("reset".into()), ..series() };
        assert!(lines(&failed).is_err());
    }
}
