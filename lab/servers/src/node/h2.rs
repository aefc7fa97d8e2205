//! The client of HTTP/2: h2load, a process of its own, and what it says.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
};

use sealane_lab_model::error::Error;

/// How it is to ask.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// IANA's name, which is OpenSSL's in TLS 1.3.
    pub(super) suite: String,
    pub(super) body_bytes: u64,
    pub(super) connections: usize,
}

impl Client {
    /// So many requests; how many were answered per second.
    ///
    /// # Errors
    /// One was not, or not as it should be.
    pub(super) fn run(&self, requests: u64) -> Result<f64, Error> {
        let Self { address, suite, body_bytes, connections } = self;
        let requests = requests.max(*connections as u64);
        let mut command = Command::new("h2load");
        command.arg(format!("-n{requests}")).arg(format!("-c{connections}"));
        // A server that does not answer is told by requests that failed.
        command.arg(format!("-m{STREAMS}")).arg("-N10s").arg("--groups=X25519");
        command.arg(format!("--tls13-ciphers={suite}"));
        command.arg(format!("https://{address}/bytes/{body_bytes}")).stdin(Stdio::null());
        let output = command.output().map_err(Error::io("run h2load"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = self.rate_in(&text, requests).map_err(|missing| {
            let errors = String::from_utf8_lossy(&output.stderr);
            Error::Check(format!("h2load does not say {missing:?}: {text}{errors}"))
        })?;
        Ok(rate)
    }

    /// The rate, if everything was as it should be; else what h2load does not say.
    fn rate_in(&self, text: &str, requests: u64) -> Result<f64, String> {
        let bytes = requests * self.body_bytes;
        for line in [
            "TLS Protocol: TLSv1.3".to_owned(),
            format!("Cipher: {}", self.suite),
            "Server Temp Key: X25519 253 bits".to_owned(),
            "Application protocol: h2".to_owned(),
            format!(
                "requests: {requests} total, {requests} started, {requests} done, {requests} \
                 succeeded, 0 failed, 0 errored, 0 timeout"
            ),
            format!("status codes: {requests} 2xx, 0 3xx, 0 4xx, 0 5xx"),
        ] {
            if !text.lines().any(|said| said == line) {
                return Err(line);
            }
        }
        // As in: traffic: 57KB (58000) total, 23KB (23000) headers (...), 11KB (11000) data
        let data = format!("({bytes}) data");
        if !text.lines().any(|line| line.starts_with("traffic: ") && line.ends_with(&data)) {
            return Err(data);
        }
        let finished = text.lines().find_map(|line| line.strip_prefix("finished in "));
        let rate = finished.and_then(|line| line.split(", ").nth(1)?.strip_suffix(" req/s"));
        let rate: Option<f64> = rate.and_then(|rate| rate.parse().ok());
        rate.filter(|rate| *rate > 0.0).ok_or_else(|| "finished in".to_owned())
    }
}

/// Requests under way on each connection.
pub(super) const STREAMS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Server Temp Key: X25519 253 bits
Application protocol: h2

finished in 28.13ms, 35552.24 req/s, 1.30MB/s
requests: 1000 total, 1000 started, 1000 done, 1000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 1000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 36.93KB (37812) total, 11.73KB (12012) headers (space savings 91.43%), 10.74KB (11000) data
";

    fn client() -> Client {
        Client {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            suite: "TLS_AES_128_GCM_SHA256".into(),
            body_bytes: 11,
            connections: 16,
        }
    }

    #[test]
    fn a_rate_counts_if_every_answer_was_right() {
        assert_eq!(client().rate_in(SAID, 1_000), Ok(35_552.24));
        for (right, wrong) in [
            ("1000 2xx, 0 3xx, 0 4xx", "999 2xx, 0 3xx, 1 4xx"),
            ("0 failed", "1 failed"),
            ("(11000) data", "(10989) data"),
            ("X25519", "P-256"),
            ("AES_128", "AES_256"),
            ("protocol: h2", "protocol: http/1.1"),
            ("finished in", "aborted in"),
        ] {
            assert!(client().rate_in(&SAID.replace(right, wrong), 1_000).is_err(), "{wrong}");
        }
        assert!(client().rate_in(SAID, 999).is_err());
    }
}
