//! End-to-end tests of the example applications over real sockets: one module for each, every route with
//! its status codes, headers and bodies.
//!
//! Each test starts its own server on the unchanged example file, in its own folder, on the stores that the
//! environment names ([`Stores`]): the same tests for every pair of stores.

mod accounts;
mod codes;
mod items;
mod links;
mod routes;
mod shop;
mod types;
mod update_something;
mod usages;

use forebay_tests::{Archive, Folder, Server, Start, Stores, binary, example};
use std::path::Path;

/// A server of one example, with a folder and stores that exist as long as the server.
struct App {
    server: Server,
    folder: Folder,
    stores: Stores,
}

impl App {
    #[track_caller]
    fn start(file: &str) -> App {
        App::start_with(file, |start| start)
    }

    #[track_caller]
    fn start_with(file: &str, change: impl FnOnce(Start) -> Start) -> App {
        App::start_file(Folder::new(), &example(file), change)
    }

    /// An example with `from` replaced by `to` in its text, which must contain `from`.
    #[track_caller]
    fn start_changed(file: &str, from: &str, to: &str) -> App {
        let folder = Folder::new();
        let text = std::fs::read_to_string(example(file)).expect("the example can be read");
        assert!(text.contains(from), "{file} does not hold {from:?}");
        let config = folder.write(file, &text.replace(from, to));
        App::start_file(folder, &config, |start| start)
    }

    #[track_caller]
    fn start_file(folder: Folder, config: &Path, change: impl FnOnce(Start) -> Start) -> App {
        let stores = Stores::new();
        let start = change(Start::new(binary(), &folder, config).stores(&stores, &folder));
        App { server: start.start(), folder, stores }
    }

    /// A connection to the database, for checks.
    #[track_caller]
    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }
}

/// Whether a text is a UTC time of RFC 3339.
fn is_timestamp(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else { return false };
    let Some(fraction) = rest.strip_suffix('Z') else { return false };
    fraction.is_empty()
        || fraction
            .strip_prefix('.')
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c == '0'))
}

/// A time as seconds since 1970, to compare with the clock. Only for texts for which [`is_timestamp`]
/// is true.
fn seconds_of(text: &str) -> i64 {
    let number = |from: usize, to: usize| -> i64 { text[from..to].parse().expect("digits") };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Days since 1970 (the calendar counted from March, so that a leap day is the last of its year).
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    days * 86_400 + number(11, 13) * 3600 + number(14, 16) * 60 + number(17, 19)
}

/// Asserts that a time is within a minute of now: both use the same clock, and no machine is that
/// slow.
#[track_caller]
fn assert_now(value: &serde_json::Value) {
    let text = value.as_str().unwrap_or_default();
    assert!(is_timestamp(text), "{value} is not a UTC time of RFC 3339");
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let late = since.as_secs() as i64 - seconds_of(text);
    assert!((-1..=60).contains(&late), "{value} is {late} s ago");
}

#[test]
fn times_are_read() {
    assert_eq!(seconds_of("1970-01-01T00:00:00Z"), 0);
    assert_eq!(seconds_of("2016-11-01T14:11:51Z"), 1_478_009_511);
    assert_eq!(seconds_of("2024-02-29T00:00:00.5Z"), 1_709_164_800);
    assert!(is_timestamp("2016-11-01T14:11:51.000Z") && !is_timestamp("2016-11-01T14:11:51.Z"));
    assert!(!is_timestamp("2016-11-01 14:11:51Z") && !is_timestamp("2016-11-01T14:11:51"));
}
