//! Parses a URL. No message and no `Debug` output shows a password.

use crate::addresses::Address;
use crate::error::{Error, Kind};
use crate::options::{Options, ReadFrom};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// User and password for AUTH.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// The kind of topology, from the URL's scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scheme {
    Plain,
    Cluster,
    Sentinel { master: String },
}

/// The paths of the TLS files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// A parsed and checked URL.
#[derive(Clone)]
pub(crate) struct RedisUrl {
    pub(crate) scheme: Scheme,
    pub(crate) addresses: Vec<Address>,
    pub(crate) login: Login,
    pub(crate) sentinel_login: Login,
    pub(crate) database: u32,
    pub(crate) tls: Option<TlsFiles>,
}

const SCHEMES: &str = "redis://, rediss:// (TLS), redis+unix://, redis-cluster://, rediss-cluster://, \
                       redis-sentinel:// or rediss-sentinel://";
const SETTINGS: &str = "read_from, connect_timeout_ms, response_timeout_ms, wait_timeout_ms, ca, certificate, key, \
                        sentinel_user, sentinel_password, db";

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("scheme", &self.scheme)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(Kind::Url, what)
}

/// Parses a URL; its settings change `options`.
///
/// # Errors
/// [`Kind::Url`] with a sentence that names the mistake, never the password.
pub(crate) fn parse(url: &str, options: &mut Options) -> Result<RedisUrl, Error> {
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| wrong(format!("the Redis URL needs a scheme: {SCHEMES}")))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (parse_login(login)?, place),
        None => (Login::default(), rest),
    };
    let mut target = RedisUrl {
        scheme: Scheme::Plain,
        addresses: Vec::new(),
        login,
        sentinel_login: Login::default(),
        database: 0,
        tls: scheme.starts_with("rediss").then(TlsFiles::default),
    };
    if scheme == "redis+unix" || scheme == "unix" {
        target.addresses = vec![Address::Unix(Arc::new(PathBuf::from(decode(place)?)))];
    } else {
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let default_port = if scheme.ends_with("-sentinel") { 26_379 } else { 6_379 };
        target.addresses =
            hosts.split(',').map(|host| parse_host(host, default_port)).collect::<Result<_, _>>()?;
        target.scheme = parse_scheme(scheme, path, &mut target.database)?;
        if target.scheme == Scheme::Plain && target.addresses.len() > 1 {
            return Err(wrong(
                "redis:// has one host: for several use redis-cluster:// or redis-sentinel://",
            ));
        }
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        apply(&mut target, options, name, decode(value)?)?;
    }
    if target.scheme == Scheme::Cluster && target.database != 0 {
        return Err(wrong("a cluster has only database 0"));
    }
    Ok(target)
}

fn parse_scheme(scheme: &str, path: &str, database: &mut u32) -> Result<Scheme, Error> {
    match scheme {
        "redis" | "rediss" => {
            if !path.is_empty() {
                *database = number("the database after the /", path)?;
            }
            Ok(Scheme::Plain)
        }
        "redis-cluster" | "rediss-cluster" if path.is_empty() => Ok(Scheme::Cluster),
        "redis-cluster" | "rediss-cluster" => {
            Err(wrong("a cluster has only database 0: leave out what follows the hosts"))
        }
        "redis-sentinel" | "rediss-sentinel" => {
            let (master, db) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err(wrong("the master's name is missing: redis-sentinel://host:26379/name"));
            }
            if !db.is_empty() {
                *database = number("the database after the master's name", db)?;
            }
            Ok(Scheme::Sentinel { master: decode(master)? })
        }
        other => Err(wrong(format!("{other}:// is not a way to reach Redis: use {SCHEMES}"))),
    }
}

fn parse_login(text: &str) -> Result<Login, Error> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (text, None),
    };
    let user = (!user.is_empty()).then(|| decode(user)).transpose()?;
    match (user, password) {
        (Some(_), None) => {
            Err(wrong("the URL has a user but no password: write user:password@ or :password@"))
        }
        (user, password) => Ok(Login { user, password }),
    }
}

fn parse_host(text: &str, default_port: u16) -> Result<Address, Error> {
    let (host, port) = match text.rfind(':') {
        // The last colon of a bracketed IPv6 address without a port is inside the brackets.
        Some(at) if !text.ends_with(']') => (
            &text[..at],
            text[at + 1..].parse().map_err(|_| wrong(format!("{:?} is not a port", &text[at + 1..])))?,
        ),
        _ => (text, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong("the Redis URL has no host"));
    }
    Ok(Address::tcp(host, port))
}

fn apply(target: &mut RedisUrl, options: &mut Options, name: &str, value: String) -> Result<(), Error> {
    let tls = |target: &mut RedisUrl, set: fn(&mut TlsFiles, PathBuf)| match &mut target.tls {
        Some(files) => {
            set(files, PathBuf::from(&value));
            Ok(())
        }
        None => Err(wrong(format!("{name} needs a rediss URL"))),
    };
    match name {
        "read_from" => {
            options.read_from = match value.as_str() {
                "primary" => ReadFrom::Primary,
                "replicas" => ReadFrom::Replicas,
                other => return Err(wrong(format!("read_from is primary or replicas, not {other:?}"))),
            }
        }
        "connect_timeout_ms" => options.connect_timeout_ms = number(name, &value)?,
        "response_timeout_ms" => options.response_timeout_ms = number(name, &value)?,
        "wait_timeout_ms" => options.wait_timeout_ms = number(name, &value)?,
        "db" => target.database = number(name, &value)?,
        "sentinel_user" => target.sentinel_login.user = Some(value),
        "sentinel_password" => target.sentinel_login.password = Some(value),
        "ca" => tls(target, |files, path| files.ca = Some(path))?,
        "certificate" => tls(target, |files, path| files.certificate = Some(path))?,
        "key" => tls(target, |files, path| files.key = Some(path))?,
        other => {
            return Err(wrong(format!("unknown setting {other:?} in the Redis URL: known are {SETTINGS}")));
        }
    }
    Ok(())
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| wrong(format!("{name} must be a whole number, not {value:?}")))
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| wrong("the Redis URL is not UTF-8 when decoded"))?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(RedisUrl, Options), Error> {
        let mut options = Options::default();
        parse(url, &mut options).map(|target| (target, options))
    }

    #[test]
    fn urls_mean_what_they_say() {
        let (target, options) =
            read("rediss://me:p%40ss@cache.example:6380/3?read_from=replicas&ca=/ca.pem").unwrap();
        assert_eq!(target.addresses, [Address::tcp("cache.example", 6_380)]);
        assert_eq!(
            (target.login.user.as_deref(), target.login.password.as_deref()),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!((target.database, options.read_from), (3, ReadFrom::Replicas));
        assert_eq!(target.tls.unwrap().ca, Some(PathBuf::from("/ca.pem")));

        let (target, _) = read("redis-sentinel://:x@a,b:1/main/2").unwrap();
        assert_eq!(target.addresses, [Address::tcp("a", 26_379), Address::tcp("b", 1)]);
        assert_eq!((target.scheme, target.database), (Scheme::Sentinel { master: "main".into() }, 2));

        let (target, _) = read("redis-cluster://[::1]:7000,h").unwrap();
        assert_eq!(target.addresses, [Address::tcp("::1", 7_000), Address::tcp("h", 6_379)]);

        let (target, _) = read("redis+unix:///run/redis.sock?db=1").unwrap();
        assert_eq!(target.addresses, [Address::Unix(Arc::new(PathBuf::from("/run/redis.sock")))]);
        assert_eq!(target.database, 1);
    }

    #[test]
    fn what_is_wrong_is_named_and_passwords_are_not() {
        let cases: &[(&str, &str)] = &[
            ("localhost:6379", "scheme"),
            ("http://h", "http://"),
            ("redis://:secret@", "no host"),
            ("redis://:secret@h:port", "\"port\""),
            ("redis://:secret@h/x", "database"),
            ("redis://:secret@h,i", "one host"),
            ("redis://secret@h", "no password"),
            ("redis-sentinel://:secret@h", "master's name"),
            ("redis-cluster://:secret@h/1", "database 0"),
            ("redis://:secret@h?colour=red", "\"colour\""),
            ("redis://:secret@h?ca=/x", "rediss"),
            ("redis://:secret@h?wait_timeout_ms=soon", "wait_timeout_ms"),
        ];
        for (url, part) in cases {
            let error = read(url).expect_err(url);
            assert_eq!(error.kind(), &Kind::Url);
            assert!(error.to_string().contains(part), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{url}: {error}");
        }
        let (target, _) = read("redis://:secret@h").unwrap();
        assert!(!format!("{target:?}").contains("secret"));
    }
}
