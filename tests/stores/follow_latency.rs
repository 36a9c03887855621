//! How long a committed change takes until it is served, under load, and how many changes a second are
//! applied to memory.

use super::beside::Beside;
use super::follow::wait_following;
use forebay_tests::{Client, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TABLE: &str = "CREATE TABLE things (id bigint PRIMARY KEY, seen bigint NOT NULL, text text);
    INSERT INTO things SELECT n, 0, repeat('t', 100) FROM generate_series(1, 20000) n";

const CONFIG: &str = r#"
[table.things]

[[endpoint]]
route = "GET /things/{id}"
get = "things"

[[endpoint]]
route = "GET /count"
count = "things"
"#;

/// Changes a second by others.
const RATE: u64 = 1_000;

/// Between the requests of one reader: about 2,000 a second. Readers without a pause fill both cores of a
/// small machine, and then the kernel's fair share among sessions (`sched_autogroup_enabled`) can leave
/// PostgreSQL without a core for seconds.
const PAUSE: Duration = Duration::from_micros(500);

#[test]
fn a_thousand_changes_a_second_are_seen_at_once() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    let url = beside.stores.database_url(&beside.folder);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        // Ten changes in each transaction, so that slow machines reach the rate too.
        scope.spawn(|| {
            let mut others = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
            let began = Instant::now();
            let sql = "UPDATE things SET text = $1 WHERE id BETWEEN $2 AND $2 + 9";
            for round in 0i64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                others
                    .execute(sql, &[&round.to_string(), &(10 + round * 10 % 19_900)])
                    .expect("others write");
                let due = began + Duration::from_millis(round as u64 * 10_000 / RATE);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        let mut reader = server.client();
        scope.spawn(move || {
            for id in 10.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                reader.get(&format!("/things/{}", 10 + id % 19_000)).expect(200);
                std::thread::sleep(PAUSE);
            }
        });
        let mut mark = postgres::Client::connect(&url, postgres::NoTls).expect("PostgreSQL is there");
        let mut client = server.client();
        let mut took = Vec::new();
        for number in 1..=100i64 {
            mark.execute("UPDATE things SET seen = $1 WHERE id = 1", &[&number]).expect("it is marked");
            let committed = Instant::now();
            while client.get("/things/1").expect(200)["seen"] != number {
                assert!(committed.elapsed() < Duration::from_secs(30), "change {number} is not seen");
                std::thread::sleep(PAUSE);
            }
            took.push(committed.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        took.sort_unstable();
        eprintln!("commit to visible: p50 {:?}, p99 {:?}, max {:?}", took[49], took[98], took[99]);
    });
}

/// Reads a row repeatedly until `is_over`. Returns the longest time of an answer.
fn longest_read(mut reader: Client, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    for id in 1.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let asked = Instant::now();
        reader.get(&format!("/things/{}", 1 + id % 20_000)).expect(200);
        longest = longest.max(asked.elapsed());
        std::thread::sleep(PAUSE);
    }
    longest
}

#[test]
fn a_hundred_thousand_rows_by_copy_arrive() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    wait_following(&server);
    let (mut others, mut client) = (
        postgres::Client::connect(&beside.stores.database_url(&beside.folder), postgres::NoTls)
            .expect("PostgreSQL is there"),
        server.client(),
    );
    let rows =
        std::env::var("FOREBAY_FOLLOW_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(100_000);
    let text: String = (20_001..=20_000 + rows).map(|id| format!("{id}\t0\tcopied\n")).collect();
    let reading = |while_this: &mut dyn FnMut()| {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = server.client();
            let longest = scope.spawn(|| longest_read(reader, &is_over));
            while_this();
            is_over.store(true, Ordering::Relaxed);
            longest.join().expect("a reader")
        })
    };
    let quiet = reading(&mut || std::thread::sleep(Duration::from_secs(2)));
    let mut seconds = 0.0;
    let beside_it = reading(&mut || {
        let mut copy = others.copy_in("COPY things FROM STDIN").expect("a COPY begins");
        std::io::Write::write_all(&mut copy, text.as_bytes()).expect("rows are sent");
        copy.finish().expect("the COPY ends");
        let committed = Instant::now();
        let expected = 20_000 + rows;
        let arrived = || (client.get("/count").expect(200)["count"] == expected).then_some(());
        wait_for("all rows are there", arrived);
        seconds = committed.elapsed().as_secs_f64();
    });
    eprintln!("{rows} rows by COPY: {seconds:.2} s, {:.0} rows/s", rows as f64 / seconds);
    eprintln!("the longest read: {beside_it:?} meanwhile, {quiet:?} before");
    let checks = server.admin("POST", "/verify").expect(200);
    assert_eq!(checks["checks"][0]["clean"], true, "{checks}");
}
