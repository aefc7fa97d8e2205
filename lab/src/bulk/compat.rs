//! The lines of the tools that came before: of the Asio write-up's program, of openssl-bench and of
//! rustls-bench. Their megabytes are 1,048,576 bytes.

use std::fmt::Write;

use crate::{
    document::{BulkEnds, BulkRound, BulkSeries, BulkThread},
    error::Error,
    scenario::{Cipher, Key, Version},
};

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

/// The lines for one series, a set of them for each round.
///
/// # Errors
/// There is no round, so there is nothing to print.
pub(crate) fn lines(tool: Tool, series: &BulkSeries) -> Result<String, Error> {
    if let Some(why) = &series.failure {
        return Err(Error::Check(why.clone()));
    }
    let mut text = String::new();
    for round in &series.rounds {
        match tool {
            Tool::Asio => text.push_str(&asio(round)),
            Tool::OpensslBench | Tool::RustlsBench => {
                let ends = round.ends.as_ref();
                let ends = ends.ok_or_else(|| Error::Check("a round without its ends".into()))?;
                text.push_str(&bench(tool, series, ends));
            }
        }
    }
    Ok(text)
}

/// The write-up computed its bytes from its arguments; these have arrived.
fn asio(round: &BulkRound) -> String {
    let mebibytes = round.bytes as f64 / MEBIBYTE;
    // Its clock told whole milliseconds.
    let seconds = round.wall_ns.div_ceil(1_000_000) as f64 / 1e3;
    format!(
        "{} megabytes sent and received in {} seconds. ({} MB/s)\n",
        general(mebibytes),
        general(seconds),
        general(mebibytes / seconds)
    )
}

fn bench(tool: Tool, series: &BulkSeries, ends: &BulkEnds) -> String {
    let rate = |ns: fn(&BulkThread) -> u64| -> Vec<f64> {
        let rate = |thread: &BulkThread| thread.bytes as f64 / MEBIBYTE / (ns(thread) as f64 / 1e9);
        ends.per_thread.iter().map(rate).collect()
    };
    let mut text = String::new();
    for (end, rates) in
        [("send", rate(|thread| thread.send_ns)), ("recv", rate(|thread| thread.receive_ns))]
    {
        let (prefix, number): (String, fn(f64) -> String) = match tool {
            Tool::RustlsBench => (rustls_prefix(series, end), |value| format!("{value:.2}")),
            Tool::Asio | Tool::OpensslBench => (openssl_prefix(series, end), general),
        };
        text.push_str(&prefix);
        if let [only] = rates[..] {
            let _ = writeln!(text, "\t{}\tMB/s", number(only));
            continue;
        }
        let total: f64 = rates.iter().sum();
        let _ = write!(text, "\tthreads\t{}", rates.len());
        for rate in &rates {
            let _ = write!(text, "\t{}", number(*rate));
        }
        let each = number(total / rates.len() as f64);
        let _ = writeln!(text, "\ttotal\t{}\tper-thread\t{each}\tMB/s", number(total));
    }
    text
}

fn openssl_prefix(series: &BulkSeries, end: &str) -> String {
    let (version, suite) = match series.scenario.version {
        Version::Tls12 => ("TLSv1.2", openssl_suite(series)),
        Version::Tls13 => ("TLSv1.3", series.scenario.suite()),
    };
    format!("bulk\t{end}\t{version}\t{suite}")
}

fn openssl_suite(series: &BulkSeries) -> String {
    let key = if series.scenario.key == Key::Rsa2048 { "RSA" } else { "ECDSA" };
    let cipher = match series.scenario.cipher {
        Cipher::Aes128Gcm => "AES128-GCM-SHA256",
        Cipher::Aes256Gcm => "AES256-GCM-SHA384",
        Cipher::Chacha20Poly1305 => "CHACHA20-POLY1305",
    };
    format!("ECDHE-{key}-{cipher}")
}

fn rustls_prefix(series: &BulkSeries, end: &str) -> String {
    let suite = series.scenario.suite();
    let (version, suite) = match series.scenario.version {
        Version::Tls12 => ("TLSv1_2", suite),
        Version::Tls13 => ("TLSv1_3", suite.replacen("TLS_", "TLS13_", 1)),
    };
    let fragment = series.record_bytes.filter(|bytes| *bytes < RECORD_BYTES_MAX);
    let fragment = fragment.map_or("default".to_owned(), |bytes| bytes.to_string());
    format!("bulk\t{version}\t{suite}\tmax_fragment_size:{fragment}\t{end}")
}

/// C's `%g`: six significant digits, no zeros at the end.
fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let exponent = format!("{value:.5e}");
    let (digits, exponent) = exponent.split_once('e').unwrap_or((&exponent, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        let trimmed = if text.contains('.') { text.trim_end_matches('0') } else { text };
        trimmed.trim_end_matches('.').to_owned()
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        trim(&format!("{value:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

const MEBIBYTE: f64 = 1_048_576.0;
const RECORD_BYTES_MAX: u64 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

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
    fn numbers_are_written_as_c_does() {
        for (value, text) in [
            (100.0, "100"),
            (260.416_666, "260.417"),
            (0.384, "0.384"),
            (10_000.0, "10000"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_3, "1.23e-05"),
            (999_999.7, "1e+06"),
        ] {
            assert_eq!(general(value), text);
        }
    }

    #[test]
    fn a_failure_prints_no_line() {
        let failed =
            BulkSeries { failure: Some("reset".into()), ..series(Scenario::default(), vec![]) };
        assert!(lines(Tool::Asio, &failed).is_err());
    }
}
