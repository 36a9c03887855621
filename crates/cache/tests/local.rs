//! The cache of one process: fills, generations, lifetimes, bounds.

use forebay_cache::{Cache, Clock, Filled, Found, Keep, Landed, Options, Rules};
use forebay_http::{Head, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use tokio::sync::oneshot;

type Failure = &'static str;

struct Ground {
    cache: Cache<Failure>,
    time_ms: Arc<AtomicU64>,
    fills: Arc<AtomicUsize>,
}

const TAGS: [&str; 2] = ["a", "b"];

impl Ground {
    fn new() -> Ground {
        Ground::with_bytes(16 << 20)
    }

    fn with_bytes(local_bytes: u64) -> Ground {
        let time_ms = Arc::new(AtomicU64::new(1));
        let clock = Clock::set_by(time_ms.clone());
        let cache = Cache::new(Options { local_bytes, clock, shared: None });
        Ground { cache, time_ms, fills: Arc::default() }
    }

    fn pass(&self, time_ms: u64) {
        self.time_ms.fetch_add(time_ms, SeqCst);
    }

    /// The body found, and whether the caller must refresh it.
    fn find(&self, key: &str, rules: &Rules) -> Option<(String, bool)> {
        let text = |entry: &forebay_cache::CacheEntry| String::from_utf8_lossy(entry.body()).into_owned();
        match self.cache.find(key.as_bytes(), rules, 0, self.cache.now_ms()) {
            Found::Good(entry) => Some((text(&entry), false)),
            Found::Refresh(entry) => Some((text(&entry), true)),
            Found::Nothing => None,
        }
    }

    async fn fill(
        &self,
        key: &str,
        rules: &Arc<Rules>,
        body: Result<&'static str, Failure>,
    ) -> Result<String, String> {
        self.fill_as(key, rules, body, Keep::AsRules).await
    }

    async fn fill_as(
        &self,
        key: &str,
        rules: &Arc<Rules>,
        body: Result<&'static str, Failure>,
        keep: Keep,
    ) -> Result<String, String> {
        let fills = self.fills.clone();
        let work = move || {
            Ok(async move {
                fills.fetch_add(1, SeqCst);
                body.map(|body| filled(body).keep(keep))
            })
        };
        shown(self.cache.fill(key.as_bytes(), tags(), rules, work).await)
    }
}

fn tags() -> Vec<String> {
    TAGS.map(str::to_owned).to_vec()
}

fn filled(body: &str) -> Filled {
    let head = Arc::new(Head::new(200).content_type("text/plain"));
    Filled::new(Reply { head, extra: Vec::new(), body: body.as_bytes().to_vec(), mark: 0 })
}

fn shown(landed: Landed<Failure>) -> Result<String, String> {
    match landed {
        Landed::Entry(entry) => Ok(String::from_utf8_lossy(entry.body()).into_owned()),
        Landed::Own(filled) => Ok(format!("own {}", String::from_utf8_lossy(&filled.body))),
        Landed::NotShared => Err("alone".into()),
        Landed::Failed(why) => Err(why.into()),
        Landed::Lost => Err("lost".into()),
    }
}

fn rules(change: impl FnOnce(&mut Rules)) -> Arc<Rules> {
    let mut rules = Rules { local_ms: 1_000, ..Rules::default() };
    change(&mut rules);
    Arc::new(rules)
}

#[tokio::test]
async fn an_answer_is_good_for_its_life_less_jitter() {
    let (ground, rules) = (Ground::new(), rules(|_| {}));
    assert_eq!(ground.find("k", &rules), None);
    assert_eq!(ground.fill("k", &rules, Ok("one")).await, Ok("one".into()));
    ground.pass(899);
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)));
    assert_eq!(ground.find("other", &rules), None);
    ground.pass(101);
    assert_eq!(ground.find("k", &rules), None);
    assert_eq!(ground.fill("k", &rules, Ok("two")).await, Ok("two".into()));
    assert_eq!(ground.fills.load(SeqCst), 2);
}

#[tokio::test]
async fn one_fill_for_all_who_wait_even_when_the_first_leaves() {
    let (ground, rules) = (Ground::new(), rules(|_| {}));
    let (go, wait) = oneshot::channel::<()>();
    let fills = ground.fills.clone();
    let work = move || {
        Ok(async move {
            fills.fetch_add(1, SeqCst);
            let _ = wait.await;
            Ok(filled("one"))
        })
    };
    let leader = tokio::spawn(ground.cache.fill(b"k", tags(), &rules, work));
    while ground.cache.flights() == 0 {
        tokio::task::yield_now().await;
    }
    let followers: Vec<_> = (0..100)
        .map(|_| tokio::spawn(ground.cache.fill(b"k", tags(), &rules, || Ok(async { Err("a second fill") }))))
        .collect();
    tokio::task::yield_now().await;
    leader.abort();
    tokio::task::yield_now().await;
    go.send(()).expect("the fill goes on without its leader");
    for follower in followers {
        assert_eq!(shown(follower.await.expect("not cancelled")), Ok("one".into()));
    }
    assert_eq!((ground.fills.load(SeqCst), ground.cache.flights()), (1, 0));
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)));
}

#[tokio::test]
async fn a_fill_that_began_before_a_drop_is_never_shown_after_it() {
    for tag in TAGS {
        let (ground, rules) = (Ground::new(), rules(|_| {}));
        let (go, wait) = oneshot::channel::<()>();
        let work = move || {
            Ok(async move {
                let _ = wait.await;
                Ok(filled("old"))
            })
        };
        let early = tokio::spawn(ground.cache.fill(b"k", tags(), &rules, work));
        while ground.cache.flights() == 0 {
            tokio::task::yield_now().await;
        }
        ground.cache.drop_tags(&[tag.to_owned()]).await.expect("nobody has to be told");
        // A request that arrives now does not wait for the old fill.
        assert_eq!(ground.fill("k", &rules, Ok("new")).await, Ok("new".into()));
        go.send(()).expect("it waits");
        assert_eq!(
            shown(early.await.expect("not cancelled")),
            Ok("old".into()),
            "who asked before may see it"
        );
        assert_ne!(ground.find("k", &rules), Some(("old".into(), false)));
        assert_eq!(ground.fill("k", &rules, Ok("new")).await, Ok("new".into()));
    }
}

#[tokio::test]
async fn who_cannot_begin_a_fill_is_told_alone() {
    let (ground, rules) = (Ground::new(), rules(|_| {}));
    let refused = || -> Result<std::future::Ready<Result<Filled, Failure>>, Failure> { Err("no place") };
    let landed = ground.cache.fill(b"k", tags(), &rules, refused).await;
    assert_eq!((shown(landed), ground.cache.flights()), (Err("no place".into()), 0));
    ground.cache.refresh(b"k", tags(), &rules, refused);
    assert_eq!(ground.cache.flights(), 0);
    assert_eq!(ground.fill("k", &rules, Ok("one")).await, Ok("one".into()));
}

#[tokio::test]
async fn errors_are_told_and_not_kept() {
    let (ground, rules) = (Ground::new(), rules(|_| {}));
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Err("away".into()));
    assert_eq!(ground.find("k", &rules), None);
    assert_eq!(ground.fill("k", &rules, Ok("one")).await, Ok("one".into()));
    let broken = ground.cache.fill(b"x", tags(), &rules, || Ok(async { panic!("a fill that breaks off") }));
    assert_eq!(shown(broken.await), Err("lost".into()));
    assert_eq!(ground.fill("x", &rules, Ok("two")).await, Ok("two".into()));
}

#[tokio::test]
async fn what_is_missing_is_kept_for_a_time_of_its_own() {
    let (ground, rules) = (Ground::new(), rules(|rules| rules.missing_ms = 100));
    assert_eq!(ground.fill_as("k", &rules, Ok("none"), Keep::Missing).await, Ok("none".into()));
    assert_eq!(ground.find("k", &rules), Some(("none".into(), false)));
    ground.pass(100);
    assert_eq!(ground.find("k", &rules), None);
    let never = self::rules(|rules| rules.missing_ms = 0);
    ground.fill_as("l", &never, Ok("none"), Keep::Missing).await.expect("an answer");
    assert_eq!(ground.find("l", &never), None);
}

#[tokio::test]
async fn stale_answers_stand_in_for_errors_and_for_what_is_on_its_way() {
    let ground = Ground::new();
    let rules = rules(|rules| (rules.stale_while_revalidate_ms, rules.stale_if_error_ms) = (500, 30_000));
    ground.fill("k", &rules, Ok("one")).await.expect("an answer");
    ground.pass(1_000);
    assert_eq!(ground.find("k", &rules), Some(("one".into(), true)), "the first one fetches");
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)), "the others do not");
    ground.pass(500);
    assert_eq!(ground.find("k", &rules), None);
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Ok("one".into()));
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)), "it is not tried again at once");
    ground.pass(1_000);
    assert_eq!(ground.find("k", &rules), Some(("one".into(), true)), "after a second one fetches");
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)), "and nobody waits");
    ground.pass(10_000);
    assert_eq!(ground.find("k", &rules), None, "what failed long ago says nothing of now");
    assert_eq!(ground.fill("k", &rules, Ok("two")).await, Ok("two".into()));
    ground.pass(1_500);
    assert_eq!(ground.find("k", &rules), None, "a failure is forgotten with what failed");
    ground.fill("k", &rules, Ok("two")).await.expect("an answer");
    // A dropped entry is not served when a fill fails.
    ground.cache.drop_here(&["a".to_owned()]);
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Err("away".into()));
    ground.fill("k", &rules, Ok("three")).await.expect("an answer");
    ground.pass(31_001);
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Err("away".into()), "in the end it is too old");
}

#[tokio::test]
async fn what_is_in_use_is_fetched_before_it_ends() {
    let (ground, rules) = (Ground::new(), rules(|rules| rules.refresh_ms = 500));
    ground.fill("k", &rules, Ok("one")).await.expect("an answer");
    ground.pass(300);
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)));
    ground.pass(250);
    assert_eq!(ground.find("k", &rules), Some(("one".into(), true)));
    assert_eq!(ground.find("k", &rules), Some(("one".into(), false)));
    ground.cache.refresh(b"k", tags(), &rules, || Ok(async { Ok(filled("two")) }));
    while ground.cache.flights() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ground.find("k", &rules), Some(("two".into(), false)));
}

#[tokio::test]
async fn an_answer_for_one_is_for_one() {
    let (ground, rules) = (Ground::new(), rules(|_| {}));
    let (go, wait) = oneshot::channel::<()>();
    let work = move || {
        Ok(async move {
            let _ = wait.await;
            Ok(filled("secret").keep(Keep::No))
        })
    };
    let leader = tokio::spawn(ground.cache.fill(b"k", tags(), &rules, work));
    while ground.cache.flights() == 0 {
        tokio::task::yield_now().await;
    }
    let follower = tokio::spawn(ground.cache.fill(b"k", tags(), &rules, || Ok(async { Err("not asked") })));
    tokio::task::yield_now().await;
    go.send(()).expect("it waits");
    assert_eq!(shown(leader.await.expect("not cancelled")), Ok("own secret".into()));
    assert_eq!(shown(follower.await.expect("not cancelled")), Err("alone".into()));
    assert_eq!(ground.find("k", &rules), None);
}

#[tokio::test]
async fn what_an_upstream_says_of_its_answer_counts() {
    let (ground, rules) = (Ground::new(), rules(|rules| rules.stale_if_error_ms = 1_000));
    ground
        .fill_as("k", &rules, Ok("one"), Keep::For { fresh_ms: 100, revalidate_ms: 0, error_ms: 50 })
        .await
        .expect("an answer");
    assert!(ground.find("k", &rules).is_some());
    ground.pass(101);
    assert_eq!(ground.find("k", &rules), None);
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Ok("one".into()));
    ground.pass(50);
    assert_eq!(ground.fill("k", &rules, Err("away")).await, Err("away".into()));
}

#[tokio::test]
async fn bytes_are_bounded_and_a_scan_leaves_what_is_in_use() {
    const BYTES: u64 = 4 << 20;
    let (ground, rules) = (Ground::with_bytes(BYTES), rules(|rules| rules.local_ms = 1_000_000));
    let body: &'static str = "x".repeat(3_000).leak();
    let hot: Vec<String> = (0..100).map(|index| format!("hot {index}")).collect();
    for key in &hot {
        ground.fill(key, &rules, Ok(body)).await.expect("an answer");
    }
    for index in 0..20_000 {
        ground.fill(&format!("cold {index}"), &rules, Ok(body)).await.expect("an answer");
        if index % 5 == 0 {
            ground.find(&hot[index / 5 % hot.len()], &rules);
        }
    }
    let counts = ground.cache.counts();
    assert!(counts.bytes <= BYTES && counts.entries > 500, "{counts:?}");
    let kept = hot.iter().filter(|key| ground.find(key, &rules).is_some()).count();
    assert!(kept > 80, "only {kept} of 100 answers in use were kept");
}
