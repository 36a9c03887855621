//! PgBouncer in transaction mode in front of a PostgreSQL: every transaction may use another
//! connection.

use crate::port::free_port;
use crate::postmaster::{as_server, give};
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A running PgBouncer. Killed when dropped.
pub struct Bouncer {
    child: Child,
    port: u16,
    /// As in the server's URL, with its password.
    user: String,
    _folder: tempfile::TempDir,
}

/// Connections to the server: fewer than those of the server under test, so that they are really
/// shared.
const POOL_SIZE: usize = 5;

impl Bouncer {
    /// Starts PgBouncer in front of the server at this URL, for all of its databases.
    #[track_caller]
    pub fn before(server: &str) -> Bouncer {
        let config: postgres::Config = server.parse().unwrap_or_else(|error| panic!("{server}: {error}"));
        let Some(postgres::config::Host::Tcp(host)) = config.get_hosts().first() else {
            panic!("{server} names no host")
        };
        let (user, port) = (config.get_user().unwrap_or("postgres").to_owned(), config.get_ports()[0]);
        // PgBouncer accepts no empty password.
        let password = config.get_password().map(String::from_utf8_lossy);
        let password = password.map(|password| format!("password={password}")).unwrap_or_default();
        let folder =
            tempfile::Builder::new().prefix("forebay-bouncer-").tempdir_in("/tmp").expect("a folder");
        // PgBouncer accepts any password; the server itself does not.
        let login = server.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        let login = login.map_or_else(|| user.clone(), |(login, _)| login.to_owned());
        let (listen, file) = (free_port(), folder.path().join("pgbouncer.ini"));
        let text = format!(
            "[databases]\n* = host={host} port={port} user={user} {password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {listen}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\nmax_client_conn = 500\n"
        );
        std::fs::write(&file, text).expect("a file can be written");
        give(folder.path());
        give(&file);
        let log = File::create(folder.path().join("log")).expect("a log");
        let child = as_server(Path::new("/usr/sbin/pgbouncer"))
            .arg(&file)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("pgbouncer can be run; scripts/services up installs it");
        let bouncer = Bouncer { child, port: listen, user: login, _folder: folder };
        crate::wait_for("PgBouncer takes connections", || TcpStream::connect(("127.0.0.1", listen)).ok());
        bouncer
    }

    /// `database.url` of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}@127.0.0.1:{}/{database}?pooler=transaction", self.user, self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
