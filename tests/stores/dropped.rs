//! A column that others drop, and that nothing in the config names, while acknowledged writes have it: they
//! are drained without it, whenever the drop comes, and nothing becomes a dead letter. And what a config that
//! does name such a column gets: the endpoints that name it answer 503, and what they have set waits.

use super::beside::Beside;
use super::follow::{assert_verified, wait_following, wait_shown, wait_status};
use forebay_tests::{Server, Start, Stores, wait_for};

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, n integer NOT NULL DEFAULT 5, z integer);
    INSERT INTO t VALUES (1, 7, 1)";

const CONFIG: &str = r#"
[table.t]
# follow

[[endpoint]]
route = "GET /t/{id}"
get = "t"

[[endpoint]]
route = "GET /t"
list = "t"

[[endpoint]]
route = "POST /t"
insert = "t"
values = { id = "$id", z = "$z" }

[[endpoint]]
route = "POST /strict/t"
insert = "t"
durability = "database"
values = { id = "$id", z = "$z" }

[[endpoint]]
route = "PATCH /t/{id}"
update = "t"
values = { z = "$z" }
"#;

const DROP: &str = "ALTER TABLE t DROP COLUMN n";
const ADD: &str = "ALTER TABLE t ADD COLUMN n integer NOT NULL DEFAULT 6";

/// A way in which other writers' changes are reported, or none.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Logical,
    Triggers,
    Sqlite,
    /// `follow = false`, on PostgreSQL.
    Unseen,
}

const FOLLOWED: [Way; 3] = [Way::Logical, Way::Triggers, Way::Sqlite];

impl Way {
    fn beside(self, config: &str) -> Beside {
        let stores = if self == Way::Sqlite { Stores::sqlite() } else { Stores::postgres() };
        let config = match self {
            Way::Unseen => {
                config.replace("# follow", "follow = false").replace("list = \"t\"", "count = \"t\"")
            }
            _ => config.to_owned(),
        };
        Beside::on(stores, TABLE, &config)
    }

    fn start(self, beside: &Beside) -> Start {
        let suffix = match self {
            Way::Logical => "?follow=logical",
            Way::Triggers => "?follow=triggers",
            Way::Sqlite | Way::Unseen => "",
        };
        beside.start().database(&format!("{}{suffix}", beside.stores.database_url(&beside.folder)))
    }

    #[track_caller]
    fn started(self, beside: &Beside) -> Server {
        let server = self.start(beside).start();
        server.wait_healthy();
        if self != Way::Unseen {
            wait_following(&server);
        }
        server
    }
}

#[track_caller]
fn post(server: &Server, route: &str, id: i64) {
    let answer = server.client().post_json(route, &format!("{{\"id\":{id},\"z\":{id}}}"));
    assert_eq!(answer.status, 201, "{}\n{}", answer.text(), server.output());
    assert_eq!(answer.json()["z"], id, "{}", answer.text());
}

/// A start without a checkpoint knows no columns of before.
#[track_caller]
fn checkpoint(server: &Server) {
    server.checkpoint();
}

/// What remains is `known.json`.
fn forget_checkpoint(beside: &Beside) {
    let path = beside.folder.data().join("checkpoint");
    if path.exists() {
        std::fs::remove_file(path).expect("it can be removed");
    }
}

/// A column that no start has known is a mistake, with a checkpoint or without one.
#[test]
fn a_config_that_names_a_column_that_never_was_is_refused() {
    for way in FOLLOWED {
        let beside = way.beside(CONFIG);
        for has_known in [false, true] {
            if has_known {
                way.started(&beside).kill();
            }
            beside.folder.write("beside.toml", &CONFIG.replace("z = \"$z\" }", "zz = \"$z\" }"));
            let refused = way.start(&beside).try_start().err().expect("it is refused");
            assert!(refused.output.contains("table t has no column `zz`"), "{}", refused.output);
            beside.folder.write("beside.toml", CONFIG);
        }
    }
}

/// Each row of the database is shown, and no column that it lacks.
#[track_caller]
fn assert_shown(beside: &Beside, server: &Server, way: Way) {
    let object = if way == Way::Sqlite { "json_object" } else { "json_build_object" };
    let columns = if beside.has_n() { "'id', id, 'n', n, 'z', z" } else { "'id', id, 'z', z" };
    for row in beside.sql(&format!("SELECT CAST({object}({columns}) AS text), id FROM t ORDER BY id")) {
        let expected: serde_json::Value =
            serde_json::from_str(row[0].as_deref().expect("JSON")).expect("JSON");
        let route = format!("/t/{}", row[1].as_deref().expect("a key"));
        let (mut client, mut last) = (server.client(), String::new());
        wait_for(&format!("{route} shows {expected}"), || {
            let answer = client.get(&route);
            last = format!("{} {}", answer.status, answer.text());
            (answer.status == 200 && answer.json() == expected).then_some(())
        });
    }
}

impl Beside {
    fn has_n(&self) -> bool {
        let sql = match self.stores.is_postgres() {
            true => {
                "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'n' AND NOT attisdropped"
            }
            false => "SELECT name FROM pragma_table_info('t') WHERE name = 'n'",
        };
        !self.sql(sql).is_empty()
    }
}

/// Writes wait in the log when the column is dropped, and when it is added again.
#[test]
fn waiting_writes_are_drained_without_the_column() {
    for way in FOLLOWED {
        let beside = way.beside(CONFIG);
        let server = way.started(&beside);
        server.pause_drain(true);
        post(&server, "/t", 10);
        let mut client = server.client();
        client.ask("PATCH", "/t/1", Some("{\"z\":2}")).expect(200);
        beside.sql(DROP);
        wait_for("the column is not shown", || client.get("/t/10").json().get("n").is_none().then_some(()));
        post(&server, "/t", 11);
        assert_eq!(client.get("/t").expect(200)[0].get("n"), None);
        server.drain();
        let rows = "SELECT count(*) FROM t WHERE (id, z) IN ((1, 2), (10, 10), (11, 11))";
        beside.wait_for_text(&server, rows, "3");
        assert_shown(&beside, &server, way);
        // A row that is written while the column is away, and drained when it is back.
        server.pause_drain(true);
        post(&server, "/t", 12);
        beside.sql(ADD);
        wait_shown(&server, "/t/1", "/n", &6.into());
        post(&server, "/t", 13);
        server.drain();
        beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE id IN (12, 13) AND n = 6", "2");
        assert_shown(&beside, &server, way);
        assert_eq!(beside.dead_letters(), 0);
        assert_verified(&server);
    }
}

/// The server is killed with such writes in its log.
#[test]
fn writes_are_drained_without_the_column_after_a_kill() {
    for way in FOLLOWED {
        for has_checkpoint in [false, true] {
            let beside = way.beside(CONFIG);
            let server = way.started(&beside);
            if has_checkpoint {
                checkpoint(&server);
            }
            server.pause_drain(true);
            post(&server, "/t", 10);
            server.client().ask("PATCH", "/t/1", Some("{\"z\":2}")).expect(200);
            server.kill();
            beside.sql(DROP);
            let server = way.started(&beside);
            beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE (id, z) IN ((1, 2), (10, 10))", "2");
            assert_shown(&beside, &server, way);
            // The other way round: written without, drained with it.
            server.pause_drain(true);
            post(&server, "/t", 11);
            server.kill();
            beside.sql(ADD);
            let server = way.started(&beside);
            beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE id = 11 AND n = 6", "1");
            assert_shown(&beside, &server, way);
            // Gone and back while one server runs, and killed before the drain.
            beside.sql(DROP);
            wait_for("the column is not shown", || {
                server.client().get("/t/1").json().get("n").is_none().then_some(())
            });
            server.pause_drain(true);
            post(&server, "/t", 12);
            server.kill();
            beside.sql(ADD);
            let server = way.started(&beside);
            beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE id = 12 AND n = 6", "1");
            assert_shown(&beside, &server, way);
            assert_eq!(beside.dead_letters(), 0);
            assert_verified(&server);
        }
    }
}

/// Strict writes that begin before the follower has seen the drop.
#[test]
fn strict_writes_go_on_without_the_column() {
    for way in [Way::Logical, Way::Triggers, Way::Sqlite, Way::Unseen] {
        let beside = way.beside(CONFIG);
        let server = way.started(&beside);
        beside.sql(DROP);
        post(&server, "/strict/t", 10);
        assert_eq!(beside.text("SELECT count(*) FROM t WHERE id = 10 AND z = 10"), "1");
        if way != Way::Unseen {
            wait_for("the column is not shown", || {
                server.client().get("/t/1").json().get("n").is_none().then_some(())
            });
            assert_shown(&beside, &server, way);
            beside.sql(ADD);
            wait_shown(&server, "/t/1", "/n", &6.into());
        }
        post(&server, "/strict/t", 11);
        assert_shown(&beside, &server, way);
        assert_eq!(beside.dead_letters(), 0);
    }
}

/// A table whose rows are read when they are asked for.
#[test]
fn a_table_that_is_not_followed_is_served_without_the_column() {
    let beside = Way::Unseen.beside(CONFIG);
    beside.sql("INSERT INTO t VALUES (2, 7, 2), (3, 7, 3)");
    let server = Way::Unseen.started(&beside);
    let mut client = server.client();
    client.get("/t/1").expect(200);
    beside.sql(DROP);
    for id in [1, 2, 3] {
        wait_for("the row is shown without the column", || {
            let answer = client.get(&format!("/t/{id}"));
            (answer.status == 200 && answer.json() == serde_json::json!({ "id": id, "z": id })).then_some(())
        });
    }
    post(&server, "/t", 10);
    client.ask("PATCH", "/t/2", Some("{\"z\":5}")).expect(200);
    server.drain();
    assert_eq!(
        beside.text("SELECT string_agg(concat(id, ':', z), ' ' ORDER BY id) FROM t"),
        "1:1 2:5 3:3 10:10"
    );
    assert_eq!(beside.dead_letters(), 0);
    assert_verified(&server);
}

/// A reload that names the column is refused; one that no longer names it serves the table again.
#[test]
fn a_reload_knows_which_columns_are_needed() {
    for way in FOLLOWED {
        let named = CONFIG.replace("values = { z = \"$z\" }", "values = { z = \"$z\", n = \"$n\" }");
        let beside = way.beside(CONFIG);
        let server = way.started(&beside);
        beside.sql(DROP);
        wait_for("the column is not shown", || {
            server.client().get("/t/1").json().get("n").is_none().then_some(())
        });
        beside.folder.write("beside.toml", &named);
        let refused = server.admin("POST", "/reload");
        assert!(
            refused.status >= 400 && refused.text().contains("table t has no column n"),
            "{} {}",
            refused.status,
            refused.text()
        );
        server.client().get("/t/1").expect(200);
        beside.sql(ADD);
        wait_shown(&server, "/t/1", "/n", &6.into());
        server.admin("POST", "/reload").expect(200);
        beside.sql(DROP);
        wait_lacking(&server);
        // Another reload that names it as before changes nothing.
        server.admin("POST", "/reload").expect(200);
        wait_lacking(&server);
        beside.folder.write("beside.toml", CONFIG);
        server.admin("POST", "/reload").expect(200);
        server.client().ask("PATCH", "/t/1", Some("{\"z\":3}")).expect(200);
        server.drain();
        assert_shown(&beside, &server, way);
        assert_verified(&server);
    }
}

/// The config whose PATCH names `n`.
fn named() -> String {
    CONFIG.replace("values = { z = \"$z\" }", "values = { z = \"$z\", n = \"$n\" }")
}

/// PATCH, which names `n`, answers 503; what does not name it is served.
#[track_caller]
fn wait_lacking(server: &Server) {
    let mut client = server.client();
    wait_for("the column is not shown", || client.get("/t/1").expect(200).get("n").is_none().then_some(()));
    let answer = client.ask("PATCH", "/t/1", Some("{\"z\":1,\"n\":7}"));
    assert!(
        answer.status == 503 && answer.text().contains("table t has no column n any more"),
        "{}",
        answer.text()
    );
    assert_eq!(client.get("/t").expect(200)[0].get("n"), None);
    wait_for("/ready says so", || {
        let ready = server.admin("GET", "/ready").expect(200);
        ready["conditions"].to_string().contains("it has no column n any more").then_some(())
    });
}

/// While the server runs, and over a restart.
#[test]
fn only_what_names_a_column_that_is_gone_is_not_served() {
    for way in FOLLOWED {
        let changes = [DROP, "ALTER TABLE t RENAME COLUMN n TO m"];
        for (change, has_checkpoint) in
            changes.into_iter().flat_map(|change| [(change, true), (change, false)])
        {
            let beside = way.beside(&named());
            let server = way.started(&beside);
            if has_checkpoint {
                checkpoint(&server);
            }
            post(&server, "/t", 10);
            if change != DROP {
                // Its default for `n` would wait for the old name.
                server.drain();
            }
            beside.sql(change);
            wait_lacking(&server);
            post(&server, "/t", 11);
            post(&server, "/strict/t", 12);
            server.drain();
            assert_eq!(beside.text("SELECT count(*) FROM t WHERE id IN (10, 11, 12) AND z = id"), "3");
            let server = [false, true].into_iter().fold(server, |server, is_clean| {
                match is_clean {
                    true => drop(server),
                    false => server.kill(),
                };
                if !has_checkpoint {
                    forget_checkpoint(&beside);
                }
                let server = way.started(&beside);
                wait_lacking(&server);
                server
            });
            post(&server, "/t", 13);
            server.drain();
            // A restart has read the new name.
            if change != DROP {
                wait_shown(&server, "/t/1", "/m", &7.into());
            } else {
                assert_shown(&beside, &server, way);
            }
            beside.sql(if change == DROP { ADD } else { "ALTER TABLE t RENAME COLUMN m TO n" });
            wait_shown(&server, "/t/1", "/n", &if change == DROP { 6 } else { 7 }.into());
            server.client().ask("PATCH", "/t/1", Some("{\"z\":2,\"n\":8}")).expect(200);
            server.drain();
            assert_shown(&beside, &server, way);
            assert_eq!(beside.text("SELECT n FROM t WHERE id = 1"), "8");
            assert_eq!(beside.dead_letters(), 0);
            assert_verified(&server);
        }
    }
}

/// SQLite does not tell a renamed column from another one: what a client has set waits until the column has
/// its name again, also over a kill; other tables go on. PostgreSQL: `renamed`.
#[test]
fn in_sqlite_a_value_for_a_renamed_column_waits_for_its_name() {
    let way = Way::Sqlite;
    for (is_killed, has_checkpoint) in [(false, true), (true, true), (true, false)] {
        let beside = way.beside(&named());
        let mut server = way.started(&beside);
        if has_checkpoint {
            checkpoint(&server);
        }
        post(&server, "/t", 5);
        server.drain();
        server.pause_drain(true);
        server.client().ask("PATCH", "/t/1", Some("{\"z\":2,\"n\":9}")).expect(200);
        beside.sql("ALTER TABLE t RENAME COLUMN n TO m");
        if is_killed {
            server.kill();
            server = way.started(&beside);
            // The database has no row 1 as memory would show it.
            assert_eq!(server.client().get("/t/1").status, 503);
            assert_eq!(server.client().get("/t/5").expect(200).get("n"), None);
        } else {
            server.pause_drain(false);
            wait_lacking(&server);
        }
        wait_for("the table is stopped", || {
            server.admin("GET", "/ready").text().contains("table stopped").then_some(())
        });
        post(&server, "/t", 10);
        beside.sql("ALTER TABLE t RENAME COLUMN m TO n");
        beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE (id, n, z) = (1, 9, 2)", "1");
        beside.wait_for_text(&server, "SELECT count(*) FROM t WHERE (id, z) = (10, 10)", "1");
        assert_shown(&beside, &server, way);
        assert_eq!(beside.dead_letters(), 0);
        assert_verified(&server);
    }
}

/// Tables whose key is UNIQUE and NOT NULL, dropped and made again with the same name.
#[test]
fn a_table_without_a_primary_key_is_served_again_when_it_is_made_again() {
    for way in FOLLOWED {
        let stores = if way == Way::Sqlite { Stores::sqlite() } else { Stores::postgres() };
        let full = if way == Way::Logical { "ALTER TABLE t REPLICA IDENTITY FULL;" } else { "" };
        let table = "CREATE TABLE t (id bigint NOT NULL UNIQUE, n integer NOT NULL DEFAULT 5, z integer);";
        let beside = Beside::on(stores, &format!("{table} {full} INSERT INTO t VALUES (1, 7, 1)"), CONFIG);
        let server = way.started(&beside);
        beside.sql("DROP TABLE t");
        wait_status(&server, "/t/1", 503);
        for sql in [table, full, "INSERT INTO t (id, z) VALUES (1, 3), (2, 4)"] {
            if !sql.is_empty() {
                beside.sql(sql);
            }
        }
        wait_shown(&server, "/t/2", "/z", &4.into());
        assert_shown(&beside, &server, way);
        beside.sql("UPDATE t SET z = 9 WHERE id = 1");
        wait_shown(&server, "/t/1", "/z", &9.into());
        post(&server, "/strict/t", 10);
        assert_shown(&beside, &server, way);
        assert_verified(&server);
    }
}

/// What the application has dropped keeps nothing of ours in its database.
#[test]
fn a_dropped_table_lets_us_leave() {
    for way in FOLLOWED {
        let beside = way.beside(CONFIG);
        let server = way.started(&beside);
        post(&server, "/t", 2);
        server.drain();
        beside.sql("DROP TABLE t");
        assert!(server.stop().status.success());
        let ended = way.start(&beside).run("unfollow", &["--all"]);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let left = match way {
            Way::Sqlite => "SELECT name FROM sqlite_schema WHERE name LIKE '%forebay%'",
            _ => {
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%forebay%' \
                 UNION SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            }
        };
        assert_eq!(beside.sql(left), Vec::<Vec<_>>::new());
    }
}
