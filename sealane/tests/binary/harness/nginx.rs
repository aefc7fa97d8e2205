//! A real nginx as the backend, for HTTP/1.1 and for HTTP/2 without TLS.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sealane_reserved_port::ReservedPort;

use super::process::Process;
use super::{noise, sha256, wait_for};

/// A running nginx, with its files.
pub struct Nginx {
    process: Process,
    /// Speaks HTTP/1.1.
    pub http1: u16,
    /// Speaks HTTP/2 from the first byte. One port for both takes nginx 1.25.1.
    pub http2: u16,
    folder: PathBuf,
    reserved: [ReservedPort; 3],
}

impl Nginx {
    /// Starts it with `/1`, `/1000000` and so on: a file of that many bytes for each of `sizes`,
    /// and `/upload`, which keeps what it is sent in a file.
    pub fn start(folder: &Path, sizes: &[usize]) -> Self {
        let folder = folder.join("nginx");
        std::fs::create_dir_all(folder.join("www")).unwrap();
        std::fs::create_dir_all(folder.join("bodies")).unwrap();
        for size in sizes {
            let bytes = noise(*size, *size as u64);
            std::fs::write(folder.join("www").join(size.to_string()), bytes).unwrap();
        }
        std::fs::write(folder.join("www/page.html"), PAGE).unwrap();
        let reserved = [(); 3].map(|()| ReservedPort::on_loopback().unwrap());
        let [http1, http2, taken] = [0, 1, 2].map(|i| reserved[i].address().port());
        let text = CONFIG
            .replace("FOLDER", folder.to_str().unwrap())
            .replace("HTTP1", &http1.to_string())
            .replace("HTTP2", &http2.to_string())
            .replace("TAKEN", &taken.to_string());
        std::fs::write(folder.join("nginx.conf"), text).unwrap();
        let nginx = Command::new(super::tools::path("nginx").expect("nginx is not installed"))
            .args(["-e", "stderr", "-g", "daemon off;", "-p"])
            .arg(&folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::new(nginx);
        let nginx = Self { process, http1, http2, folder, reserved };
        for port in [http1, http2] {
            wait_for("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        }
        nginx
    }

    /// The hash of the file of `size` bytes.
    pub fn hash_of(&self, size: usize) -> String {
        sha256(&std::fs::read(self.folder.join("www").join(size.to_string())).unwrap())
    }

    /// The hash of what an upload brought, named by the answer to it; the file is removed.
    pub fn hash_of_upload(&self, answer: &str) -> String {
        let path = Path::new(answer.trim());
        assert!(path.starts_with(self.folder.join("bodies")), "not an upload's answer: {answer:?}");
        let hash = sha256(&std::fs::read(path).unwrap());
        std::fs::remove_file(path).unwrap();
        hash
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers; killed, it would leave them behind.
        if self.process.status().is_none() {
            self.process.signal(rustix::process::Signal::TERM);
            self.process.wait(super::PATIENCE);
        }
    }
}

/// A page that says by which protocol the browser got it.
const PAGE: &str = "<!doctype html><title>Sealane</title><p id=protocol>no script ran</p><script>
const entry = performance.getEntriesByType('navigation')[0];
document.getElementById('protocol').textContent =
  `protocol=${entry.nextHopProtocol} secure=${isSecureContext} scheme=${location.protocol}`;
</script>
";

const CONFIG: &str = "
worker_processes 1;
master_process on;
pid FOLDER/nginx.pid;
events { worker_connections 4096; }
http {
  access_log off;
  types { text/html html; }
  default_type application/octet-stream;
  client_max_body_size 0;
  client_body_temp_path FOLDER/bodies;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  scgi_temp_path FOLDER/scgi;
  uwsgi_temp_path FOLDER/uwsgi;
  keepalive_requests 100000;
  server {
    listen 127.0.0.1:HTTP1;
    listen 127.0.0.1:HTTP2 http2;
    root FOLDER/www;
    add_header X-Protocol $server_protocol always;
    location = /upload {
      client_body_in_file_only on;
      proxy_set_body off;
      proxy_set_header X-Body-File $request_body_file;
      proxy_pass http://127.0.0.1:TAKEN;
    }
  }
  # Answers an upload once its body is in a file, whose name it says.
  server {
    listen 127.0.0.1:TAKEN;
    location / { return 200 $http_x_body_file; }
  }
}
";
