//! The very lines of rustls-bench and openssl-bench, for scripts that read those.
//!
//! Their rates count the time inside one side's calls only; the sum over threads ("total") is no
//! rate that anybody can have. rustls-bench times the making of a connection too, openssl-bench
//! does not. Each name is the tool's own: fields are separated by tabs.
//!
//! Before resumed rates, openssl-bench prints two lines of its context's counters (`connects:` and
//! `sessions:`). They are left out: contexts here belong to threads, and nobody reads theirs.

use std::fmt::Write;

use sealane_lab_model::{
    document::HandshakeRound,
    figures::handshake::rates_in_spans,
    scenario::{Cipher, Key, Kind, Scenario, Version},
};

/// Whose lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    /// openssl-bench.
    OpensslBench,
    /// rustls-bench.
    RustlsBench,
}

/// The two lines of a handshake benchmark, of `rounds` taken together. Before resumed rates
/// openssl-bench prints counters of its server's context; they are left out, for nothing here has
/// such a context to read.
#[must_use]
pub(crate) fn handshake_lines(
    tool: Tool,
    scenario: &Scenario,
    rounds: &[&HandshakeRound],
) -> String {
    let server = rates_in_spans(rounds, |[server, _, setup, _]| match tool {
        Tool::OpensslBench => server,
        Tool::RustlsBench => server + setup,
    });
    let client = rates_in_spans(rounds, |[_, client, _, setup]| match tool {
        Tool::OpensslBench => client,
        Tool::RustlsBench => client + setup,
    });
    match tool {
        Tool::OpensslBench => {
            let subject = match scenario.kind {
                Kind::Full => "handshakes",
                Kind::SessionId => "handshake-resume",
                Kind::Ticket => "handshake-ticket",
            };
            let line = |side: &str, rates: &[f64]| {
                let (version, suite) = openssl_names(scenario);
                let fields = format!("{subject}\t{side}\t{version}\t{suite}");
                line(tool, &fields, rates, "handshakes/s")
            };
            line("server", &server) + &line("client", &client)
        }
        Tool::RustlsBench => {
            let (version, suite) = rustls_names(scenario);
            let key = match scenario.key {
                Key::Ed25519 => "Ed25519",
                Key::P256 => "EcdsaP256",
                Key::P384 => "EcdsaP384",
                Key::Rsa2048 => "Rsa2048",
                Key::Rsa4096 => "Rsa4096",
            };
            let auth = if scenario.client_certificate { "mutual" } else { "server-auth" };
            let resume = match scenario.kind {
                Kind::Full => "no-resume",
                Kind::SessionId => "sessionid",
                Kind::Ticket => "tickets",
            };
            let line = |side: &str, rates: &[f64]| {
                let fields =
                    format!("handshakes\t{version}\t{key}\t{suite}\t{side}\t{auth}\t{resume}");
                line(tool, &fields, rates, "handshakes/s")
            };
            line("client", &client) + &line("server", &server)
        }
    }
}

/// One line: `fields`, then one rate, or that of each thread, their sum and their mean.
fn line(tool: Tool, fields: &str, rates: &[f64], unit: &str) -> String {
    let number = |value: f64| match tool {
        Tool::OpensslBench => six_digits(value),
        Tool::RustlsBench => format!("{value:.2}"),
    };
    let mut line = fields.to_owned();
    if let [rate] = rates {
        line.push('\t');
        line.push_str(&number(*rate));
    } else {
        let _ = write!(line, "\tthreads\t{}", rates.len());
        for rate in rates {
            line.push('\t');
            line.push_str(&number(*rate));
        }
        let total: f64 = rates.iter().sum();
        let mean = total / rates.len() as f64;
        let _ = write!(line, "\ttotal\t{}\tper-thread\t{}", number(total), number(mean));
    }
    let _ = writeln!(line, "\t{unit}");
    line
}

/// The version and the suite, as OpenSSL calls them.
pub(crate) fn openssl_names(scenario: &Scenario) -> (&'static str, String) {
    if scenario.version == Version::Tls13 {
        return ("TLSv1.3", scenario.suite());
    }
    let is_rsa = matches!(scenario.key, Key::Rsa2048 | Key::Rsa4096);
    let key = if is_rsa { "RSA" } else { "ECDSA" };
    let cipher = match scenario.cipher {
        Cipher::Aes128Gcm => "AES128-GCM-SHA256",
        Cipher::Aes256Gcm => "AES256-GCM-SHA384",
        Cipher::Chacha20Poly1305 => "CHACHA20-POLY1305",
    };
    ("TLSv1.2", format!("ECDHE-{key}-{cipher}"))
}

fn rustls_names(scenario: &Scenario) -> (&'static str, String) {
    match scenario.version {
        Version::Tls12 => ("TLSv1_2", scenario.suite()),
        Version::Tls13 => ("TLSv1_3", scenario.suite().replacen("TLS_", "TLS13_", 1)),
    }
}

/// A number as C's `%g` writes it.
pub(crate) fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let exponent: i32 =
        scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let trim = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    match usize::try_from(5 - exponent) {
        Ok(places) if exponent >= -4 => trim(&format!("{value:.places$}")),
        _ => {
            let digits = scientific.split_once('e').map_or("", |(digits, _)| digits);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(digits), exponent.unsigned_abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(threads: usize) -> HandshakeRound {
        HandshakeRound {
            per_thread: vec![1_000; threads],
            // 100 and 200 ms, and of the making 25 and 50 ms.
            per_thread_ns: vec![[100_000_000, 200_000_000, 25_000_000, 50_000_000]; threads],
            discarded: threads as u64,
            ..HandshakeRound::default()
        }
    }

    fn lines(tool: Tool, scenario: &Scenario, threads: usize) -> Vec<String> {
        let round = round(threads);
        let text = handshake_lines(tool, scenario, &[&round, &round]);
        text.lines().map(str::to_owned).collect()
    }

    fn tls12_rsa(kind: Kind) -> Scenario {
        let (version, cipher) = (Version::Tls12, Cipher::Aes256Gcm);
        Scenario { kind, version, cipher, key: Key::Rsa2048, ..Scenario::default() }
    }

    #[test]
    fn openssl_bench_has_six_fields_or_eleven_more_than_threads() {
        let one = lines(Tool::OpensslBench, &tls12_rsa(Kind::Full), 1);
        let server =
            "handshakes\tserver\tTLSv1.2\tECDHE-RSA-AES256-GCM-SHA384\t10000\thandshakes/s";
        assert_eq!(one[0], server);
        assert!(one[1].starts_with("handshakes\tclient\t") && one[1].contains("\t5000\t"));
        let resumed = lines(Tool::OpensslBench, &tls12_rsa(Kind::Ticket), 1);
        assert!(resumed[0].starts_with("handshake-ticket\tserver\t"), "{resumed:?}");
        for threads in [2, 7, 80] {
            for line in lines(Tool::OpensslBench, &tls12_rsa(Kind::SessionId), threads) {
                assert!(line.starts_with("handshake-resume\t"), "{line}");
                let fields: Vec<&str> = line.split('\t').collect();
                assert_eq!(fields.len(), threads + 11, "{line}");
                assert_eq!((fields[4], fields[5]), ("threads", &*threads.to_string()));
                let each: f64 =
                    fields[6..6 + threads].iter().map(|f| f.parse::<f64>().unwrap()).sum();
                assert_eq!(fields[6 + threads], "total");
                assert_eq!(fields[7 + threads].parse::<f64>().unwrap(), each);
                assert_eq!(fields[8 + threads], "per-thread");
                assert_eq!(fields[10 + threads], "handshakes/s");
            }
        }
    }

    #[test]
    fn openssl_bench_has_no_counters_that_nobody_read() {
        for (kind, subject) in
            [(Kind::Ticket, "handshake-ticket"), (Kind::SessionId, "handshake-resume")]
        {
            let lines = lines(Tool::OpensslBench, &tls12_rsa(kind), 2);
            let sides: Vec<_> = lines.iter().map(|line| line.split('\t').take(2)).collect();
            let wanted = ["server", "client"].map(|side| [subject, side]);
            assert!(sides.into_iter().flatten().eq(wanted.into_iter().flatten()), "{lines:?}");
        }
    }

    #[test]
    fn rustls_bench_puts_the_client_first_and_times_the_making() {
        let scenario = Scenario { key: Key::Rsa2048, kind: Kind::Ticket, ..Scenario::default() };
        let one = lines(Tool::RustlsBench, &scenario, 1);
        let fields = "handshakes\tTLSv1_3\tRsa2048\tTLS13_AES_128_GCM_SHA256";
        assert_eq!(
            one[0],
            format!("{fields}\tclient\tserver-auth\ttickets\t4000.00\thandshakes/s")
        );
        assert_eq!(
            one[1],
            format!("{fields}\tserver\tserver-auth\ttickets\t8000.00\thandshakes/s")
        );
        let two = lines(Tool::RustlsBench, &scenario, 2);
        let rates = "threads\t2\t8000.00\t8000.00\ttotal\t16000.00\tper-thread\t8000.00";
        assert_eq!(
            two[1],
            format!("{fields}\tserver\tserver-auth\ttickets\t{rates}\thandshakes/s")
        );
        let tls12 = lines(Tool::RustlsBench, &tls12_rsa(Kind::Full), 1);
        assert!(tls12[0].contains("\tTLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384\t"), "{tls12:?}");
    }

    #[test]
    fn numbers_are_written_as_by_c() {
        for (value, text) in [
            (2_154.414, "2154.41"),
            (10_000.0, "10000"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.9, "1e+06"),
            (0.5, "0.5"),
            (0.000_012_345_67, "1.23457e-05"),
            (0.000_123, "0.000123"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
