//! Real servers that read a PROXY header, and answer each request with what they read.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::process::Process;
use super::tools::required;
use super::{PATIENCE, wait_for};

/// A running server.
pub struct HeaderReader {
    port: ReservedPort,
    process: Process,
}

impl HeaderReader {
    /// Answers with the client's address, its port, the port that it connected to, and the server
    /// name.
    pub fn haproxy(folder: &Path) -> Option<Self> {
        let file = folder.join("haproxy-reader.cfg");
        Self::start("haproxy", &file, HAPROXY, |command, _| {
            command.args(["-db", "-f"]).arg(&file);
        })
    }

    /// Answers with the client's address, its port and the port that it connected to.
    pub fn nginx(folder: &Path) -> Option<Self> {
        let file = folder.join("nginx-reader.conf");
        Self::start("nginx", &file, NGINX, |command, _| {
            command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
        })
    }

    /// Answers with all that its module `proxy` reads, as name=value.
    pub fn varnish(folder: &Path) -> Option<Self> {
        let file = folder.join("reader.vcl");
        Self::start("varnishd", &file, VARNISH, |command, address| {
            // Without its jail: its user could not enter the test's folder.
            command.args(["-F", "-j", "none", "-s", "malloc,8m", "-a"]);
            command.arg(format!("{address},PROXY")).arg("-f").arg(&file);
            command.arg("-n").arg(folder.join("varnish"));
        })
    }

    fn start(
        program: &str,
        file: &Path,
        config: &str,
        arguments: impl FnOnce(&mut Command, SocketAddr),
    ) -> Option<Self> {
        let mut command = Command::new(required(program)?);
        let port = ReservedPort::on_loopback().unwrap();
        let address = port.address();
        std::fs::write(file, config.replace("ADDRESS", &address.to_string())).unwrap();
        arguments(&mut command, address);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::new(child);
        wait_for("the server listens", || TcpStream::connect(address).ok());
        Some(Self { port, process })
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

impl Drop for HeaderReader {
    fn drop(&mut self) {
        // Varnish ends its child; killed, it would leave it behind.
        if self.process.status().is_none() {
            self.process.signal(Signal::TERM);
            self.process.wait(PATIENCE);
        }
    }
}

const HAPROXY: &str = "defaults
 mode http
 timeout connect 10s
 timeout client 60s
 timeout server 60s
frontend f
 bind ADDRESS accept-proxy
 http-request return status 200 content-type text/plain lf-string \
\"%[src] %[src_port] %[dst_port] %[fc_pp_authority]\"
";

const NGINX: &str = "daemon off;
master_process off;
pid nginx-reader.pid;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen ADDRESS proxy_protocol;
    location / {
      return 200 \"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port\";
    }
  }
}
";

const VARNISH: &str = "vcl 4.1;
import proxy;
backend none none;
sub vcl_recv { return (synth(200)); }
sub vcl_synth {
  set resp.body = \"alpn=\" + proxy.alpn() + \" authority=\" + proxy.authority()
    + \" version=\" + proxy.ssl_version() + \" cipher=\" + proxy.ssl_cipher()
    + \" key=\" + proxy.cert_key() + \" sign=\" + proxy.cert_sign()
    + \" cn=\" + proxy.client_cert_cn() + \" conn=\" + proxy.client_has_cert_conn()
    + \" sess=\" + proxy.client_has_cert_sess() + \" verify=\" + proxy.ssl_verify_result();
  return (deliver);
}
";
