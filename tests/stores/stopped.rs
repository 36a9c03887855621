//! A process that SIGTERM ends releases its leases: other processes continue at once, also when its
//! database did not answer.

use super::Fixture;
use super::writers::Writers;
use forebay_tests::{Cable, Postgres, Stores, wait_for};
use forebay_topology::{Flavour, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Instant;

const SOME: usize = 200;
/// Enough rows that loading takes longer than detecting that it has begun.
const ROWS: usize = 300_000;

/// The keys of the tier with this suffix, each with its text.
fn keys(fixture: &Fixture, end: &str) -> Vec<(String, String)> {
    let node = ("127.0.0.1", fixture.memory.nodes()[0].port);
    let mut connection =
        redis::Client::open(node).and_then(|client| client.get_connection()).expect("the node answers");
    let mut names: Vec<String> =
        redis::cmd("KEYS").arg(format!("*:{end}")).query(&mut connection).expect("names");
    names.sort();
    let get = |name: String| {
        let text: Option<Vec<u8>> = redis::cmd("GET").arg(&name).query(&mut connection).expect("a text");
        Some((name, String::from_utf8_lossy(&text?).into_owned()))
    };
    names.into_iter().filter_map(get).collect()
}

fn term(process: &mut std::process::Child) {
    kill_process(Pid::from_child(process), Signal::TERM).expect("it runs");
    assert!(process.wait().expect("a child can be waited for").success());
}

#[test]
fn the_shards_of_a_worker_that_is_told_to_stop_are_free_at_once() {
    let postgres = Postgres::start(&[]);
    let fixture =
        Fixture::on(Topology::Single, Flavour::Redis, || Stores::postgres_at(&postgres.server_url()));
    let cable = Cable::to(postgres.port());
    let direct = fixture.stores.database_url(&fixture.folder);
    let through = direct.replace(&format!(":{}/", postgres.port()), &format!(":{}/", cable.address.port()));
    let server = fixture.start("a", "sync").argument("--without").argument("drain").start();
    server.wait_healthy();
    let writers = Writers::start(&[server.address], 4);
    let worker = |name: &str| fixture.start(name, "sync").argument("--forever").set("server.stop_timeout=1s");
    let wait_for_worker = |pid: u32| {
        let is_it =
            |name: &Value| name.as_str().is_some_and(|name| name.ends_with(&format!("(process {pid})")));
        wait_for("it alone holds all shards", || {
            let held = keys(&fixture, "l");
            let all = server.drain_state()["shards"].as_u64()? as usize;
            (held.len() == all && held.iter().all(|(_, owner)| is_it(&json!(owner)))).then_some(())
        });
    };
    let mut first = worker("b").spawn("drain");
    for is_answered in [true, false] {
        wait_for_worker(first.id());
        let next = if is_answered { worker("c").database(&through) } else { worker("d") };
        let next = next.spawn("drain");
        writers.wait_for_more(SOME);
        if !is_answered {
            cable.hold();
            wait_for("a batch is on its way", || (cable.held_bytes() > 0).then_some(()));
        }
        let own = format!("(process {})", first.id());
        term(&mut first);
        let ended = Instant::now();
        let left = keys(&fixture, "l");
        assert!(left.iter().all(|(_, owner)| !owner.ends_with(&own)), "{own}: {left:?}");
        cable.release();
        first = next;
        wait_for_worker(first.id());
        println!("taken over {} ms after the exit", ended.elapsed().as_millis());
    }
    let told = writers.stop();
    server.admin("POST", "/drain/finish").expect(200);
    fixture.assert_drained(&server, &told);
    term(&mut first);
}

#[test]
fn a_table_that_a_stopped_server_was_loading_is_free_at_once() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let mut other = postgres::Client::connect(&fixture.stores.database_url(&fixture.folder), postgres::NoTls)
        .expect("a connection");
    let make = format!(
        "CREATE TABLE plain (id uuid PRIMARY KEY, token text NOT NULL);
         INSERT INTO plain SELECT gen_random_uuid(), 'token ' || n FROM generate_series(1, {ROWS}) AS n"
    );
    other.batch_execute(&make).expect("a table");
    let mut loading = fixture.start("a", "sync").try_start().expect("it loads");
    wait_for("it loads a table", || (!keys(&fixture, "w*").is_empty()).then_some(()));
    loading.signal(Signal::TERM);
    assert!(loading.wait().status.success());
    assert_eq!(keys(&fixture, "w*"), []);
    let next = fixture.start("b", "sync").start();
    next.wait_healthy();
    assert_eq!(next.admin("GET", "/tables").expect(200)["tables"][0]["rows"], ROWS);
}
