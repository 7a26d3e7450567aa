//! nginx from Debian's package, on loopback, in the foreground, with its own configuration and directory: a plain web server on
//! the same files. Settings are Debian's defaults without an access log; connections stay open while they are used, and upload
//! bodies are written to the disk on which they stay.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Daemon, find, install};
use crate::machine::processor_seconds;
use crate::site::wait_for;

const PACKAGE: &str = "nginx-light";
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Nginx {
    daemon: Daemon,
    pub version: String,
    /// `127.0.0.1:PORT`
    pub address: String,
}

impl Nginx {
    /// Serves `files` under `/files/`, as listings under `/list/`, and stores uploads to `/uploads/` in `directory`.
    pub fn start(directory: &Path, files: &Path) -> Result<Self> {
        if find("nginx").is_none() {
            install(PACKAGE)?;
        }
        let nginx = find("nginx").context("nginx is missing after its installation")?;
        let printed = Command::new(&nginx).arg("-v").output()?;
        let version = String::from_utf8_lossy(&printed.stderr).trim().rsplit('/').next().unwrap_or("?").to_owned();
        let directory = directory.join("nginx");
        fs::create_dir_all(directory.join("uploads"))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let configuration = directory.join("nginx.conf");
        fs::write(&configuration, configuration_text(&directory, files, &address))?;
        let daemon = Daemon::start(Command::new(&nginx).arg("-c").arg(&configuration))?;
        let up = wait_for("nginx", POLL_INTERVAL, || Ok(TcpStream::connect(&address).ok()));
        let log = || fs::read_to_string(directory.join("error.log")).unwrap_or_default();
        up.with_context(|| format!("nginx does not accept connections; its log: {}", log()))?;
        Ok(Self { daemon, version, address })
    }

    /// CPU time of its processes so far.
    pub fn processor_seconds(&self) -> Result<f64> {
        let main = self.daemon.id();
        let workers = fs::read_to_string(format!("/proc/{main}/task/{main}/children"))?;
        let workers = workers.split_whitespace().filter_map(|word| word.parse().ok());
        workers.chain([main]).map(processor_seconds).sum()
    }
}

fn configuration_text(directory: &Path, files: &Path, address: &str) -> String {
    // Workers must read files that only root may read, when the benchmark runs as root.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let (directory, files) = (directory.display(), files.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "scgi", "uwsgi"]
        .map(|name| format!("    {name}_temp_path {directory}/{name};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\nworker_processes auto;\npid {directory}/pid;\nerror_log {directory}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n    access_log off;\n    sendfile on;\n    tcp_nopush on;\n    keepalive_requests 1000000000;\n\
         client_max_body_size 0;\n    client_body_buffer_size 128k;\n{temporary}\
         server {{\n    listen {address};\n\
         location /files/ {{ alias {files}/; }}\n\
         location /list/ {{ alias {files}/; autoindex on; autoindex_format json; }}\n\
         location /uploads/ {{ alias {directory}/uploads/; dav_methods PUT DELETE; }}\n}}\n}}\n"
    )
}
