//! A connection in replication mode: opens, authenticates, queries, and streams.
//!
//! The client library of all other connections has no replication mode. This code shares with it the URL's
//! settings, the TLS configuration and the messages' formats (`postgres-protocol`). Passwords are sent by
//! SCRAM, MD5 or in clear text, as the server requests; a URL that requires channel binding is refused.
//!
//! Protocol: <https://www.postgresql.org/docs/current/protocol-replication.html>.

use crate::limits::{HANDSHAKE_MS, REPLICATION_READ_BYTES};
use crate::postgres::deadline::within;
use crate::postgres::session::Connector;
use crate::postgres::url::Tls;
use crate::{Error, Kind};
use bytes::{Buf, BytesMut};
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::{ChannelBinding, Config, Host};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type Socket = Box<dyn Duplex>;

/// An open connection.
pub(super) struct Wire {
    socket: Socket,
    input: BytesMut,
    output: BytesMut,
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server refused it.
    Refused { code: String, message: String },
    /// The connection was lost, or the bytes received are not PostgreSQL's.
    Lost(String),
    /// The server has not answered in time.
    Late,
}

const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// Whether a refusal with this code is transient.
pub(super) fn may_pass(code: &str) -> bool {
    code == "55006" || ["08", "53", "57"].iter().any(|class| code.starts_with(class))
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Lost(format!("the replication connection was lost: {error}"))
    }
}

impl Fault {
    pub(super) fn message(&self) -> &str {
        match self {
            Fault::Refused { message, .. } | Fault::Lost(message) => message,
            Fault::Late => "the server does not answer",
        }
    }

    /// Whether a later attempt may succeed: the server is stopping or starting, has no resources left, or an
    /// earlier connection uses the slot.
    pub(super) fn may_retry(&self) -> bool {
        match self {
            Fault::Refused { code, .. } => may_pass(code),
            Fault::Lost(_) | Fault::Late => true,
        }
    }

    /// A permanent mismatch between the URL and the server.
    fn lasting(message: impl Into<String>) -> Fault {
        Fault::Refused { code: FEATURE_NOT_SUPPORTED.into(), message: message.into() }
    }

    pub(super) fn into_error(self) -> Error {
        Error::new(Kind::Unavailable, format!("following by logical decoding: {}", self.message()))
    }
}

fn garbled(what: &str) -> Fault {
    Fault::Lost(format!("the server's answer cannot be read: {what}"))
}

impl Wire {
    /// Opens a connection to the first host that is a primary.
    pub(super) async fn connect(connector: &Connector) -> Result<Wire, Fault> {
        let config = &connector.settings.config;
        if config.get_channel_binding() == ChannelBinding::Require {
            return Err(Fault::lasting("the URL insists on channel binding, which is not done here"));
        }
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let patience =
            config.get_connect_timeout().copied().unwrap_or_default() + Duration::from_millis(HANDSHAKE_MS);
        let mut fault = Fault::Lost("the URL names no host".into());
        for host in 0..count {
            let opened = within(patience, Wire::open(connector, host)).await;
            match opened.unwrap_or(Err(Fault::Late)) {
                Ok(wire) => return Ok(wire),
                Err(why) => fault = why,
            }
        }
        Err(fault)
    }

    async fn open(connector: &Connector, host: usize) -> Result<Wire, Fault> {
        let config = &connector.settings.config;
        let socket = encrypted(connector, host, reach(config, host).await?).await?;
        let mut wire = Wire { socket, input: BytesMut::new(), output: BytesMut::new() };
        let user = config.get_user().unwrap_or_default();
        let options = format!(
            "{} -c DateStyle=ISO -c TimeZone=UTC -c extra_float_digits=1 -c statement_timeout=0",
            config.get_options().unwrap_or_default()
        );
        let params = [
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", config.get_application_name().unwrap_or("forebay")),
            ("options", options.trim()),
        ];
        frontend::startup_message(params, &mut wire.output)?;
        wire.flush().await?;
        wire.authenticate(user, config.get_password().unwrap_or_default()).await?;
        while wire.message().await?.0 != b'Z' {}
        let facts = "SELECT pg_is_in_recovery(), current_setting('server_encoding')";
        let facts = wire.query(facts, HANDSHAKE_MS).await?;
        let fact = |index: usize| facts.get(index).and_then(Option::as_deref);
        if fact(0) != Some("f") {
            return Err(Fault::Lost("the server is a standby".into()));
        }
        match fact(1) {
            // The stream is in it.
            Some("UTF8" | "SQL_ASCII") => Ok(wire),
            encoding => Err(Fault::lasting(format!(
                "the database's encoding is {}, not UTF8",
                encoding.unwrap_or("unknown")
            ))),
        }
    }

    async fn authenticate(&mut self, user: &str, password: &[u8]) -> Result<(), Fault> {
        let mut scram: Option<sasl::ScramSha256> = None;
        loop {
            let (tag, body) = self.message().await?;
            if tag != b'R' {
                return Err(garbled("no authentication"));
            }
            let (code, rest) = body.split_at_checked(4).ok_or_else(|| garbled("authentication"))?;
            match (u32::from_be_bytes(code.try_into().expect("four bytes")), &mut scram) {
                (0, _) => return Ok(()),
                (3, _) => frontend::password_message(password, &mut self.output)?,
                (5, _) => {
                    let salt = rest.try_into().map_err(|_| garbled("salt"))?;
                    let hash = md5_hash(user.as_bytes(), password, salt);
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                (10, none) => {
                    let begun = sasl::ScramSha256::new(password, sasl::ChannelBinding::unsupported());
                    let name = sasl::SCRAM_SHA_256;
                    frontend::sasl_initial_response(name, begun.message(), &mut self.output)?;
                    *none = Some(begun);
                }
                (11, Some(scram)) => {
                    scram.update(rest)?;
                    frontend::sasl_response(scram.message(), &mut self.output)?;
                }
                (12, Some(scram)) => scram.finish(rest)?,
                (code, _) => return Err(Fault::lasting(format!("authentication {code} is not understood"))),
            }
            self.flush().await?;
        }
    }

    /// Runs SQL, or a command of the replication protocol; returns its last row.
    pub(super) async fn query(&mut self, sql: &str, patience_ms: u64) -> Result<Vec<Option<String>>, Fault> {
        within(Duration::from_millis(patience_ms), self.answer(sql)).await.unwrap_or(Err(Fault::Late))
    }

    async fn answer(&mut self, sql: &str) -> Result<Vec<Option<String>>, Fault> {
        self.send_query(sql).await?;
        let (mut found, mut refused) = (Vec::new(), None);
        loop {
            match self.message().await {
                Err(Fault::Refused { code, message }) => refused = Some(Fault::Refused { code, message }),
                Err(fault) => return Err(fault),
                Ok((b'D', row)) => found = columns(&row).ok_or_else(|| garbled("a row"))?,
                Ok((b'Z', _)) => break,
                Ok(_) => {}
            }
        }
        refused.map_or(Ok(found), Err)
    }

    /// Starts streaming: the pieces are read with [`Wire::copied`].
    pub(super) async fn stream(&mut self, command: &str) -> Result<(), Fault> {
        let begun = async {
            self.send_query(command).await?;
            loop {
                match self.message().await?.0 {
                    b'W' => return Ok(()),
                    b'Z' => return Err(garbled("no stream")),
                    _ => {}
                }
            }
        };
        within(Duration::from_millis(HANDSHAKE_MS), begun).await.unwrap_or(Err(Fault::Late))
    }

    /// The next piece of the stream that has arrived; `None`: none has.
    pub(super) fn copied(&mut self) -> Result<Option<BytesMut>, Fault> {
        while let Some((tag, body)) = self.buffered()? {
            match tag {
                b'd' => return Ok(Some(body)),
                b'c' => return Err(Fault::Lost("the server has ended the stream".into())),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits until more bytes have arrived.
    pub(super) async fn fill(&mut self) -> Result<(), Fault> {
        self.input.reserve(REPLICATION_READ_BYTES);
        match self.socket.read_buf(&mut self.input).await? {
            0 => Err(Fault::Lost("the server has closed the replication connection".into())),
            _ => Ok(()),
        }
    }

    /// Sends a piece to the server.
    pub(super) async fn send(&mut self, piece: &[u8]) -> Result<(), Fault> {
        frontend::CopyData::new(piece)?.write(&mut self.output);
        within(Duration::from_millis(HANDSHAKE_MS), self.flush()).await.unwrap_or(Err(Fault::Late))
    }

    async fn send_query(&mut self, sql: &str) -> Result<(), Fault> {
        frontend::query(sql, &mut self.output)?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.socket.write_all_buf(&mut self.output).await?;
        Ok(self.socket.flush().await?)
    }

    /// The next message, without notices and parameter messages.
    async fn message(&mut self) -> Result<(u8, BytesMut), Fault> {
        loop {
            match self.buffered()? {
                Some((b'S' | b'N' | b'K', _)) => {}
                Some(message) => return Ok(message),
                None => self.fill().await?,
            }
        }
    }

    /// The next message, if it is complete.
    fn buffered(&mut self) -> Result<Option<(u8, BytesMut)>, Fault> {
        let Some((head, _)) = self.input.split_at_checked(5) else { return Ok(None) };
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        if length < 4 {
            return Err(garbled("a message of no length"));
        }
        if self.input.len() < 1 + length {
            self.input.reserve(1 + length - self.input.len());
            return Ok(None);
        }
        let mut message = self.input.split_to(1 + length);
        let tag = message[0];
        message.advance(5);
        if tag == b'E' {
            return Err(refused(&message));
        }
        Ok(Some((tag, message)))
    }
}

/// The contents of an ErrorResponse.
fn refused(body: &[u8]) -> Fault {
    let field = |name: u8| {
        let mut fields = body.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&name));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    Fault::Refused { code: field(b'C'), message: field(b'M') }
}

/// The columns of a DataRow, as text.
fn columns(mut row: &[u8]) -> Option<Vec<Option<String>>> {
    let count = row.try_get_u16().ok()?;
    let column = |_| match row.try_get_i32().ok()? {
        -1 => Some(None),
        length => {
            let (text, rest) = row.split_at_checked(usize::try_from(length).ok()?)?;
            row = rest;
            Some(Some(String::from_utf8_lossy(text).into_owned()))
        }
    };
    (0..count).map(column).collect()
}

async fn reach(config: &Config, host: usize) -> Result<Socket, Fault> {
    let port = *config.get_ports().get(host).or(config.get_ports().first()).unwrap_or(&5432);
    let address = config.get_hostaddrs().get(host).map(ToString::to_string);
    let name = match (address, config.get_hosts().get(host)) {
        (Some(address), _) => address,
        (None, Some(Host::Tcp(name))) => name.clone(),
        (None, Some(Host::Unix(folder))) => {
            return Ok(Box::new(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?));
        }
        (None, None) => return Err(Fault::Lost("the URL names no host".into())),
    };
    let socket = TcpStream::connect((name.as_str(), port)).await?;
    socket.set_nodelay(true)?;
    Ok(Box::new(socket))
}

/// The same connection with TLS, where the URL requests it and the server supports it.
async fn encrypted(connector: &Connector, host: usize, mut socket: Socket) -> Result<Socket, Fault> {
    let Some(Host::Tcp(name)) = connector.settings.config.get_hosts().get(host) else { return Ok(socket) };
    if connector.settings.tls == Tls::Disable {
        return Ok(socket);
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    socket.write_all_buf(&mut request).await?;
    socket.flush().await?;
    match (socket.read_u8().await?, &connector.settings.tls) {
        (b'S', _) => {}
        (_, Tls::Prefer) => return Ok(socket),
        _ => return Err(Fault::lasting("the server does not support TLS")),
    }
    let mut tls = connector.tls.clone();
    let tls = <MakeRustlsConnect as MakeTlsConnect<Socket>>::make_tls_connect(&mut tls, name)
        .map_err(|error| Fault::Lost(format!("TLS: {error}")))?;
    Ok(Box::new(tls.connect(socket).await.map_err(|error| Fault::Lost(format!("TLS: {error}")))?))
}
