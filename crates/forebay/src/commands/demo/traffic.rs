//! The requests of the demonstration, and the list of acknowledged rows.

use forebay_load::{Fixed, Response, Traffic};

/// Keys of acknowledged rows by table.
#[derive(Default)]
pub struct Acknowledged(Vec<(&'static str, Vec<String>)>);

impl Acknowledged {
    /// Adds keys.
    pub fn add(&mut self, table: &'static str, ids: Vec<String>) {
        self.0.push((table, ids));
    }

    /// All keys, by table.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        self.0.iter().map(|(table, ids)| (*table, ids))
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, ids)| ids.len()).sum()
    }

    /// Some keys of one table, for reads.
    pub fn some(&self, table: &str) -> Vec<String> {
        let all = self.0.iter().filter(|(own, _)| *own == table).flat_map(|(_, ids)| ids);
        all.take(10_000).cloned().collect()
    }
}

/// Repeats one write; collects the key of every acknowledged row.
pub struct Counting {
    request: Fixed,
    acknowledged: Vec<String>,
}

impl Counting {
    /// POST without a body.
    pub fn post(path: &str) -> Counting {
        Counting { request: Fixed::new("POST", path, None), acknowledged: Vec::new() }
    }

    /// The keys.
    pub fn into_acknowledged(self) -> Vec<String> {
        self.acknowledged
    }
}

impl Traffic for Counting {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.request.request(connection, out);
    }

    fn response(&mut self, _connection: usize, response: &Response<'_>) {
        if response.status == 201 {
            // An answer without a key counts as a row that cannot be found.
            self.acknowledged.push(id_in(response.body).unwrap_or_default());
        }
    }
}

/// The value of the first `"id":` in an answer, without quotes.
fn id_in(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, after) = text.split_once("\"id\":")?;
    let end = after.find([',', '}'])?;
    Some(after[..end].trim_matches('"').to_owned())
}

/// Sends a list of reads in turn.
pub struct Reading {
    requests: Vec<Fixed>,
    next: usize,
}

impl Reading {
    /// Repeats a GET of one path.
    pub fn get(path: &str) -> Reading {
        Reading { requests: vec![Fixed::new("GET", path, None)], next: 0 }
    }

    /// GET each of these keys in turn.
    pub fn by_key(prefix: &str, keys: Vec<String>) -> Reading {
        let requests = keys.iter().map(|key| Fixed::new("GET", &format!("{prefix}{key}"), None)).collect();
        Reading { requests, next: 0 }
    }

    /// The PATCH of the codes example, with its ten fields.
    pub fn update_something() -> Reading {
        let fields: Vec<_> = (1..=10).map(|n| format!("\"foo{n}\":\"some text number {n}\"")).collect();
        let body = format!("{{{}}}", fields.join(","));
        let target = "/update-something/42/Forebay?value1=one&value2=two";
        Reading { requests: vec![Fixed::new("PATCH", target, Some(body.as_bytes()))], next: 0 }
    }
}

impl Traffic for Reading {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.next = if self.next + 1 < self.requests.len() { self.next + 1 } else { 0 };
        self.requests[self.next].request(connection, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_answers() {
        for (body, expected) in [
            ("{\"created_code\":{\"id\":7,\"code\":\"x\"}}", Some("7")),
            ("{\"id\":\"06f40771-6460\"}", Some("06f40771-6460")),
            ("{}", None),
        ] {
            assert_eq!(id_in(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}
