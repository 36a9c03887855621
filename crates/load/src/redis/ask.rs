//! Commands sent one after the other before the load begins: a blocking connection, and the values
//! of the replies.

use super::encode::command;
use super::login::Login;
use crate::limits::HEAD_BYTES_MAX;
use crate::tls::Tls;
use rustls::StreamOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A value of a reply, as far as the callers need it.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    List(Vec<Value>),
    /// The error text of the server.
    Error(String),
}

/// A connection, plain or by TLS.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A blocking connection for commands.
pub(super) struct Asker(BufReader<Box<dyn Stream>>);

impl Asker {
    /// Connects and logs in.
    pub fn connect(
        address: SocketAddr,
        tls: Option<&Tls>,
        login: Option<&Login>,
        timeout: Duration,
    ) -> io::Result<Asker> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => Box::new(StreamOwned::new(tls.begin()?, stream)),
        };
        let mut asker = Asker(BufReader::new(stream));
        if let Some(login) = login
            && let Value::Error(why) = asker.ask(&login.words())?
        {
            return Err(refused(&format!("the server refuses the login: {why}")));
        }
        Ok(asker)
    }

    /// Sends a command and waits for its reply.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let stream = self.0.get_mut();
        stream.write_all(&command(words))?;
        stream.flush()?;
        read(&mut self.0, 0)
    }
}

pub(super) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

pub(super) fn strange(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this answers as no Redis server does: {why}"))
}

pub(super) fn read(reader: &mut impl BufRead, depth: usize) -> io::Result<Value> {
    let mut line = String::new();
    reader.take(HEAD_BYTES_MAX as u64).read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or_else(|| strange("its answer is cut"))?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| strange("an empty answer"))?;
    let number = || rest.parse::<i64>().map_err(|_| strange(line));
    match kind {
        "-" => Ok(Value::Error(rest.to_owned())),
        "+" => Ok(Value::Text(rest.to_owned())),
        ":" => Ok(Value::Number(number()?)),
        "_" => Ok(Value::Text(String::new())),
        "$" => {
            let length = usize::try_from(number()?).unwrap_or(0);
            if rest == "-1" {
                return Ok(Value::Text(String::new()));
            }
            if length > HEAD_BYTES_MAX {
                return Err(strange("too long a text"));
            }
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" | "%" if depth < 8 => {
            let count = number()?.max(0) * if kind == "%" { 2 } else { 1 };
            (0..count).map(|_| read(reader, depth + 1)).collect::<io::Result<_>>().map(Value::List)
        }
        _ => Err(strange(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_or_refused() {
        assert!(matches!(read(&mut &b"-ERR no\r\n"[..], 0), Ok(Value::Error(why)) if why == "ERR no"));
        assert!(matches!(read(&mut &b"$3\r\nabc\r\n"[..], 0), Ok(Value::Text(text)) if text == "abc"));
        let list = read(&mut &b"*2\r\n:7\r\n*1\r\n+a\r\n"[..], 0).unwrap();
        assert!(matches!(list, Value::List(list) if matches!(list[..], [Value::Number(7), Value::List(_)])));
        for broken in [&b"*1\r\n"[..], b"HTTP\r\n", b"", b"$9\r\nabc\r\n"] {
            assert!(read(&mut &*broken, 0).is_err(), "{broken:?}");
        }
    }
}
