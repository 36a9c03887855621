//! The database's URL: separates PostgreSQL's parameters from ours, and refuses all others.
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?name=value&…`; a folder with a Unix socket is
//! `?host=/run/postgresql`. Every parameter is known by name, an unknown one is an error. [`Settings::shown`]
//! is the URL for people: it contains no password.

use super::errors;
use crate::limits::{
    KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, POOL_DEFAULT, POOL_MAX, POOL_MIN,
    STATEMENT_TIMEOUT_MS_MAX, TCP_USER_TIMEOUT_MS,
};
use crate::{Error, Kind};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How the connection is encrypted, and whether the server's identity is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tls {
    /// Never encrypted.
    Disable,
    /// Encrypted when the server supports it, without verification. libpq's default, and what a Unix socket
    /// ignores.
    Prefer,
    /// Always encrypted; the certificate must be for this host and from a trusted authority.
    Verify,
    /// Always encrypted, whatever certificate the server presents.
    Insecure,
}

impl Tls {
    fn mode(&self) -> SslMode {
        match self {
            Tls::Disable => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Verify | Tls::Insecure => SslMode::Require,
        }
    }
}

/// Whether connections are PostgreSQL's own, or those of a pooler that may assign another one to each
/// transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooler {
    None,
    /// PgBouncer's transaction mode: nothing may outlive a transaction.
    Transaction,
}

/// How other programs' changes to followed tables are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowBy {
    /// Logical decoding where it is available, otherwise triggers.
    Any,
    /// Logical decoding; where it is not available, nothing is followed, and a start reports why.
    Logical,
    Triggers,
}

/// The settings of a URL.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) tls: Tls,
    /// A file of certificates to trust instead of the system's.
    pub(super) root_certificates: Option<String>,
    pub(super) pooler: Pooler,
    pub(super) follow: FollowBy,
    /// How to reach the server itself, when the URL is a pooler's: for logical decoding, which no pooler
    /// supports.
    pub(super) direct: Option<Box<Settings>>,
    /// Connections at most; `None`: as many as the default and the server's `max_connections` allow.
    pub(super) pool_size: Option<usize>,
    /// Overrides [`crate::Options::statement_timeout_ms`].
    pub(super) statement_timeout_ms: Option<u64>,
    /// The schema of our tables, instead of the one that the search path gives.
    pub(super) own_schema: Option<String>,
}

/// PostgreSQL's own parameters that are passed on.
const PASSED_ON: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "application_name",
    "connect_timeout",
    "options",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "tcp_user_timeout",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Our parameters, and PostgreSQL's parameters with a further meaning here.
const OWN: &[&str] =
    &["sslmode", "sslrootcert", "pooler", "direct", "pool_size", "statement_timeout", "follow", "own_schema"];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Settings {
    /// Reads a URL.
    pub(super) fn parse(url: &str) -> Result<Settings, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut passed_on = Vec::new();
        let mut settings = Settings {
            config: Config::new(),
            tls: Tls::Prefer,
            root_certificates: None,
            pooler: Pooler::None,
            follow: FollowBy::Any,
            direct: None,
            pool_size: None,
            statement_timeout_ms: None,
            own_schema: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if PASSED_ON.contains(&name) {
                passed_on.push(pair);
            } else if name == "direct" {
                let direct = Settings::parse(&direct_url(base, query, value)?)?;
                settings.direct = Some(Box::new(direct));
            } else {
                settings.take(name, &decoded(value))?;
            }
        }
        let rest = format!("{base}?{}", passed_on.join("&"));
        settings.config = rest.parse().map_err(|source: tokio_postgres::Error| {
            // The source names the mistake, and quotes no password.
            let why = std::error::Error::source(&source).map_or_else(String::new, |why| format!(": {why}"));
            bad(format!("it cannot be read{why}"))
        })?;
        let config = &mut settings.config;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad(
                "it names no host; write postgres://USER@HOST/DATABASE, or ?host=/run/postgresql for a Unix socket",
            ));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let says = |name: &str| passed_on.iter().any(|pair| pair.starts_with(&format!("{name}=")));
        // In milliseconds, as in libpq; the client library takes a duration. 0 is the system's default.
        let said_ms = passed_on.iter().find_map(|pair| pair.strip_prefix("tcp_user_timeout="));
        match said_ms.map_or(Ok(TCP_USER_TIMEOUT_MS), str::parse) {
            Ok(0) => {}
            Ok(ms) => drop(config.tcp_user_timeout(Duration::from_millis(ms))),
            Err(_) => return Err(bad("tcp_user_timeout is no number of milliseconds")),
        }
        if !says("keepalives_idle") {
            config.keepalives_idle(Duration::from_secs(KEEPALIVE_IDLE_S));
        }
        if !says("keepalives_interval") {
            config.keepalives_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S));
        }
        if !says("keepalives_retries") {
            config.keepalives_retries(KEEPALIVE_PROBES);
        }
        if !says("target_session_attrs") && config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
            // After a failover another host is the primary.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("forebay");
        }
        config.ssl_mode(settings.tls.mode());
        Ok(settings)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match (name, value) {
            ("sslmode", "disable") => self.tls = Tls::Disable,
            ("sslmode", "prefer") => self.tls = Tls::Prefer,
            ("sslmode", "require" | "verify-full") => self.tls = Tls::Verify,
            ("sslmode", "require-insecure") => self.tls = Tls::Insecure,
            ("sslmode", _) => {
                return Err(bad(
                    "sslmode must be disable, prefer, require or verify-full (both check the certificate and its host), or \
                     require-insecure (encrypted, nothing checked)",
                ));
            }
            ("sslrootcert", "") => return Err(bad("sslrootcert must name a file of certificates")),
            ("sslrootcert", path) => self.root_certificates = Some(path.to_owned()),
            ("pooler", "none") => self.pooler = Pooler::None,
            ("pooler", "transaction") => self.pooler = Pooler::Transaction,
            ("pooler", _) => {
                return Err(bad("pooler must be none, or transaction for PgBouncer in that mode"));
            }
            ("follow", "logical") => self.follow = FollowBy::Logical,
            ("follow", "triggers") => self.follow = FollowBy::Triggers,
            ("follow", _) => {
                return Err(bad(
                    "follow must be logical or triggers, or left out: logical decoding where it can be had",
                ));
            }
            ("pool_size", _) => {
                let size = value.parse().ok().filter(|size| (POOL_MIN..=POOL_MAX).contains(size));
                let expected = || bad(format!("pool_size must be a number from {POOL_MIN} to {POOL_MAX}"));
                self.pool_size = Some(size.ok_or_else(expected)?);
            }
            ("own_schema", _) => {
                let is_plain = |at: char| at.is_ascii_lowercase() || at.is_ascii_digit() || at == '_';
                let is_name = value.starts_with('_') && value.len() <= 63 && value.chars().all(is_plain);
                let expected = "own_schema must begin with _ and consist of a-z, 0-9 and _, 63 at most";
                self.own_schema = Some(is_name.then(|| value.to_owned()).ok_or_else(|| bad(expected))?);
            }
            ("statement_timeout", _) => {
                let expected =
                    || bad("statement_timeout must be a time such as 5s or 500ms, an hour at most");
                self.statement_timeout_ms = Some(duration_ms(value).ok_or_else(expected)?);
            }
            _ => {
                let known = [OWN, PASSED_ON].concat().join(", ");
                return Err(bad(format!("the parameter {name} is not known; there are {known}")));
            }
        }
        Ok(())
    }

    /// Why connecting failed, in one line that names what to check.
    pub(super) fn explained(&self, error: tokio_postgres::Error) -> Error {
        let url = self.shown();
        let user = self.config.get_user().unwrap_or("the user");
        let mut causes = String::new();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            causes = format!("{causes}: {cause}");
            source = cause.source();
        }
        let what = match error.code().map(|code| code.code()) {
            Some("28P01") => format!("the password for {user} is wrong"),
            Some("3D000") => {
                let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("");
                format!("there is no database {database}; create it, or name another one")
            }
            Some("53300") => {
                "its max_connections is used up; close others, raise it, or give this pool_size=N in the URL"
                    .into()
            }
            Some(_) => errors::map_message(&error),
            None => format!("{error}{causes}"),
        };
        Error::new(Kind::Unavailable, format!("cannot connect to {url}: {what}")).with_source(error)
    }

    /// The URL for people: host, database and user.
    pub(super) fn shown(&self) -> String {
        let config = &self.config;
        let port = |index: usize| {
            config.get_ports().get(index).or(config.get_ports().first()).copied().unwrap_or(5432)
        };
        let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{}", folder.display(), port(index)),
        });
        let mut hosts: Vec<String> = hosts.collect();
        if hosts.is_empty() {
            hosts = config.get_hostaddrs().iter().map(|address| format!("{address}:{}", port(0))).collect();
        }
        let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
        let database = config.get_dbname().or(config.get_user()).unwrap_or("");
        format!("postgres://{user}{}/{database}", hosts.join(","))
    }

    /// The number of connections requested.
    pub(super) fn pool_wanted(&self) -> usize {
        self.pool_size.unwrap_or(POOL_DEFAULT)
    }
}

/// The same URL with another host, and without the pooler.
fn direct_url(base: &str, query: &str, host: &str) -> Result<String, Error> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', '?', ',', ' ']);
    let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_host(host) {
        return Err(bad("direct must be HOST or HOST:PORT, of the server behind the pooler"));
    }
    let user = authority.rsplit_once('@').map_or_else(String::new, |(user, _)| format!("{user}@"));
    let stays = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !["direct", "pooler", "host", "hostaddr", "port"].contains(&name)
    };
    let query: Vec<&str> = query.split('&').filter(stays).collect();
    Ok(format!("{scheme}://{user}{host}/{path}?{}", query.join("&")))
}

fn bad(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Url, format!("cannot use the database's URL: {what}"))
}

/// A number with the unit ms, s or min; without a unit in milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..split].parse().ok()?;
    let factor = match &text[split..] {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        _ => return None,
    };
    number.checked_mul(factor).filter(|ms| (1..=STATEMENT_TIMEOUT_MS_MAX).contains(ms))
}

/// Decodes percent encoding; an invalid escape stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_what_people_see_of_them() {
        for (url, expected) in [
            ("postgres://u:secret@h/db", "postgres://u@h:5432/db"),
            ("postgresql://u:secret@h:6543/db?sslmode=require&pool_size=8", "postgres://u@h:6543/db"),
            ("postgres://u:secret@/db?host=/tmp/x&port=5433", "postgres://u@/tmp/x:5433/db"),
            ("postgres://u@a,b:1/db?statement_timeout=2s&pooler=transaction", "postgres://u@a:5432,b:1/db"),
        ] {
            assert_eq!(Settings::parse(url).unwrap().shown(), expected, "{url}");
        }
        let pooled =
            "postgres://u:p%40ss@pool:6432/db?pooler=transaction&direct=server:5433&host=other&pool_size=4";
        let direct = Settings::parse(pooled).unwrap().direct.unwrap();
        assert_eq!(direct.shown(), "postgres://u@server:5433/db");
        assert_eq!((direct.pooler, direct.pool_size), (Pooler::None, Some(4)));
        assert_eq!(direct.config.get_password(), Some(&b"p@ss"[..]));
        let all = Settings::parse(
            "postgres://h/d?sslmode=verify-full&sslrootcert=%2Fa%20b&statement_timeout=2min&pool_size=3",
        )
        .unwrap();
        assert_eq!((all.tls, all.root_certificates.as_deref()), (Tls::Verify, Some("/a b")));
        assert_eq!((all.statement_timeout_ms, all.pool_size), (Some(120_000), Some(3)));
    }

    #[test]
    fn a_connection_that_is_dead_is_given_up_and_of_several_hosts_the_primary_is_taken() {
        let of = |url: &str| Settings::parse(url).unwrap().config;
        let own = of("postgres://u@h/db");
        assert_eq!(own.get_tcp_user_timeout(), Some(&Duration::from_millis(TCP_USER_TIMEOUT_MS)));
        assert_eq!(own.get_keepalives_idle(), Duration::from_secs(KEEPALIVE_IDLE_S));
        assert_eq!(own.get_target_session_attrs(), TargetSessionAttrs::Any);
        let theirs = of("postgres://u@h,g/db?tcp_user_timeout=7&keepalives_idle=8");
        assert_eq!(theirs.get_tcp_user_timeout(), Some(&Duration::from_millis(7)));
        assert_eq!(theirs.get_keepalives_idle(), Duration::from_secs(8));
        assert_eq!(theirs.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let any = of("postgres://u@h,g/db?target_session_attrs=any");
        assert_eq!(any.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, part) in [
            ("postgres://u:secret@h/db?sslmod=require", "the parameter sslmod is not known"),
            ("postgres://u:secret@h/db?sslmode=verify-ca", "sslmode must be"),
            ("postgres://u:secret@h/db?pool_size=2", "pool_size must be a number from 3"),
            ("postgres://u:secret@h/db?pooler=session", "pooler must be"),
            ("postgres://u:secret@h/db?follow=slot", "follow must be logical or triggers"),
            ("postgres://u:secret@h/db?pooler=transaction&direct=", "direct must be HOST or HOST:PORT"),
            ("postgres://u:secret@h/db?direct=a,b", "direct must be HOST or HOST:PORT"),
            ("postgres://u:secret@h/db?statement_timeout=soon", "statement_timeout must be"),
            ("postgres://u:secret@h:port/db", "cannot be read"),
            ("postgres:///db", "names no host"),
        ] {
            let error = Settings::parse(url).unwrap_err();
            assert!(error.message().contains(part) && !error.message().contains("secret"), "{url}: {error}");
        }
    }
}
