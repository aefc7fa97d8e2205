//! Real servers that read a PROXY header, and answer each request with what they read, or log it.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use super::peers::quiet;
use super::process::Process;
use super::tools::{output, required};
use super::{PATIENCE, wait_for};

/// A running server.
pub struct HeaderReader {
    port: ReservedPort,
    process: Process,
}

impl HeaderReader {
    /// Writes into `dovecot.log` which user a client of IMAP is by its certificate, its address and
    /// port, those that it connected to, and whether it came in TLS.
    pub fn dovecot(folder: &Path) -> Option<Self> {
        let file = folder.join("dovecot.conf");
        let mail = folder.join("mail");
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(&mail).unwrap();
        // Of whichever user.
        std::fs::set_permissions(&mail, PermissionsExt::from_mode(0o777)).unwrap();
        let [user, group] = user_and_group();
        let config = DOVECOT.replace("USER", &user).replace("GROUP", &group);
        let config = config.replace("FOLDER", folder.to_str().unwrap());
        Self::start("dovecot", &file, &config, |command, _| {
            command.args(["-F", "-c"]).arg(&file);
        })
    }

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
        let config = config.replace("ADDRESS", &address.to_string());
        std::fs::write(file, config.replace("PORT", &address.port().to_string())).unwrap();
        arguments(&mut command, address);
        let process = quiet(&mut command);
        wait_for("the server listens", || TcpStream::connect(address).ok());
        Some(Self { port, process })
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

impl Drop for HeaderReader {
    fn drop(&mut self) {
        // Varnish and Dovecot end their children; killed, they would leave them behind.
        if self.process.status().is_none() {
            self.process.signal(Signal::TERM);
            self.process.wait(PATIENCE);
        }
    }
}

/// Whom a server becomes that changes its user: nobody, or who this is already.
fn user_and_group() -> [String; 2] {
    if rustix::process::geteuid().is_root() {
        return ["nobody", "nogroup"].map(ToOwned::to_owned);
    }
    ["-un", "-gn"].map(|which| output(Command::new("id").arg(which)).trim_end().to_owned())
}

const DOVECOT: &str = "protocols = imap
base_dir = FOLDER/dovecot
state_dir = FOLDER/dovecot
log_path = FOLDER/dovecot.log
login_log_format_elements = %u %m %r:%{rport} %l:%a %c
mail_location = maildir:~
default_login_user = USER
default_internal_user = USER
default_internal_group = GROUP
first_valid_uid = 1
ssl = no
haproxy_trusted_networks = 127.0.0.0/8
auth_mechanisms = external
auth_ssl_username_from_cert = yes
auth_failure_delay = 0
passdb {
  driver = static
  args = nopassword=y
}
userdb {
  driver = static
  args = uid=USER gid=GROUP home=FOLDER/mail
}
service anvil {
  chroot =
}
service imap-login {
  chroot =
  inet_listener imap {
    address = 127.0.0.1
    port = PORT
    haproxy = yes
  }
  inet_listener imaps {
    port = 0
  }
}
";

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
