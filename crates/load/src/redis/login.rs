//! The user of the load, and the commands that every connection sends first.

use super::encode::command;
use crate::mistyped::Mistyped;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A user of the server (ACL), or the password alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    user: String,
    password: String,
}

/// Omits the password, so that no log shows it.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

impl Login {
    /// `user:password` or `:password` as a URL has it, per cent signs decoded.
    pub(crate) fn parse(text: &str) -> Result<Login, Mistyped> {
        let Some((user, password)) = text.split_once(':').filter(|(_, password)| !password.is_empty()) else {
            return Err("write user:password@ or :password@ before the host".into());
        };
        let decode = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            decoded.map(|text| text.into_owned()).map_err(|_| "user and password must be UTF-8")
        };
        Ok(Login { user: decode(user)?, password: decode(password)? })
    }

    /// The command.
    pub(super) fn words(&self) -> Vec<&str> {
        match self.user.as_str() {
            "" => vec!["AUTH", &self.password],
            user => vec!["AUTH", user, &self.password],
        }
    }
}

/// The bytes that every connection sends first, and the number of reply lines to wait for.
#[derive(Clone, Default)]
pub struct Hello {
    pub(crate) bytes: Vec<u8>,
    pub(crate) replies: usize,
}

/// Omits the bytes, because they contain the password.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hello({} commands)", self.replies)
    }
}

impl Hello {
    /// Logs in; `reads_replicas`: sends READONLY, so that a cluster's replicas answer themselves.
    pub(crate) fn new(login: Option<&Login>, reads_replicas: bool) -> Hello {
        let mut hello = Hello::default();
        let commands = login.map(Login::words).into_iter().chain(reads_replicas.then(|| vec!["READONLY"]));
        for words in commands {
            hello.bytes.extend(command(&words));
            hello.replies += 1;
        }
        hello
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_from_urls() {
        for (text, user, password) in
            [("me:secret", "me", "secret"), (":p%40s%3As", "", "p@s:s"), ("a:b:c", "a", "b:c")]
        {
            let login = Login::parse(text).unwrap();
            assert_eq!((login.user.as_str(), login.password.as_str()), (user, password));
            assert!(!format!("{login:?}").contains(password));
        }
        for text in ["me", "me:", "", ":", ":%ff"] {
            assert!(Login::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn said_first() {
        let hello = Hello::new(Some(&Login::parse(":x").unwrap()), true);
        assert_eq!(hello.bytes, b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*1\r\n$8\r\nREADONLY\r\n");
        assert_eq!((hello.replies, Hello::new(None, false).replies), (2, 0));
    }
}
