//! What to type to see the demo: lines for a shell that work as they are, with verification.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use sealane_config::Address;

/// What runs, and how to look at it.
pub(super) struct Invitation<'a> {
    /// The CA's certificate.
    pub(super) ca: &'a Path,
    /// How many lanes there are.
    pub(super) lanes: usize,
    /// Where the terminator listens.
    pub(super) listening: SocketAddr,
    /// Where metrics are.
    pub(super) metrics: Option<&'a Address>,
}

impl Invitation<'_> {
    /// The page's address by its name in the certificate.
    pub(super) fn url(&self) -> String {
        format!("https://{SERVER_NAME}:{}/", self.listening.port())
    }

    /// Where to connect to: an address that stands for all is none to connect to.
    pub(super) fn address(&self) -> SocketAddr {
        let ip = match self.listening.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.listening.port())
    }

    /// The arguments of a curl that fetches the page and verifies it.
    pub(super) fn curl_arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--cacert".to_owned(), self.ca.to_string_lossy().into_owned()];
        // The name stands for an address of IPv4 and one of IPv6, and at the other one somebody
        // else may listen on the same port.
        arguments.extend(["--connect-to".to_owned(), format!("::{}", self.address())]);
        if PROXY_VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
            arguments.extend(["--noproxy", SERVER_NAME].map(str::to_owned));
        }
        arguments.push(self.url());
        arguments
    }
}

impl fmt::Display for Invitation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.lanes == 1 { "" } else { "s" };
        writeln!(f, "\nSealane ends TLS on {} with {} lane{plural}.", self.url(), self.lanes)?;
        let curl: Vec<_> = self.curl_arguments().iter().map(|text| quoted(text)).collect();
        writeln!(f, "Try it; each line verifies the certificate:\n\n  curl {}", curl.join(" "))?;
        let (address, ca) = (self.address(), quoted(&self.ca.to_string_lossy()));
        writeln!(
            f,
            "  openssl s_client -connect {address} -servername {SERVER_NAME} -CAfile {ca} \
             -verify_return_error"
        )?;
        if let Some(metrics) = self.metrics {
            writeln!(f, "\nMetrics, health and state:\n\n  curl http://{metrics}/metrics")?;
        }
        writeln!(f, "\nA browser shows the page too, once it trusts {}.", self.ca.display())?;
        writeln!(f, "Ctrl-C ends it.\n")
    }
}

/// The text as a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The name that is asked for.
pub(super) const SERVER_NAME: &str = "localhost";

/// With one of these, curl would ask a proxy for a page of this machine.
const PROXY_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(listening: &str) -> String {
        let metrics = Address::Tcp("127.0.0.1:9".parse().unwrap());
        let listening = listening.parse().unwrap();
        let ca = Path::new("it's here/ca.pem");
        Invitation { ca, lanes: 1, listening, metrics: Some(&metrics) }.to_string()
    }

    #[test]
    fn lines_work_as_they_are() {
        let text = lines("127.0.0.1:8443");
        assert!(text.contains(r"  curl --cacert 'it'\''s here/ca.pem' "), "{text}");
        assert!(text.contains(" https://localhost:8443/\n"), "{text}");
        assert!(text.contains(" -connect 127.0.0.1:8443 -servername localhost "), "{text}");
        assert!(text.contains("\n  curl http://127.0.0.1:9/metrics\n"), "{text}");
        assert!(text.contains(" with 1 lane."), "{text}");
    }

    #[test]
    fn nobody_else_can_answer() {
        for (listening, connect) in [
            ("127.0.0.1:8443", "--connect-to ::127.0.0.1:8443 "),
            ("[::1]:8443", "--connect-to '::[::1]:8443' "),
            ("0.0.0.0:8443", "-connect 127.0.0.1:8443 "),
            ("[::]:8443", "-connect [::1]:8443 "),
            ("127.0.0.9:8443", "--connect-to ::127.0.0.9:8443 "),
            ("[fd00::1]:8443", "--connect-to '::[fd00::1]:8443' "),
        ] {
            let text = lines(listening);
            assert!(text.contains(connect), "{connect} in {text}");
        }
    }
}
