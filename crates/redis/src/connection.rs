//! Opening a connection to one node: socket, TLS, login, facts.
//!
//! An open connection is authenticated and has selected its database. The [`Facts`] of its node were read
//! when it was opened.

use crate::addresses::Address;
use crate::error::{Error, Kind};
use crate::facts::Facts;
use crate::url::{Login, RedisUrl};
use crate::wire::Wire;
use redis::{Cmd, Value};
use std::io;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Scripts that write, and WAIT.
    Write,
    /// Reads, from a primary or a replica.
    Read,
}

/// The settings that all connections of a client share.
pub(crate) struct Dialer {
    pub(crate) target: RedisUrl,
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) connect_timeout: Duration,
}

/// An open connection.
pub(crate) struct Connection {
    pub(crate) wire: Wire,
    pub(crate) facts: Facts,
}

impl Dialer {
    /// # Errors
    /// `Connect` when the node cannot be reached, `Auth` when it refuses the login.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Connection, Error> {
        self.in_time(address, async {
            let mut wire = Wire::new(self.socket(address).await?);
            greet(&mut wire, &self.target.login, self.target.database).await?;
            let facts = identify(&mut wire, address).await?;
            Ok(Connection { wire, facts })
        })
        .await
    }

    /// A connection to a Sentinel, which has a separate login and no database.
    pub(crate) async fn sentinel(&self, address: &Address) -> Result<Wire, Error> {
        self.in_time(address, async {
            let mut wire = Wire::new(self.socket(address).await?);
            greet(&mut wire, &self.target.sentinel_login, 0).await?;
            Ok(wire)
        })
        .await
    }

    async fn in_time<T>(
        &self,
        address: &Address,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.connect_timeout, work).await {
            Ok(result) => {
                result.map_err(|error| self.hinted(error).context(format_args!("Redis at {address}")))
            }
            Err(_) => {
                let limit_ms = self.connect_timeout.as_millis();
                let hint = if self.tls.is_some() { ": does it speak TLS there?" } else { "" };
                Err(Error::connect(format!("Redis at {address} did not answer within {limit_ms} ms{hint}")))
            }
        }
    }

    /// A server that demands TLS closes a connection without it silently.
    fn hinted(&self, error: Error) -> Error {
        match self.tls {
            None if error.message() == LOST => error.context("without TLS (rediss:// uses TLS)"),
            _ => error,
        }
    }

    async fn socket(&self, address: &Address) -> Result<Box<dyn crate::wire::Socket>, Error> {
        let cannot = |error: io::Error| Error::connect("cannot connect").with_source(error);
        let socket = match address {
            Address::Unix(path) => {
                return Ok(Box::new(UnixStream::connect(path.as_path()).await.map_err(cannot)?));
            }
            Address::Tcp(host, port) => TcpStream::connect((&**host, *port)).await.map_err(cannot)?,
        };
        socket.set_nodelay(true).map_err(cannot)?;
        let (Some(tls), Some(host)) = (&self.tls, address.host()) else { return Ok(Box::new(socket)) };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Error::new(Kind::Url, format!("{host:?} is no name for TLS: {error}")))?;
        let stream = tls
            .connect(name, socket)
            .await
            .map_err(|error| Error::connect("TLS failed").with_source(error))?;
        Ok(Box::new(stream))
    }
}

const LOST: &str = "the connection was lost";

/// Sends AUTH and SELECT, if they are needed.
async fn greet(wire: &mut Wire, login: &Login, database: u32) -> Result<(), Error> {
    let mut hello = Vec::new();
    if let Some(password) = &login.password {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = &login.user {
            auth.arg(user);
        }
        auth.arg(password);
        hello.push(auth);
    }
    if database != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(database);
        hello.push(select);
    }
    for answer in request(wire, &hello).await? {
        answer.map_err(|error| refused(error, login))?;
    }
    Ok(())
}

/// Sends INFO and CONFIG GET for the sync settings. CONFIG GET may be forbidden; the settings are then
/// unknown.
pub(crate) async fn identify(wire: &mut Wire, address: &Address) -> Result<Facts, Error> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("*appendfsync*");
    let mut answers = request(wire, &[redis::cmd("INFO"), config]).await?.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let info = next().map_err(|error| refused(error, &Login::default()))?;
    let info =
        text(&info).ok_or_else(|| Error::connect("the answer to INFO is not that of a Redis server"))?;
    let settings: Vec<Value> = match next() {
        Ok(Value::Array(fields)) => fields,
        Ok(Value::Map(pairs)) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
        _ => Vec::new(),
    };
    let pair = |pair: &[Value]| Some((text(&pair[0])?, text(&pair[1])?));
    let settings = settings.chunks_exact(2).filter_map(pair).collect();
    if info.contains("\nloading:1") {
        return Err(Error::connect("the server is still loading its data"));
    }
    Ok(Facts::parse(address.clone(), &info, &settings))
}

/// The error for a refused greeting, with a suggestion.
fn refused(error: Error, login: &Login) -> Error {
    let who = match (&login.user, &login.password) {
        (Some(user), _) => format!("the user {user:?}"),
        (None, Some(_)) => "the password".to_owned(),
        (None, None) => "a connection without a password".to_owned(),
    };
    let message = error.message().to_owned();
    match error.code() {
        Some("WRONGPASS" | "NOAUTH") => {
            Error::new(Kind::Auth, format!("the server refuses {who}: {message}"))
        }
        Some("NOPERM") => Error::new(
            Kind::Auth,
            format!("{message}: allow it with ACL SETUSER … +info +select +config|get"),
        ),
        Some("ERR") if message.contains("AUTH") || message.contains("password") => {
            Error::new(Kind::Auth, format!("the server refuses {who}: {message}"))
        }
        _ => error,
    }
}

/// Sends commands together and reads their answers; a server error is the answer to its command.
///
/// # Errors
/// `Connect` when the connection fails.
pub(crate) async fn request(wire: &mut Wire, commands: &[Cmd]) -> Result<Vec<Result<Value, Error>>, Error> {
    let lost = |error: io::Error| Error::connect(LOST).with_source(error);
    let mut bytes = Vec::new();
    for command in commands {
        command.write_packed_command(&mut bytes);
    }
    wire.send(&bytes).await.map_err(lost)?;
    let mut answers = Vec::with_capacity(commands.len());
    for _ in commands {
        answers.push(checked(wire.answer().await.map_err(lost)?));
    }
    Ok(answers)
}

/// Converts a server error into an error of this crate; other values are returned unchanged.
pub(crate) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => {
            let code = error.code().to_owned();
            let message = match error.details() {
                Some(details) => format!("{code} {details}"),
                None => code.clone(),
            };
            Err(Error::new(Kind::Server { code }, message))
        }
        value => Ok(value),
    }
}

/// The text of a bulk, simple or verbatim string.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}
