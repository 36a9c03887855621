//! What clients remember between their requests: for each URL the validator (ETag) of the last
//! answer, as a browser does.
//!
//! A client is a connection; its validators survive a reconnect. Memory is bounded by
//! [`VALIDATORS_MAX`] and [`VALIDATOR_BYTES_MAX`] a client, whatever servers send.

use crate::limits::{VALIDATOR_BYTES_MAX, VALIDATORS_MAX};
use crate::response::Response;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

/// The clients of one worker.
#[derive(Default)]
pub(super) struct Clients(Vec<Client>);

#[derive(Default)]
struct Client {
    /// For each unanswered request the hash of its URL; `None` where no validator is stored.
    waiting: VecDeque<Option<u64>>,
    /// The hash of a URL and the validator of its last answer, the oldest first.
    known: VecDeque<(u64, Box<[u8]>)>,
}

impl Clients {
    fn client(&mut self, place: usize) -> &mut Client {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Client::default);
        }
        &mut self.0[place]
    }

    /// A request is sent whose validator is not stored.
    pub fn record_plain(&mut self, place: usize) {
        self.client(place).waiting.push_back(None);
    }

    /// A request is sent that begins with `line` (method and URL). Returns the validator that the
    /// client has for it.
    pub fn record_validated(&mut self, place: usize, line: &[u8]) -> Option<&[u8]> {
        let mut hasher = DefaultHasher::new();
        hasher.write(line);
        let url = hasher.finish();
        let client = self.client(place);
        client.waiting.push_back(Some(url));
        client.known.iter().find(|(known, _)| *known == url).map(|(_, validator)| &**validator)
    }

    /// The first waiting request was answered.
    pub fn answered(&mut self, place: usize, response: &Response<'_>) {
        let client = self.client(place);
        let Some(Some(url)) = client.waiting.pop_front() else { return };
        if response.status == 304 {
            return;
        }
        client.known.retain(|(known, _)| *known != url);
        let validator = response.header("etag").filter(|etag| etag.len() <= VALIDATOR_BYTES_MAX);
        if let Some(validator) = validator.filter(|_| response.status == 200) {
            if client.known.len() == VALIDATORS_MAX {
                client.known.pop_front();
            }
            client.known.push_back((url, validator.into()));
        }
    }

    /// The connection was lost: no waiting request will be answered.
    pub fn lost(&mut self, place: usize) {
        self.client(place).waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(clients: &mut Clients, status: u16, etag: Option<&str>) {
        let field = etag.map_or_else(String::new, |etag| format!("ETag: {etag}\r\n"));
        let head = format!("HTTP/1.1 {status} X\r\n{field}\r\n");
        clients.answered(3, &Response { status, head: head.as_bytes(), body: b"" });
    }

    #[test]
    fn the_last_validator_of_each_url() {
        let mut clients = Clients::default();
        for (line, status, etag, known) in [
            ("GET /a", 200, Some("\"1\""), None),
            ("GET /b", 200, Some("W/\"2\""), None),
            ("GET /a", 304, None, Some("\"1\"")),
            ("GET /a", 200, Some("\"3\""), Some("\"1\"")),
            ("GET /a", 503, None, Some("\"3\"")),
            ("GET /a", 200, None, None),
            ("GET /b", 304, Some("W/\"2\""), Some("W/\"2\"")),
        ] {
            let found = clients.record_validated(3, line.as_bytes()).map(<[u8]>::to_vec);
            assert_eq!(found.as_deref(), known.map(str::as_bytes), "{line} {status}");
            answer(&mut clients, status, etag);
        }
        clients.record_plain(3);
        assert_eq!(clients.record_validated(3, b"GET /b"), Some(&b"W/\"2\""[..]));
        answer(&mut clients, 200, Some("of no interest"));
        clients.lost(3);
        answer(&mut clients, 200, Some("unasked"));
        assert_eq!(
            clients.record_validated(3, b"GET /b"),
            Some(&b"W/\"2\""[..]),
            "others know it no more than before"
        );
        assert_eq!(clients.record_validated(4, b"GET /b"), None, "another client");
    }

    #[test]
    fn memory_is_bounded() {
        let mut clients = Clients::default();
        for url in 0..10 * VALIDATORS_MAX {
            clients.record_validated(3, format!("GET /{url}").as_bytes());
            answer(&mut clients, 200, Some("\"1\""));
        }
        assert_eq!(clients.client(3).known.len(), VALIDATORS_MAX);
        clients.record_validated(3, b"GET /long");
        answer(&mut clients, 200, Some(&"x".repeat(VALIDATOR_BYTES_MAX + 1)));
        assert_eq!(clients.record_validated(3, b"GET /long"), None);
    }
}
