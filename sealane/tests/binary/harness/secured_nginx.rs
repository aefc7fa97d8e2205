//! A real nginx as the backend, under TLS.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::certificates::{Authority, KeyKind, NAMES};
use super::process::Process;
use super::tools::required;
use super::{PATIENCE, noise, wait_for};

/// A running nginx that speaks TLS, or nothing on a machine that has none.
pub struct SecuredNginx {
    process: Process,
    reserved: ReservedPort,
}

impl SecuredNginx {
    /// Starts nginx with a certificate that `inner` issued, and lets it sign; `more` is for its
    /// server block.
    pub fn start(folder: &Path, inner: &Authority, version: &str, more: &str) -> Option<Self> {
        let program = required("nginx")?;
        let reserved = ReservedPort::on_loopback().unwrap();
        std::fs::create_dir_all(folder.join("www")).unwrap();
        std::fs::write(folder.join("www/large"), noise(1_000_000, 3)).unwrap();
        std::fs::write(folder.join("leaf.pem"), inner.leaf(KeyKind::P256, &NAMES)).unwrap();
        inner.write(folder);
        let text = NGINX
            .replace("FOLDER", folder.to_str().unwrap())
            .replace("PORT", &reserved.address().port().to_string())
            .replace("VERSION", version)
            .replace("MORE", more);
        std::fs::write(folder.join("nginx.conf"), text).unwrap();
        let child = Command::new(program)
            .args(["-e", "stderr", "-g", "daemon off;", "-p"])
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { process: Process::new(child), reserved };
        wait_for("nginx listens", || TcpStream::connect(nginx.reserved.address()).ok());
        Some(nginx)
    }

    /// The address as it stands in a configuration.
    pub fn written(&self) -> String {
        format!("tls://{}", self.reserved.address())
    }
}

impl Drop for SecuredNginx {
    fn drop(&mut self) {
        if self.process.status().is_none() {
            self.process.signal(Signal::TERM);
            self.process.wait(PATIENCE);
        }
    }
}

const NGINX: &str = "
worker_processes 1;
master_process on;
pid FOLDER/nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  default_type text/plain;
  client_body_temp_path FOLDER/bodies;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  scgi_temp_path FOLDER/scgi;
  uwsgi_temp_path FOLDER/uwsgi;
  server {
    listen 127.0.0.1:PORT ssl;
    ssl_certificate FOLDER/leaf.pem;
    ssl_certificate_key FOLDER/leaf.pem;
    ssl_protocols VERSION;
    root FOLDER/www;
    MORE
    location = /reused { return 200 $ssl_session_reused; }
    location = /facts { return 200 \"$ssl_protocol $ssl_alpn_protocol $ssl_server_name\"; }
    location = /client { return 200 \"$ssl_client_verify $ssl_client_s_dn\"; }
  }
}
";
