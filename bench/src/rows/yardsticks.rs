//! Other servers that rows are compared with: nginx, HAProxy, Varnish, on one core with one process.

use super::peers::stores::{free_address, wait_until};
use crate::process::{Bench, succeeded};
use forebay_tests::Folder;
use std::error::Error;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server in its own folder; stopped when dropped.
pub struct Yardstick {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    _folder: Folder,
}

impl Yardstick {
    /// The process that serves.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The single child process, which serves.
    pub fn child_pid(&self) -> Result<u32, Box<dyn Error>> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(children.split_whitespace().next().ok_or("it has started no process")?.parse()?)
    }

    /// Starts a program; `arguments` builds its arguments from its folder and address.
    pub fn start(
        bench: &Bench,
        program: &str,
        core: usize,
        arguments: impl FnOnce(&Path, SocketAddr) -> Result<Vec<String>, Box<dyn Error>>,
    ) -> Result<Yardstick, Box<dyn Error>> {
        let (folder, address) = (Folder::new(), free_address()?);
        let arguments = arguments(folder.path(), address)?;
        let mut child = bench
            .pinned(program, Some(core))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{program}: {error}; install it to measure beside it"))?;
        wait_until(program, &mut child, || TcpStream::connect(address).is_ok())?;
        Ok(Yardstick { child, address, _folder: folder })
    }

    /// nginx with these directives of `http`, built from its folder and address. One process in the
    /// foreground, with persistent connections and no access log.
    pub fn nginx(
        bench: &Bench,
        core: usize,
        http: impl FnOnce(&Path, SocketAddr) -> Result<String, Box<dyn Error>>,
    ) -> Result<Yardstick, Box<dyn Error>> {
        Yardstick::start(bench, "nginx", core, |folder, address| {
            let http = http(folder, address)?;
            let file = folder.join("nginx.conf");
            let at = folder.display();
            let config = format!(
                "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 65536; pid {at}/pid;
                events {{ worker_connections 4096; }}
                http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {at}/a;
                proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;
                {http} }}"
            );
            fs::write(&file, config)?;
            let log = folder.join("error.log");
            Ok(["-p", &at.to_string(), "-c", &file.display().to_string(), "-e", &log.display().to_string()]
                .map(str::to_owned)
                .to_vec())
        })
    }
}

impl Drop for Yardstick {
    fn drop(&mut self) {
        // One process in the foreground; Varnish's child ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a self-signed `cert.pem` with its `key.pem` (P-256).
pub fn certificate(folder: &Path) -> Result<(), Box<dyn Error>> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output()
        .map_err(|error| format!("openssl: {error}; install it to make a certificate"))?;
    succeeded(&made)
}

/// Directives with which nginx answers over TLS as Forebay answers `SIMPLE`; `listen` may include
/// protocols.
pub fn simple_by_tls(folder: &Path, listen: &str) -> String {
    let at = folder.display();
    format!(
        "server {{ {listen} ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem;
        location / {{ default_type application/json; return 200 '{{\"message\":\"hi\"}}'; }} }}"
    )
}
