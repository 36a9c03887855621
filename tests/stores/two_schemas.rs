//! Two applications in two schemas of one PostgreSQL database, each with its own Forebay: tables, keys and
//! memory tier of the same names. Neither meets the other's claims, dead letters, held changes or triggers.
//! And one application whose server is told another schema.

use forebay_tests::{Folder, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Spec, Topology};

const TABLES: &str = "CREATE TABLE SCHEMA.parents (id bigint PRIMARY KEY, name text);
    CREATE TABLE SCHEMA.a (id bigint PRIMARY KEY, parent bigint REFERENCES SCHEMA.parents, n bigint NOT NULL DEFAULT 0);
    INSERT INTO SCHEMA.parents VALUES (1, 'SCHEMA')";

const CONFIG: &str = r#"
[table.a]
#OWN

[table.parents]
follow = false

[[endpoint]]
route = "GET /a/{id}"
get = "a"

[[endpoint]]
route = "PUT /a/{id}"
upsert = "a"
values = { parent = "$parent", n = "$n" }

[[endpoint]]
route = "PUT /parents/{id}"
upsert = "parents"
values = { name = "$name" }
"#;

struct Pair {
    folder: Folder,
    stores: Stores,
}

const SCHEMAS: [&str; 2] = ["one", "two"];

impl Pair {
    fn new() -> Pair {
        let pair = Pair { folder: Folder::new(), stores: Stores::postgres() };
        for schema in SCHEMAS {
            pair.sql(&format!("CREATE SCHEMA {schema}; {}", TABLES.replace("SCHEMA", schema)));
        }
        pair
    }

    /// The application in this schema.
    fn start(&self, schema: &str, own: &str, params: &str) -> Start {
        let config = self.folder.write(&format!("{schema}.toml"), &CONFIG.replace("#OWN", own));
        let data = self.folder.path().join(schema);
        Start::new(binary(), &self.folder, &config).database(&self.url(schema, params)).data(data)
    }

    fn url(&self, path: &str, params: &str) -> String {
        let url = self.stores.database_url(&self.folder);
        let join = if url.contains('?') { '&' } else { '?' };
        format!("{url}{join}options=-csearch_path%3D{path}{params}")
    }

    #[track_caller]
    fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.stores.archive(&self.folder).rows(sql)
    }

    #[track_caller]
    fn number(&self, sql: &str) -> i64 {
        self.stores.archive(&self.folder).number(sql)
    }

    #[track_caller]
    fn unfollow(&self, start: &Start, arguments: &[&str]) -> (bool, String) {
        let ended = start.run("unfollow", arguments);
        let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8(said).expect("UTF-8"));
        (ended.status.success(), said.concat())
    }
}

#[track_caller]
fn put(server: &Server, id: u32, parent: u32, n: u32) {
    let row = format!(r#"{{"parent":{parent},"n":{n}}}"#);
    let answer = server.client().ask("PUT", &format!("/a/{id}"), Some(&row));
    assert!(answer.status < 300, "{answer:?}");
}

#[track_caller]
fn wait_n(server: &Server, id: u32, n: u32) {
    wait_for("it is followed", || (server.client().get(&format!("/a/{id}")).json()["n"] == n).then_some(()));
}

#[test]
fn applications_in_two_schemas_of_one_database_are_strangers() {
    for (own, params) in [("follow = false", ""), ("", ""), ("", "&follow=triggers")] {
        let pair = Pair::new();
        let starts = SCHEMAS.map(|schema| pair.start(schema, own, params));
        let [one, two] = starts.each_ref().map(Start::start);
        [&one, &two].into_iter().for_each(Server::wait_healthy);
        put(&one, 1, 1, 1);
        // The same key is a dead letter of one, and a row of the other.
        put(&one, 9, 99, 1);
        wait_for("it is a dead letter", || (one.drain_state()["dead_total"] == 1).then_some(()));
        for n in [2, 3] {
            put(&two, 1, 1, n);
            put(&two, 9, 1, n);
            two.drain();
        }
        assert_eq!(two.drain_state()["dead_total"], 0);
        let letters =
            "SELECT count(*) FILTER (WHERE superseded_by IS NULL) FROM _forebay_SCHEMA.forebay_dead_letter";
        let letters = SCHEMAS.map(|schema| pair.number(&letters.replace("SCHEMA", schema)));
        assert_eq!(letters, [1, 0]);
        for (schema, rows) in [("one", "1=1"), ("two", "1=3 9=3")] {
            let found =
                pair.sql(&format!("SELECT string_agg(id || '=' || n, ' ' ORDER BY id) FROM {schema}.a"));
            assert_eq!(found[0][0].as_deref(), Some(rows));
        }
        // One leaves; its dead letter comes first.
        assert!(one.stop().status.success());
        let (done, said) = pair.unfollow(&starts[0], &["--all"]);
        assert!(!done && said.contains("forebay_dead_letter is not empty"), "{said}");
        pair.sql("DELETE FROM _forebay_one.forebay_dead_letter");
        for arguments in [&[][..], &["--all"]] {
            let (done, said) = pair.unfollow(&starts[0], arguments);
            assert!(done && !said.contains("two"), "{said}");
        }
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE '\\_forebay%'";
        assert_eq!(pair.number(left), 1, "that of the other");
        assert_eq!(pair.number("SELECT count(*) FROM one.a"), 1);
        // The other goes on, in both directions.
        put(&two, 2, 1, 5);
        two.drain();
        assert_eq!(pair.number("SELECT n FROM two.a WHERE id = 2"), 5);
        if own.is_empty() {
            pair.sql("UPDATE two.a SET n = 7 WHERE id = 2");
            wait_n(&two, 2, 7);
        }
        assert_eq!(
            (two.drain_state()["dead_total"].clone(), two.count_lines("again")),
            (0.into(), 0),
            "{}",
            two.output()
        );
        assert!(two.stop().status.success());
        let (done, said) = pair.unfollow(&starts[1], &["--all"]);
        assert!(done, "{said}");
        assert_eq!(pair.number(left), 0, "{said}");
    }
}

/// Children before their parents, in shards that are drained at once: they are held until their parents come.
#[test]
fn what_one_tier_holds_back_the_other_leaves_alone() {
    let pair = Pair::new();
    let tiers = SCHEMAS.map(|_| {
        Local::up(Spec::new(Topology::Single).on(Flavour::Redis)).expect("a Redis of the test's own")
    });
    let starts = [0, 1].map(|at: usize| {
        let start = pair.start(SCHEMAS[at], "follow = false", "").memory(&tiers[at].url());
        start.set("memory.durability=async")
    });
    let servers = starts.each_ref().map(Start::start);
    servers.iter().for_each(Server::wait_healthy);
    for round in 0..3 {
        servers.iter().for_each(|server| server.pause_drain(true));
        for id in (round * 100)..(round * 100 + 60) {
            for (at, server) in servers.iter().enumerate() {
                // In one application every third has no parent, in the other none lacks it.
                put(server, id + 1, 1_000 + id, at as u32);
                if at == 1 || id % 3 > 0 {
                    let row = r#"{"name":"x"}"#;
                    let answer = server.client().ask("PUT", &format!("/parents/{}", 1_000 + id), Some(row));
                    assert!(answer.status < 300, "{answer:?}");
                }
            }
        }
        servers.iter().for_each(|server| server.pause_drain(false));
        servers.iter().for_each(Server::drain);
    }
    for (schema, server, rows) in [("one", &servers[0], 120), ("two", &servers[1], 180)] {
        assert_eq!(pair.number(&format!("SELECT count(*) FROM {schema}.a")), rows, "{}", server.output());
        assert_eq!(pair.number(&format!("SELECT count(*) FROM _forebay_{schema}.forebay_held")), 0);
        let dead = pair.number(&format!("SELECT count(*) FROM _forebay_{schema}.forebay_dead_letter"));
        assert_eq!(dead, 180 - rows);
    }
}

const OWN: &str = "columns = { id = \"bigint key\", parent = \"bigint null\", n = \"bigint\" }";

/// Undrained changes are not drained into the wrong tables, nor a second time, nor forgotten.
#[test]
fn a_search_path_or_schema_that_was_changed_is_refused() {
    for (own, params) in [(OWN, ""), ("", "&follow=logical"), ("", "&follow=triggers")] {
        let pair = Pair::new();
        pair.sql("CREATE SCHEMA aside");
        let start = pair.start("one", own, params);
        for drained in [false, true] {
            let server = start.start();
            server.wait_healthy();
            if drained {
                server.drain();
            }
            server.pause_drain(true);
            put(&server, 2 + u32::from(drained), 1, 1);
            assert!(server.stop().status.success());
            for (path, own) in
                [("aside%2Cone", ""), ("two", ""), ("public%2Cone", ""), ("one", "&own_schema=_mine")]
            {
                let moved = start.clone().database(&pair.url(path, &format!("{params}{own}")));
                for start in [moved.clone(), moved.argument("--new-database")] {
                    let Err(ended) = start.try_start() else { panic!("it starts with {path} {own}") };
                    assert!(ended.output.contains("own_schema=_forebay_one"), "{path} {own}: {ended:?}");
                }
            }
            assert_eq!(pair.number("SELECT count(*) FROM one.a"), i64::from(drained));
        }
        // Another path, and the schema as before.
        let params = format!("{params}&own_schema=_forebay_one");
        let server = start.clone().database(&pair.url("aside%2Cone", &params)).start();
        server.drain();
        assert_eq!(pair.number("SELECT sum(n) FROM one.a WHERE id IN (2, 3)"), 2);
        assert_eq!(pair.number("SELECT count(*) FROM two.a"), 0);
    }
}

/// The tier is named after what is in the schema: the changes in it would be forgotten.
#[test]
fn a_tier_whose_schema_was_changed_is_not_left_behind() {
    let pair = Pair::new();
    let tier = Local::up(Spec::new(Topology::Single).on(Flavour::Redis)).expect("a Redis of the test's own");
    let start = pair.start("one", OWN, "").memory(&tier.url()).set("memory.durability=async");
    let server = start.start();
    server.wait_healthy();
    server.pause_drain(true);
    put(&server, 2, 1, 1);
    assert!(server.stop().status.success());
    let Err(ended) = start.clone().database(&pair.url("one", "&own_schema=_mine")).try_start() else {
        panic!("it starts")
    };
    assert!(ended.output.contains("table a") && ended.output.contains("not in the database"), "{ended:?}");
    let server = start.start();
    server.drain();
    assert_eq!(pair.number("SELECT n FROM one.a WHERE id = 2"), 1);
}
