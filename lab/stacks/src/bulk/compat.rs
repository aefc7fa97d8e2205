//! The lines of the tools that came before: of the Asio write-up's program, of openssl-bench and of
//! rustls-bench. Their megabytes are 1,048,576 bytes.

use sealane_lab_model::{
    document::{BulkEnds, BulkRound, BulkSeries},
    error::Error,
    figures::{
        Shown, Tally,
        bulk::{mib_in_whole_ms, mib_per_s_of_threads},
    },
};

use crate::compat::{self, six_digits};

/// Whose lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    /// The program of the Asio write-up, whose line tells one transfer.
    Asio,
    /// openssl-bench, `bulk`.
    OpensslBench,
    /// rustls-bench, `bulk`.
    RustlsBench,
}

/// The lines for one series, a set of them for each round that is shown.
///
/// # Errors
/// There is no such round, so there is nothing to print.
pub(crate) fn lines(tool: Tool, series: &BulkSeries) -> Result<String, Error> {
    if let Some(why) = &series.failure {
        return Err(Error::Check(why.clone()));
    }
    let shown = Shown::of(&series.rounds);
    if shown.is_empty() && !series.rounds.is_empty() {
        let tally = Tally::of(&series.rounds);
        return Err(Error::Check(format!("no round can be used: {tally}")));
    }
    let mut text = String::new();
    for round in shown.rounds() {
        let tool = match tool {
            Tool::Asio => {
                text.push_str(&asio(round));
                continue;
            }
            Tool::OpensslBench => compat::Tool::OpensslBench,
            Tool::RustlsBench => compat::Tool::RustlsBench,
        };
        let ends = round.ends.as_ref();
        let ends = ends.ok_or_else(|| Error::Check("a round without its ends".into()))?;
        text.push_str(&bench(tool, series, ends));
    }
    Ok(text)
}

/// The write-up computed its bytes from its arguments; these have arrived.
fn asio(round: &BulkRound) -> String {
    let [mib, seconds, rate] = mib_in_whole_ms(round).map(six_digits);
    format!("{mib} megabytes sent and received in {seconds} seconds. ({rate} MB/s)\n")
}

fn bench(tool: compat::Tool, series: &BulkSeries, ends: &BulkEnds) -> String {
    let send = mib_per_s_of_threads(ends, |thread| thread.send_ns);
    let receive = mib_per_s_of_threads(ends, |thread| thread.receive_ns);
    compat::bulk_lines(tool, &series.scenario, &send, &receive)
}

#[cfg(test)]
mod tests {
    use sealane_lab_model::{
        document::{BulkThread, Invalid},
        scenario::{Cipher, Key, Scenario, Version},
    };

    use super::*;

    fn series(scenario: Scenario, per_thread: Vec<BulkThread>) -> BulkSeries {
        let ends = Some(BulkEnds { per_thread, ..BulkEnds::default() });
        let round =
            BulkRound { bytes: 100 << 20, wall_ns: 383_100_000, ends, ..BulkRound::default() };
        BulkSeries {
            stack: "openssl".into(),
            runtime: "memory".into(),
            driver: None,
            loops: None,
            emulate: None,
            scenario,
            threads: 1,
            connections: 1,
            messages: 0,
            message_bytes: 1 << 20,
            record_bytes: Some(16_384),
            verify: None,
            negotiated: None,
            rounds: vec![round],
            failure: None,
        }
    }

    const THREAD: BulkThread =
        BulkThread { bytes: 1 << 30, send_ns: 500_000_000, receive_ns: 400_000_000 };

    #[test]
    fn the_write_ups_line() {
        let text = lines(Tool::Asio, &series(Scenario::default(), Vec::new())).unwrap();
        assert_eq!(text, "100 megabytes sent and received in 0.384 seconds. (260.417 MB/s)\n");
    }

    #[test]
    fn the_lines_of_openssl_bench() {
        let series = series(Scenario::default(), vec![THREAD]);
        let wanted = "bulk\tsend\tTLSv1.3\tTLS_AES_128_GCM_SHA256\t2048\tMB/s\n\
                      bulk\trecv\tTLSv1.3\tTLS_AES_128_GCM_SHA256\t2560\tMB/s\n";
        assert_eq!(lines(Tool::OpensslBench, &series).unwrap(), wanted);
    }

    #[test]
    fn the_lines_of_rustls_bench_with_threads() {
        let scenario = Scenario {
            version: Version::Tls12,
            cipher: Cipher::Aes256Gcm,
            key: Key::Rsa2048,
            ..Scenario::default()
        };
        let text = lines(Tool::RustlsBench, &series(scenario, vec![THREAD, THREAD])).unwrap();
        let wanted = "bulk\tTLSv1_2\tTLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\
                      \tmax_fragment_size:default\tsend\tthreads\t2\t2048.00\t2048.00\
                      \ttotal\t4096.00\tper-thread\t2048.00\tMB/s\n";
        assert_eq!(text.split_inclusive('\n').next(), Some(wanted));
    }

    #[test]
    fn rounds_that_do_not_count_print_no_line_where_others_do() {
        let mut series = series(Scenario::default(), vec![]);
        let good = series.rounds[0].clone();
        let wrong = BulkRound { invalid: Some(Invalid::Steal), ..good.clone() };
        series.rounds.extend([wrong, good]);
        let printed = |series: &BulkSeries| lines(Tool::Asio, series).map(|it| it.lines().count());
        assert_eq!(printed(&series).unwrap(), 2);
        series.rounds.iter_mut().for_each(|round| round.invalid = Some(Invalid::Steal));
        assert_eq!(printed(&series).unwrap(), 3);
        series.rounds.iter_mut().for_each(|round| round.invalid = Some(Invalid::Accounting));
        assert!(printed(&series).is_err());
    }

    #[test]
    fn a_failure_prints_no_line() {
        let failed =
            BulkSeries { failure: Some("reset".into()), ..series(Scenario::default(), vec![]) };
        assert!(lines(Tool::Asio, &failed).is_err());
    }
}
