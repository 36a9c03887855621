//! The shared level on a real server: drops that are queued, and reads beside them.

use super::*;
use crate::Clock;
use forebay_http::{Head, Reply};
use forebay_topology::{Local, Persistence, Spec, Topology};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const KEY: &[u8] = b"/things/1";

struct Ground {
    shared: Arc<SharedLevel>,
    time_ms: Arc<AtomicU64>,
    rules: Rules,
    stats: Stats,
    _servers: Local,
}

impl Ground {
    async fn new() -> Ground {
        let servers = Local::up(Spec::new(Topology::Single).keep(Persistence::None)).expect("a server");
        let client = Client::connect(&servers.url(), SharedLevel::options()).await.expect("a client");
        let time_ms = Arc::new(AtomicU64::new(1));
        let clock = Clock::set_by(time_ms.clone());
        let shared = SharedLevel::new(client, "test", clock, (60_000, 1 << 20), |_| true).await;
        let rules = Rules { shared_ms: Some(60_000), ..Rules::default() };
        let shared = Arc::new(shared.expect("a shared level"));
        Ground { shared, time_ms, rules, stats: Stats::default(), _servers: servers }
    }

    async fn fill(&self, tags: &[String]) {
        let generations = self.shared.read_generations(tags).await.expect("generations");
        let (head, body) = (Arc::new(Head::new(200)), b"old".to_vec());
        let filled = Filled::new(Reply { head, extra: Vec::new(), body, mark: 0 });
        let lives = Lives::of(Keep::AsRules, &self.rules, true);
        let stored = Stored { filled, age_ms: 0, lives, generations };
        self.shared.store(KEY, &stored, None, &self.stats).await;
    }

    /// Whether the entry is found; `None`: the level may not be read.
    async fn finds(&self, tags: &[String]) -> Option<bool> {
        let read = self.shared.read_entry(KEY, tags, &self.rules).await;
        read.ok().map(|(_, stored)| stored.is_some())
    }
}

fn tags(names: impl IntoIterator<Item = u32>) -> Vec<String> {
    names.into_iter().map(|name| format!("things:{name}")).collect()
}

/// The queued drop is sent while the entry is read, in whatever order the server takes the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_that_begins_after_a_queued_drop_finds_the_entry() {
    let (ground, tags) = (Ground::new().await, tags([1]));
    for round in 0..2_000 {
        ground.fill(&tags).await;
        assert_eq!(ground.finds(&tags).await, Some(true), "round {round}");
        ground.shared.queue_drops(&tags);
        let sender = ground.shared.clone();
        let sent = tokio::spawn(async move { sender.send_queued().await });
        while !sent.is_finished() {
            assert_ne!(ground.finds(&tags).await, Some(true), "round {round}");
        }
        assert_eq!(ground.finds(&tags).await, Some(false), "round {round}: sent");
    }
}

/// A drop is queued again while its tag is being sent: what was filled in between is dropped too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_that_is_queued_while_it_is_sent_is_sent_again() {
    let (ground, tags) = (Ground::new().await, tags([1]));
    for round in 0..500 {
        ground.shared.queue_drops(&tags);
        let sender = ground.shared.clone();
        let sent = tokio::spawn(async move { sender.send_queued().await });
        tokio::task::yield_now().await;
        ground.fill(&tags).await;
        ground.shared.queue_drops(&tags);
        sent.await.expect("sent");
        ground.shared.send_queued().await;
        assert_eq!(ground.finds(&tags).await, Some(false), "round {round}");
    }
}

#[tokio::test]
async fn drops_that_find_no_room_end_every_entry_of_their_time() {
    let (ground, one) = (Ground::new().await, tags([0]));
    ground.fill(&one).await;
    ground.shared.queue_drops(&tags(1..=limits::PENDING_TAGS_MAX as u32));
    assert_eq!(ground.finds(&one).await, Some(true), "all found room");
    ground.shared.queue_drops(&one);
    assert_eq!(ground.finds(&one).await, None);
    ground.shared.send_queued().await;
    assert_eq!(ground.shared.state(), (false, 0));
    assert_eq!(ground.finds(&one).await, None, "its drop was never sent");
    assert!(ground.shared.generations(&one, &ground.stats).await.is_err());
    ground.time_ms.fetch_add(ground.shared.generation_ttl_ms, Relaxed);
    assert!(ground.finds(&one).await.is_some(), "the entry has expired by now");
}
