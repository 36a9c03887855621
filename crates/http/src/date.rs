//! The Date field, rendered once a second per worker together with the name of the field that
//! always follows it.

use std::time::SystemTime;

/// `Date: …\r\nContent-Length: `, so that an answer copies both at once.
#[derive(Debug)]
pub(crate) struct Stamp {
    bytes: Vec<u8>,
    second: u64,
}

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n`
const DATE_LINE_BYTES: usize = 37;

impl Stamp {
    pub(crate) fn now() -> Stamp {
        let mut stamp = Stamp { bytes: Vec::new(), second: 0 };
        stamp.refresh();
        stamp
    }

    /// Renders the stamp again when the second has changed.
    pub(crate) fn refresh(&mut self) {
        let now = SystemTime::now();
        // A clock before 1970 gives second 0, which shows a wrong date instead of failing.
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.bytes.is_empty() {
            self.second = second;
            let date =
                httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second));
            self.bytes = format!("Date: {date}\r\nContent-Length: ").into_bytes();
        }
    }

    /// The Date line and the start of the Content-Length line.
    pub(crate) fn with_length(&self) -> &[u8] {
        &self.bytes
    }

    /// The Date line alone.
    pub(crate) fn date_only(&self) -> &[u8] {
        &self.bytes[..DATE_LINE_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_line_is_a_whole_line() {
        let stamp = Stamp::now();
        let line = std::str::from_utf8(stamp.date_only()).expect("ASCII");
        assert!(line.starts_with("Date: ") && line.ends_with(" GMT\r\n"), "{line:?}");
        assert!(stamp.with_length().ends_with(b"GMT\r\nContent-Length: "));
    }
}
