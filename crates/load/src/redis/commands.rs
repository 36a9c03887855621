//! SET and GET, in an exact ratio, over random keys: `memtier-1` to `memtier-MAXIMUM` (the names
//! that memtier_benchmark uses), or as `--key` says.

use super::cluster::{Redirect, Slots, slot_of};
use super::reply::{ASK, FOUND, MOVED, NOTHING, parse_reply};
use crate::limits::{DATA_BYTES_MAX, KEY_BYTES_MAX};
use crate::mistyped::Mistyped;
use crate::recorder::Kind;
use crate::response::{HeadParser, Response};
use crate::settings::Settings;
use crate::traffic::Traffic;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The key pattern when none is given.
const KEY: &str = "memtier-%";

/// Random keys that are tried for a node before any key is sent to it: a node without slots answers
/// MOVED, which is counted, and gets no more commands until a slot moves.
const TRIES: u32 = 4096;

/// The flags for commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandFlags<'a> {
    pub ratio: &'a str,
    pub data_bytes: u64,
    pub key_maximum: u64,
    /// The key pattern, with `%` in the place of the number.
    pub key: Option<&'a str>,
    pub read_from: Option<&'a str>,
}

/// Which commands are sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Commands {
    /// SETs in each cycle.
    pub sets: u64,
    /// GETs after the SETs of each cycle.
    pub gets: u64,
    /// Bytes of a value.
    pub data_bytes: usize,
    /// Keys are numbered from 1.
    pub key_maximum: u64,
    /// The text before and after the number of a key.
    pub key: (String, String),
    /// GETs go to replicas only.
    pub reads_replicas: bool,
    pub(crate) seed: u64,
}

impl Commands {
    /// Checks the flags.
    pub(crate) fn new(asked: &CommandFlags<'_>) -> Result<Commands, Mistyped> {
        let CommandFlags { ratio, data_bytes, key_maximum, .. } = *asked;
        let parts =
            ratio.split_once(':').and_then(|(sets, gets)| Some((sets.parse().ok()?, gets.parse().ok()?)));
        let Some((sets, gets)) = parts.filter(|(sets, gets): &(u32, u32)| sets | gets != 0) else {
            return Err(format!("--ratio: `{ratio}` is not SETS:GETS such as 1:10").into());
        };
        if !(1..=DATA_BYTES_MAX).contains(&data_bytes) {
            return Err(format!("--data-size must be from 1 to {DATA_BYTES_MAX}, not {data_bytes}").into());
        }
        if key_maximum == 0 {
            return Err("--key-maximum must be above zero".into());
        }
        let key = asked.key.unwrap_or(KEY);
        let Some((before, behind)) = key.split_once('%').filter(|(_, behind)| !behind.contains('%')) else {
            return Err(format!(
                "--key: `{key}` must have one % in the place of the number, as in 'cart:{{%}}:items'"
            )
            .into());
        };
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("--key must not be longer than {KEY_BYTES_MAX} bytes").into());
        }
        let reads_replicas = match asked.read_from {
            None | Some("primaries" | "masters") => false,
            Some("replicas") => true,
            Some(other) => {
                return Err(format!("--read-from: `{other}` is neither primaries nor replicas").into());
            }
        };
        Ok(Commands {
            sets: sets.into(),
            gets: gets.into(),
            data_bytes: usize::try_from(data_bytes).unwrap_or(usize::MAX),
            key_maximum,
            key: (before.to_owned(), behind.to_owned()),
            reads_replicas,
            seed: rand::random(),
        })
    }

    /// Whether the figures are valid: they may have been received from a controller.
    pub(crate) fn is_sound(&self) -> bool {
        self.sets + self.gets > 0
            && self.data_bytes as u64 <= DATA_BYTES_MAX
            && self.key_maximum > 0
            && self.key.0.len() + self.key.1.len() <= KEY_BYTES_MAX
    }

    /// For one worker.
    pub(crate) fn traffic(&self, worker: usize, settings: &Settings) -> RedisTraffic {
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_add(worker as u64));
        // Random characters, so that no server can compress a value much.
        let value: Vec<u8> = (0..self.data_bytes).map(|_| b'!' + (random.next_u64() % 90) as u8).collect();
        let mut data = format!("${}\r\n", value.len()).into_bytes();
        data.extend_from_slice(&value);
        data.extend_from_slice(b"\r\n");
        let is_cluster = settings.nodes.iter().any(|node| !node.slots.is_empty());
        let are_replicas: Vec<bool> = settings.nodes.iter().map(|node| node.is_replica()).collect();
        RedisTraffic {
            commands: self.clone(),
            random,
            data,
            key: Vec::new(),
            next: 0,
            is_get: false,
            was_asking: false,
            is_selective: are_replicas.contains(&true) && are_replicas.contains(&false),
            cluster: is_cluster.then(|| Cluster {
                slots: Slots::of(&settings.nodes),
                sent: Vec::new(),
                redirected: vec![VecDeque::new(); settings.nodes.len()],
                is_without_keys: vec![false; settings.nodes.len()],
            }),
            are_replicas,
        }
    }
}

/// A command that was sent, or is to be sent again.
#[derive(Clone, Copy, Debug)]
struct Sent {
    key: u64,
    is_get: bool,
    /// Whether ASKING is sent before the command.
    asking: bool,
}

/// The additional state for a cluster.
struct Cluster {
    slots: Slots,
    /// For each connection, the commands that wait for a reply.
    sent: Vec<VecDeque<Sent>>,
    /// For each node, the commands that were redirected to it.
    redirected: Vec<VecDeque<Sent>>,
    /// For each node, whether no key seems to fall into its slots: all keys may have the same hash
    /// tag.
    is_without_keys: Vec<bool>,
}

impl Cluster {
    fn redirected(&mut self, connection: usize) -> &mut VecDeque<Sent> {
        let place = connection % self.redirected.len();
        &mut self.redirected[place]
    }

    fn has_nothing_for(&self, connection: usize) -> bool {
        let place = connection % self.redirected.len();
        self.is_without_keys[place] && self.redirected[place].is_empty()
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
    was_asking: bool,
    /// Some nodes take GETs only, the others SETs only.
    is_selective: bool,
    are_replicas: Vec<bool>,
    cluster: Option<Cluster>,
}

impl RedisTraffic {
    /// A random number whose key is in a slot of the connection's node.
    fn draw(&mut self, connection: usize) -> u64 {
        for _ in 0..TRIES {
            let wide = u128::from(self.random.next_u64()) * u128::from(self.commands.key_maximum);
            let number = 1 + (wide >> 64) as u64;
            let Some(cluster) = &self.cluster else { return number };
            write_key(&mut self.key, &self.commands.key, number);
            if cluster.slots.is_of(slot_of(&self.key), connection) {
                return number;
            }
        }
        if let Some(cluster) = &mut self.cluster {
            let place = connection % cluster.redirected.len();
            cluster.is_without_keys[place] = true;
        }
        1
    }

    /// The next command redirected to the connection's node, or else the next of the cycle.
    fn choose(&mut self, connection: usize) -> Sent {
        if let Some(redirected) =
            self.cluster.as_mut().and_then(|cluster| cluster.redirected(connection).pop_front())
        {
            return redirected;
        }
        let is_get = self.next_is_get();
        self.next = (self.next + 1) % (self.commands.sets + self.commands.gets);
        Sent { key: self.draw(connection), is_get, asking: false }
    }

    fn next_is_get(&self) -> bool {
        self.next >= self.commands.sets
    }
}

fn write_key(to: &mut Vec<u8>, (before, behind): &(String, String), number: u64) {
    to.clear();
    to.extend_from_slice(before.as_bytes());
    push_number(to, number);
    to.extend_from_slice(behind.as_bytes());
}

/// Appends a number in decimal. This runs twice for each command; `write!` would be most of a
/// command's cost.
fn push_number(to: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

impl Traffic for RedisTraffic {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        let sent = self.choose(connection);
        (self.is_get, self.was_asking) = (sent.is_get, sent.asking);
        write_key(&mut self.key, &self.commands.key, sent.key);
        if sent.asking {
            out.extend_from_slice(b"*1\r\n$6\r\nASKING\r\n");
        }
        out.extend_from_slice(if sent.is_get { b"*2\r\n$3\r\nGET\r\n" } else { b"*3\r\n$3\r\nSET\r\n" });
        out.push(b'$');
        push_number(out, self.key.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.key);
        out.extend_from_slice(b"\r\n");
        if !sent.is_get {
            out.extend_from_slice(&self.data);
        }
        if let Some(cluster) = &mut self.cluster {
            if cluster.sent.len() <= connection {
                cluster.sent.resize_with(connection + 1, VecDeque::new);
            }
            cluster.sent[connection].push_back(sent);
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

    fn replies_before(&self) -> u8 {
        u8::from(self.was_asking)
    }

    fn takes(&mut self, connection: usize) -> bool {
        if let Some(cluster) = &mut self.cluster {
            if !cluster.redirected(connection).is_empty() {
                return true;
            }
            if cluster.has_nothing_for(connection) {
                return false;
            }
        }
        !self.is_selective || self.next_is_get() == self.are_replicas[connection % self.are_replicas.len()]
    }

    /// Only a cluster's replies redirect commands.
    fn reads_answers(&self) -> bool {
        self.cluster.is_some()
    }

    fn response(&mut self, connection: usize, response: &Response<'_>) {
        let Some(cluster) = &mut self.cluster else { return };
        let Some(sent) = cluster.sent.get_mut(connection).and_then(VecDeque::pop_front) else { return };
        if response.status != MOVED && response.status != ASK {
            return;
        }
        let Some(redirect) = Redirect::parse(response.head) else { return };
        if response.status == MOVED && cluster.slots.moved(redirect) {
            cluster.is_without_keys.fill(false);
        }
        // A node that was unknown at the start has no connection, so the command is not sent again.
        if let Some(node) = cluster.slots.node(redirect) {
            cluster.redirected[node].push_back(Sent { asking: response.status == ASK, ..sent });
        }
    }

    fn lost(&mut self, connection: usize, _unanswered: usize) {
        if let Some(sent) = self.cluster.as_mut().and_then(|cluster| cluster.sent.get_mut(connection)) {
            sent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::Node;
    use crate::settings::Stop;
    use std::net::SocketAddr;
    use std::time::Duration;

    fn asked(ratio: &str, data_bytes: u64, key_maximum: u64) -> CommandFlags<'_> {
        CommandFlags { ratio, data_bytes, key_maximum, key: None, read_from: None }
    }

    fn settings(nodes: &[(u16, u16)]) -> Settings {
        let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let nodes = nodes.iter().map(|(port, master)| Node {
            address: local(*port),
            master: local(*master),
            slots: if *master == 1 { vec![(0, 9000)] } else { vec![(9001, 16383)] },
        });
        Settings { nodes: nodes.collect(), ..Settings::new(local(1), Stop::After(Duration::from_secs(1))) }
    }

    fn request(traffic: &mut RedisTraffic, connection: usize) -> Vec<String> {
        let mut out = Vec::new();
        traffic.request(connection, &mut out);
        String::from_utf8(out).unwrap().split("\r\n").map(str::to_owned).collect()
    }

    #[test]
    fn ratio_and_sizes_are_exact() {
        let commands = Commands::new(&asked("1:10", 500, 1_000_000)).unwrap();
        let mut traffic = commands.traffic(0, &settings(&[]));
        let mut counts = [0; 2];
        for _ in 0..1100 {
            let lines = request(&mut traffic, 0);
            counts[traffic.kind()] += 1;
            assert_eq!(lines[3], format!("${}", lines[4].len()));
            let number: u64 = lines[4].strip_prefix("memtier-").unwrap().parse().unwrap();
            assert!((1..=1_000_000).contains(&number));
            if traffic.kind() == 0 {
                assert_eq!((lines[2].as_str(), lines[5].as_str(), lines[6].len()), ("SET", "$500", 500));
            } else {
                assert_eq!((lines[2].as_str(), lines.len()), ("GET", 6));
            }
        }
        assert_eq!(counts, [100, 1000]);
    }

    #[test]
    fn reads_go_to_replicas_and_to_nobody_else() {
        let commands =
            Commands::new(&CommandFlags { read_from: Some("replicas"), ..asked("1:2", 1, 1000) }).unwrap();
        let mut traffic = commands.traffic(0, &settings(&[(1, 1), (2, 2), (3, 1), (4, 2)]));
        for _ in 0..100 {
            assert!(traffic.takes(0) && traffic.takes(5) && !traffic.takes(2));
            request(&mut traffic, 0);
            for _ in 0..2 {
                assert!(!traffic.takes(0) && traffic.takes(2) && traffic.takes(7));
                request(&mut traffic, 3);
            }
        }
        let all = Commands::new(&asked("1:2", 1, 1000)).unwrap();
        assert!(all.traffic(0, &settings(&[(1, 1), (2, 2)])).takes(1));
    }

    #[test]
    fn what_is_redirected_is_sent_again() {
        let key = Some("{%}:x");
        let commands = Commands::new(&CommandFlags { key, ..asked("1:0", 1, 1000) }).unwrap();
        let mut traffic = commands.traffic(0, &settings(&[(1, 1), (2, 2)]));
        let first = request(&mut traffic, 0);
        assert!(first[4].starts_with('{') && first[4].ends_with("}:x"), "{first:?}");
        let slot = slot_of(first[4].as_bytes());
        for (word, status, asking) in [("ASK", ASK, true), ("MOVED", MOVED, false)] {
            let head = format!("-{word} {slot} 127.0.0.1:2\r\n");
            traffic.response(0, &Response { status, head: head.as_bytes(), body: b"" });
            let redirected = request(&mut traffic, 1);
            assert_eq!(
                (redirected[0] == "*1", traffic.replies_before()),
                (asking, u8::from(asking)),
                "{redirected:?}"
            );
            assert!(redirected.contains(&first[4]), "{redirected:?}");
            // Once.
            assert_eq!((request(&mut traffic, 1)[0].as_str(), traffic.replies_before()), ("*3", 0));
            // As if the command had been sent on the first connection.
            let cluster = traffic.cluster.as_mut().unwrap();
            let sent = cluster.sent[1][0];
            cluster.sent[0].push_back(sent);
        }
        traffic.lost(1, 4);
        assert!(traffic.cluster.unwrap().sent[1].is_empty());
    }

    #[test]
    fn mistakes_in_one_line() {
        let sound = asked("1:1", 1, 1);
        for (asked, expected) in [
            (CommandFlags { ratio: "1", ..sound }, "`1`"),
            (CommandFlags { ratio: "0:0", ..sound }, "`0:0`"),
            (CommandFlags { ratio: "a:b", ..sound }, "`a:b`"),
            (CommandFlags { data_bytes: 0, ..sound }, "--data-size"),
            (CommandFlags { key_maximum: 0, ..sound }, "--key-maximum"),
            (CommandFlags { key: Some("cart"), ..sound }, "`cart`"),
            (CommandFlags { key: Some("%%"), ..sound }, "`%%`"),
            (CommandFlags { read_from: Some("moon"), ..sound }, "`moon`"),
        ] {
            let error = Commands::new(&asked).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
