//! Two servers with separate embedded tiers on one table: the second is refused while the first runs,
//! and takes the table over when the first has ended.

use forebay_tests::{Folder, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Spec, Topology};
use rustix::process::Signal;

const CONFIG: &str = r#"
[table.notes]
columns = { id = "bigint key", text = "text" }

[[endpoint]]
route = "PUT /notes/{id}"
upsert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"
"#;

const REFUSED: &str = "another server writes to table notes";

struct Fixture {
    folder: Folder,
    stores: Stores,
    /// Whether the servers have different schemas for the tables of Forebay, as with other search paths.
    apart: bool,
}

impl Fixture {
    fn on(stores: Stores) -> Fixture {
        Fixture { folder: Folder::new(), stores, apart: false }
    }

    fn start(&self, data: &str) -> Start {
        self.start_with(data, CONFIG)
    }

    fn start_with(&self, data: &str, config: &str) -> Start {
        let config = self.folder.write(&format!("{data}.toml"), config);
        let mut url = self.stores.database_url(&self.folder);
        if self.apart {
            let join = if url.contains('?') { '&' } else { '?' };
            url += &format!("{join}own_schema=_forebay_{data}");
        }
        let start = Start::new(binary(), &self.folder, &config).database(&url);
        start.data(self.folder.path().join(data))
    }

    fn stored(&self) -> Vec<String> {
        let rows = self.stores.archive(&self.folder).rows("SELECT id FROM notes ORDER BY id");
        rows.into_iter().filter_map(|row| row[0].clone()).collect()
    }
}

#[track_caller]
fn put(server: &Server, id: u32) {
    server.client().ask("PUT", &format!("/notes/{id}"), Some(r#"{"text":"t"}"#)).expect(200);
}

#[track_caller]
fn refused(start: &Start) {
    let Err(ended) = start.try_start() else { panic!("two servers write to one table") };
    assert!(!ended.status.success() && ended.output.contains(REFUSED), "{ended:?}");
    assert!(ended.output.contains("(process ") && ended.output.contains("with log"), "{ended:?}");
}

#[test]
fn a_second_folder_on_one_table_is_refused_while_the_first_lives() {
    for (stores, apart) in
        [(Stores::new as fn() -> Stores, false), (Stores::pgbouncer, false), (Stores::postgres, true)]
    {
        let fixture = Fixture { apart, ..Fixture::on(stores()) };
        let first = fixture.start("first").start();
        put(&first, 1);
        first.drain();
        refused(&fixture.start("second"));
        // A server that only waits keeps its claim too.
        refused(&fixture.start("second"));
        put(&first, 2);
        first.drain();
        // A stop releases the table at once.
        assert!(first.stop().status.success());
        let second = fixture.start("second").start();
        second.wait_healthy();
        assert_eq!(second.count_lines("waiting up to"), 0, "{}", second.output());
        second.client().get("/notes/2").expect(200);
        // The claim of a killed server ends after a while.
        second.kill();
        let first = fixture.start("first").start();
        first.wait_for_output("waiting up to");
        first.wait_healthy();
        // Rows that the other server wrote are not in the first server's old memory.
        first.client().get("/notes/2").expect(200);
        put(&first, 3);
        first.drain();
        assert_eq!(fixture.stored(), ["1", "2", "3"]);
    }
}

#[test]
fn a_server_that_stood_still_while_another_took_over_writes_nothing() {
    for apart in [false, true] {
        still_while_another_takes_over(&Fixture { apart, ..Fixture::on(Stores::postgres()) });
    }
}

fn still_while_another_takes_over(fixture: &Fixture) {
    let first = fixture.start("first").start();
    put(&first, 1);
    first.drain();
    first.signal(Signal::STOP);
    let second = fixture.start("second").start();
    put(&second, 2);
    second.drain();
    assert!(second.stop().status.success());
    first.signal(Signal::CONT);
    put(&first, 3);
    let state = wait_for("the first is fenced", || {
        let state = first.drain_state();
        (state["status"] == "fenced").then_some(state)
    });
    assert!(state["last_error"].as_str().is_some_and(|error| error.contains("has taken over")), "{state}");
    assert_eq!(fixture.stored(), ["1", "2"]);
    first.kill();
    // After a restart the first server sees the other's rows, and drains the writes that it had
    // acknowledged.
    let first = fixture.start("first").start();
    first.wait_healthy();
    first.client().get("/notes/2").expect(200);
    first.drain();
    assert_eq!(fixture.stored(), ["1", "2", "3"]);
}

#[test]
fn tables_that_others_may_write_to_are_not_claimed() {
    let fixture = Fixture::on(Stores::postgres());
    let shared = CONFIG.replace("[table.notes]", "[table.notes]\nfollow = false");
    let (first, second) =
        (fixture.start_with("a", &shared).start(), fixture.start_with("b", &shared).start());
    put(&first, 1);
    put(&second, 2);
    first.drain();
    second.drain();
    assert_eq!(fixture.stored(), ["1", "2"]);
}

#[test]
fn servers_of_one_tier_claim_together_and_keep_others_out() {
    let fixture = Fixture::on(Stores::postgres());
    let local =
        || Local::up(Spec::new(Topology::Single).on(Flavour::Redis)).expect("a Redis of the test's own");
    let (tier, other) = (local(), local());
    let start =
        |data: &str, memory: &Local| fixture.start(data).memory(&memory.url()).set("memory.durability=async");
    let (first, second) = (start("a", &tier).start(), start("b", &tier).start());
    for (server, id) in [(&first, 1), (&second, 2)] {
        server.wait_healthy();
        put(server, id);
    }
    first.drain();
    refused(&start("c", &other));
    refused(&fixture.start("d"));
    put(&second, 3);
    second.drain();
    assert_eq!(fixture.stored(), ["1", "2", "3"]);
    // Both are gone: a server with its own folder takes the table over, and the tier's servers are
    // told.
    first.kill();
    second.kill();
    let alone = fixture.start("d").start();
    put(&alone, 4);
    alone.drain();
    let ended = start("a", &tier).try_start().err().expect("it is refused");
    assert!(ended.output.contains(REFUSED) || ended.output.contains("has taken over"), "{ended:?}");
}
