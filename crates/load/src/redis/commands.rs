//! SET and GET, in an exact ratio, over random keys `memtier-1` to `memtier-MAXIMUM` (the names that memtier_benchmark uses).

use super::cluster::{Slots, slot_of};
use super::reply::{FOUND, MOVED, NOTHING, parse_reply};
use crate::limits::DATA_BYTES_MAX;
use crate::recorder::Kind;
use crate::response::{HeadParser, Response};
use crate::settings::Settings;
use crate::traffic::Traffic;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// Random keys that are tried for a node before any key is sent to it: a node without slots answers MOVED, which is counted.
const TRIES: u32 = 4096;

/// Which commands are sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Commands {
    /// SETs in each cycle.
    pub sets: u64,
    /// GETs behind them.
    pub gets: u64,
    /// Of a value.
    pub data_bytes: usize,
    /// Keys are numbered from 1.
    pub key_maximum: u64,
    pub(crate) seed: u64,
}

impl Commands {
    /// `1:10`, bytes of a value, highest number of a key.
    pub(crate) fn new(ratio: &str, data_bytes: u64, key_maximum: u64) -> Result<Commands, String> {
        let parts =
            ratio.split_once(':').and_then(|(sets, gets)| Some((sets.parse().ok()?, gets.parse().ok()?)));
        let Some((sets, gets)) = parts.filter(|(sets, gets): &(u32, u32)| sets | gets != 0) else {
            return Err(format!("--ratio: `{ratio}` is not SETS:GETS such as 1:10"));
        };
        if !(1..=DATA_BYTES_MAX).contains(&data_bytes) {
            return Err(format!("--data-size must be from 1 to {DATA_BYTES_MAX}, not {data_bytes}"));
        }
        if key_maximum == 0 {
            return Err("--key-maximum must be above zero".into());
        }
        let data_bytes = usize::try_from(data_bytes).unwrap_or(usize::MAX);
        let (sets, gets) = (u64::from(sets), u64::from(gets));
        Ok(Commands { sets, gets, data_bytes, key_maximum, seed: rand::random() })
    }

    /// Whether they make sense: they may have come from elsewhere.
    pub(crate) fn is_sound(&self) -> bool {
        self.sets + self.gets > 0 && self.data_bytes as u64 <= DATA_BYTES_MAX && self.key_maximum > 0
    }

    /// For one worker.
    pub(crate) fn traffic(&self, worker: usize, settings: &Settings) -> RedisTraffic {
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(worker as u64));
        // Letters that no server can make smaller by much.
        let value: Vec<u8> = (0..self.data_bytes).map(|_| b'!' + (random.next_u64() % 90) as u8).collect();
        let mut data = format!("${}\r\n", value.len()).into_bytes();
        data.extend_from_slice(&value);
        data.extend_from_slice(b"\r\n");
        let slots = (!settings.nodes.is_empty()).then(|| Slots::of(&settings.nodes));
        RedisTraffic { commands: self.clone(), random, data, key: Vec::new(), next: 0, is_get: false, slots }
    }
}

/// The commands of one worker.
pub struct RedisTraffic {
    commands: Commands,
    random: SmallRng,
    /// A value with its length, as it is sent.
    data: Vec<u8>,
    key: Vec<u8>,
    next: u64,
    is_get: bool,
    /// In a cluster.
    slots: Option<Slots>,
}

impl RedisTraffic {
    fn draw_key(&mut self, connection: usize) {
        for _ in 0..TRIES {
            let wide = u128::from(self.random.next_u64()) * u128::from(self.commands.key_maximum);
            self.key.clear();
            // Writing into memory does not fail.
            let _ = write!(self.key, "memtier-{}", 1 + (wide >> 64) as u64);
            if self.slots.as_ref().is_none_or(|slots| slots.is_of(slot_of(&self.key), connection)) {
                return;
            }
        }
    }
}

impl Traffic for RedisTraffic {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.is_get = self.next >= self.commands.sets;
        self.next = (self.next + 1) % (self.commands.sets + self.commands.gets);
        self.draw_key(connection);
        out.extend_from_slice(if self.is_get { b"*2\r\n$3\r\nGET\r\n" } else { b"*3\r\n$3\r\nSET\r\n" });
        // Writing into memory does not fail.
        let _ = write!(out, "${}\r\n", self.key.len());
        out.extend_from_slice(&self.key);
        out.extend_from_slice(b"\r\n");
        if !self.is_get {
            out.extend_from_slice(&self.data);
        }
    }

    fn kind(&self) -> usize {
        usize::from(self.is_get)
    }

    fn kinds(&self) -> Vec<Kind> {
        let kind = |name: &str, expected: &[u16]| Kind { name: name.into(), expected: expected.to_vec() };
        vec![kind("SET", &[FOUND]), kind("GET", &[FOUND, NOTHING])]
    }

    fn head_parser(&self) -> HeadParser {
        parse_reply
    }

    /// Only a cluster says where a slot has gone.
    fn reads_answers(&self) -> bool {
        self.slots.is_some()
    }

    fn response(&mut self, _connection: usize, response: &Response<'_>) {
        if response.status == MOVED
            && let Some(slots) = &mut self.slots
        {
            slots.moved(response.head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Stop;
    use std::net::SocketAddr;
    use std::time::Duration;

    #[test]
    fn ratio_and_sizes_are_exact() {
        let commands = Commands::new("1:10", 500, 1_000_000).unwrap();
        let settings =
            Settings::new(SocketAddr::from(([127, 0, 0, 1], 1)), Stop::After(Duration::from_secs(1)));
        let mut traffic = commands.traffic(0, &settings);
        let mut counts = [0; 2];
        for _ in 0..1100 {
            let mut out = Vec::new();
            traffic.request(0, &mut out);
            counts[traffic.kind()] += 1;
            let text = String::from_utf8(out).unwrap();
            let lines: Vec<&str> = text.split("\r\n").collect();
            assert_eq!(lines[3], format!("${}", lines[4].len()));
            let number: u64 = lines[4].strip_prefix("memtier-").unwrap().parse().unwrap();
            assert!((1..=1_000_000).contains(&number));
            if traffic.kind() == 0 {
                assert_eq!((lines[2], lines[5], lines[6].len()), ("SET", "$500", 500));
            } else {
                assert_eq!((lines[2], lines.len()), ("GET", 6));
            }
        }
        assert_eq!(counts, [100, 1000]);
    }

    #[test]
    fn mistakes_in_one_line() {
        for (ratio, data, keys, expected) in [
            ("1", 1, 1, "`1`"),
            ("0:0", 1, 1, "`0:0`"),
            ("a:b", 1, 1, "`a:b`"),
            ("1:1", 0, 1, "--data-size"),
            ("1:1", 1, 0, "--key-maximum"),
        ] {
            let error = Commands::new(ratio, data, keys).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
