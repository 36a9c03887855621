//! The memory tier of a config is changed while the former one holds changes that the database lacks: the
//! start is refused, and says how they are drained.

use forebay_tests::{Archive, Folder, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Local, Spec, Topology};

const CONFIG: &str = r#"
[table.notes]
columns = { id = "bigint key", text = "text" }

[[endpoint]]
route = "PUT /notes/{id}"
upsert = "notes"
values = { text = "t" }

[[endpoint]]
route = "GET /count"
count = "notes"
"#;

struct Fixture {
    folder: Folder,
    stores: Stores,
    tier: Local,
}

impl Fixture {
    fn new(stores: Stores) -> Fixture {
        let tier =
            Local::up(Spec::new(Topology::Single).on(Flavour::Redis)).expect("a Redis of the test's own");
        Fixture { folder: Folder::new(), stores, tier }
    }

    fn start(&self, data: &str) -> Start {
        self.start_with(CONFIG, data)
    }

    fn start_with(&self, config: &str, data: &str) -> Start {
        let config = self.folder.write("notes.toml", config);
        Start::new(binary(), &self.folder, &config)
            .database(&self.stores.database_url(&self.folder))
            .data(self.folder.path().join(data))
    }

    fn on_redis(&self, name: &str) -> Start {
        let config = format!("[memory]\nname = \"{name}\"\ndurability = \"async\"\n{CONFIG}");
        self.start_with(&config, "data").memory(&self.tier.url())
    }

    fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    fn stored(&self) -> i64 {
        self.archive().number("SELECT count(*) FROM notes")
    }
}

/// 20 rows drained, and 30 more that are not.
fn fifty(server: &Server) {
    server.wait_healthy();
    let put = |id: u32| drop(server.client().ask("PUT", &format!("/notes/{id}"), Some("{}")).expect(200));
    (0..20).for_each(put);
    server.drain();
    server.pause_drain(true);
    (20..50).for_each(put);
}

#[track_caller]
fn refused(start: &Start) -> String {
    match start.try_start() {
        Ok(server) => panic!("undrained changes are forgotten\n{}", server.output()),
        Err(ended) => ended.output,
    }
}

#[test]
fn from_memory_in_the_process_to_redis() {
    for kills in [false, true] {
        let fixture = Fixture::new(Stores::postgres());
        let server = fixture.start("data").start();
        fifty(&server);
        if kills {
            server.kill()
        } else {
            assert!(server.stop().status.success())
        }
        assert_eq!(fixture.stored(), 20);
        let said = refused(&fixture.on_redis("a"));
        assert!(said.contains("30 changes that are not in"), "{said}");
        let drained = fixture.start("data").run("drain", &[]);
        assert!(drained.status.success(), "{drained:?}");
        let server = fixture.on_redis("a").start();
        server.wait_healthy();
        assert_eq!(fixture.stored(), 50);
        assert_eq!(server.client().get("/count").expect(200)["count"], 50);
    }
}

#[test]
fn to_another_data_folder_after_a_stop() {
    for stores in [Stores::postgres, Stores::sqlite] {
        let fixture = Fixture::new(stores());
        let server = fixture.start("data").start();
        fifty(&server);
        assert!(server.stop().status.success());
        let said = refused(&fixture.start("other"));
        assert!(said.contains("table notes") && said.contains("not in the database"), "{said}");
        let drained = fixture.start("data").run("drain", &[]);
        assert!(drained.status.success(), "{drained:?}");
        let server = fixture.start("other").start();
        server.wait_healthy();
        assert_eq!(server.count_lines("waiting up to"), 0, "{}", server.output());
        assert_eq!(server.client().get("/count").expect(200)["count"], 50);
    }
}

#[test]
fn to_another_name_on_redis() {
    let fixture = Fixture::new(Stores::postgres());
    let server = fixture.on_redis("a").start();
    fifty(&server);
    assert!(server.stop().status.success());
    assert_eq!(fixture.stored(), 20);
    let said = refused(&fixture.on_redis("b"));
    assert!(said.contains("table notes") && said.contains("not in the database"), "{said}");
    let said = refused(&fixture.start("own"));
    assert!(said.contains("table notes") && said.contains("not in the database"), "{said}");
    let drained = fixture.on_redis("a").run("drain", &[]);
    assert!(drained.status.success(), "{drained:?}");
    let server = fixture.on_redis("b").start();
    server.wait_healthy();
    assert_eq!(fixture.stored(), 50);
    assert_eq!(server.client().get("/count").expect(200)["count"], 50);
}

/// A copy of the database lacks what the original lacks, and nobody will bring it.
#[test]
fn a_copy_of_the_database_is_not_waited_for() {
    let fixture = Fixture::new(Stores::postgres());
    let server = fixture.start("data").start();
    fifty(&server);
    assert!(server.stop().status.success());
    refused(&fixture.start("other"));
    fixture.archive().rows("UPDATE forebay_log SET server = 'another/1'");
    let server = fixture.start("other").start();
    server.wait_healthy();
    assert_eq!(server.client().get("/count").expect(200)["count"], 20);
}
