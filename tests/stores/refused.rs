//! Stores that lack a feature or differ from the config: detected at the start, with one clear line, an
//! exit code, and no stack trace.

use super::Fixture;
use forebay_tests::{Folder, Start, Stores, binary, free_port};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Starts a server, which must fail with one line that contains `says`. Returns the line.
#[track_caller]
pub fn assert_refused(start: &Start, says: &str) -> String {
    let Err(ended) = start.try_start() else { panic!("it started, and should have said {says:?}") };
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let lines: Vec<&str> = ended.output.lines().collect();
    let [line] = lines[..] else { panic!("not one line: {ended:?}") };
    assert!(line.starts_with("forebay: ") && line.contains(says), "should say {says:?}: {ended:?}");
    line.to_owned()
}

fn ask(port: u16, password: Option<&str>, command: &[&str]) {
    let url = password.map_or(String::new(), |password| format!(":{password}@"));
    let mut connection = redis::Client::open(format!("redis://{url}127.0.0.1:{port}"))
        .and_then(|client| client.get_connection())
        .unwrap_or_else(|error| panic!("{port}: {error}"));
    redis::cmd(command[0])
        .arg(&command[1..])
        .exec(&mut connection)
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
}

#[test]
fn a_memory_tier_that_cannot_be_used_is_named() {
    let mut spec = Spec::new(Topology::Single).on(Flavour::Redis);
    spec.password = Some("right".into());
    let fixture = Fixture::up(spec, Stores::postgres);
    let port = fixture.memory.nodes()[0].port;
    let start = |url: &str| fixture.start("refused", "sync").memory(url);
    let postgres = fixture.stores.database_url(&fixture.folder);
    let postgres = postgres.rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("a port");
    for (url, says) in [
        ("redis://:guessed@127.0.0.1:1".to_owned(), "127.0.0.1:1"),
        ("redis://:guessed@no-such-host.invalid".into(), "no-such-host.invalid"),
        (format!("redis://127.0.0.1:{port}"), "without a password"),
        (format!("redis://:guessed@127.0.0.1:{port}"), "refuses the password"),
        (format!("redis://nobody:guessed@127.0.0.1:{port}"), "refuses the user \"nobody\""),
        (format!("redis://:right@127.0.0.1:{port}/99"), "DB index is out of range"),
        (format!("redis-cluster://:right@127.0.0.1:{port}"), "not a node of a cluster"),
        (format!("redis-sentinel://127.0.0.1:{port}/main"), "is no Sentinel, or refuses us"),
        (format!("redis://:guessed@127.0.0.1:{postgres}"), "127.0.0.1"),
        (format!("redis://:right@127.0.0.1:{port}?colour=red"), "colour"),
        ("memcached://127.0.0.1".into(), "must be embedded:"),
    ] {
        let said = assert_refused(&start(&url), says);
        assert!(!said.contains("guessed") && !said.contains("right@"), "{said}");
    }
    // The features and permissions of the server as it is set up.
    let url = format!("redis://:right@127.0.0.1:{port}");
    for (setting, value, says) in [
        ("appendfsync", "everysec", "has no WAITAOF, so that sync needs appendfsync always"),
        ("appendfsync", "no", "never syncs its append-only file"),
        ("appendonly", "no", "keeps no append-only file"),
    ] {
        ask(port, Some("right"), &["CONFIG", "SET", setting, value]);
        assert_refused(&start(&url), says);
    }
    assert_refused(
        &fixture.start("refused", "replicated(1)").memory(&url),
        "has 0 replicas in step, 1 are asked for",
    );
    ask(port, Some("right"), &["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    assert_refused(&fixture.start("refused", "async").memory(&url), "set maxmemory-policy noeviction");
    // The commands report the same error.
    for command in ["drain", "verify"] {
        let output = fixture.start("refused", "async").memory(&url).run(command, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.lines().count() == 1 && said.contains("noeviction"), "{command}: {said}");
    }
}

#[test]
fn a_replica_and_a_node_of_a_cluster_are_named() {
    let fixture = Fixture::new(Topology::Replicas { replicas: 1 }, Flavour::Valkey);
    let replica = format!("redis://{}", fixture.memory.nodes()[1].address());
    assert_refused(
        &fixture.start("refused", "sync").memory(&replica),
        "is a replica: give the primary's address",
    );
    let cluster = Spec::new(Topology::Cluster { masters: 3, replicas: 0 }).keep(Persistence::None);
    let cluster = Local::up(cluster.on(Flavour::Redis)).unwrap_or_else(|error| panic!("{error}"));
    let node = format!("redis://{}", cluster.nodes()[0].address());
    assert_refused(&fixture.start("refused", "async").memory(&node), "use redis-cluster://");
}

/// A server of a version older than topologies support.
struct Old(Child, u16);

impl Old {
    fn start(folder: &Folder) -> Old {
        let program = std::env::var("FOREBAY_OLD_REDIS_SERVER")
            .expect("FOREBAY_OLD_REDIS_SERVER names no server; scripts/services up installs one");
        let port = free_port();
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--dir", &folder.path().display().to_string()])
            .stdout(Stdio::null())
            .spawn()
            .expect("the old server can be run");
        let old = Old(child, port);
        forebay_tests::wait_for("the old server serves", || TcpStream::connect(("127.0.0.1", port)).ok());
        old
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A hot table whose columns are left to the database.
const ODD: &str = "[table.odd]\n[[endpoint]]\nroute = \"GET /odd/{id}\"\nget = \"odd\"\n";

#[test]
fn an_old_server_is_named_with_what_it_lacks() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    stores.archive(&folder).rows("CREATE TABLE odd (id bigint PRIMARY KEY)");
    let old = Old::start(&folder);
    let config = folder.write("odd.toml", &ODD.replace("[table.odd]", "[table.odd]\nfollow = false"));
    let start = Start::new(binary(), &folder, &config).stores(&stores, &folder);
    let start = start.memory(&format!("redis://127.0.0.1:{}", old.1));
    assert_refused(&start, "Redis 5.0.6 at 127.0.0.1");
    assert_refused(&start, "XTRIM … MINID");
}

#[test]
fn a_record_store_that_cannot_be_used_is_named() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    let config = folder.write("odd.toml", ODD);
    let url = stores.database_url(&folder);
    let (login, rest) = url.split_once('@').expect("a user");
    let (place, database) = rest.split_once('/').expect("a database");
    let user = login.split("//").nth(1).and_then(|login| login.split(':').next()).expect("a user");
    let password = login.rsplit(':').next().expect("a password");
    for (url, says) in [
        (format!("postgres://{user}:guessed@{place}/{database}"), "password for"),
        (format!("postgres://nobody:guessed@{place}/{database}"), "password for nobody is wrong"),
        (format!("{login}@{place}/no_such_database"), "there is no database no_such_database"),
        ("postgres://u:guessed@no-such-host.invalid/db".into(), "no-such-host.invalid"),
        (format!("{url}?sslmode=verify-full"), "TLS"),
        (format!("{url}?pool_size=400"), "pool_size=400 does not fit"),
        (format!("{url}?colour=red"), "colour"),
        ("mysql://u:guessed@h/db".into(), "must be sqlite: and a path"),
    ] {
        let said = assert_refused(&Start::new(binary(), &folder, &config).database(&url), says);
        assert!(!said.contains("guessed") && !said.contains(password), "{said}");
    }
}

#[test]
fn a_table_that_no_hot_table_can_be_is_named() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    let archive = stores.archive(&folder);
    let check = |text: &str, says: &str| {
        let config = folder.write("odd.toml", text);
        let said = assert_refused(&Start::new(binary(), &folder, &config).stores(&stores, &folder), says);
        assert!(said.contains("odd.toml:1: table odd"), "{said}");
    };
    check(ODD, "is not in postgres://");
    for (sql, says) in [
        ("CREATE TABLE odd (id bigint)", "has no PRIMARY KEY"),
        ("CREATE TABLE odd (id bigint, a bigint, PRIMARY KEY (id, a))", "a PRIMARY KEY of 2 columns"),
        ("CREATE TABLE odd (id float8 PRIMARY KEY)", "a key of type double"),
    ] {
        archive.rows(sql);
        check(ODD, says);
        archive.rows("DROP TABLE odd");
    }
    archive.rows("CREATE VIEW odd AS SELECT 1 AS id");
    check(ODD, "is a view");
    archive.rows("DROP VIEW odd; CREATE TABLE odd (id bigint PRIMARY KEY, a text NOT NULL, b text NOT NULL)");
    let with = |columns: &str| ODD.replace("[table.odd]", &format!("[table.odd]\ncolumns = {{ {columns} }}"));
    check(
        &with("id = \"bigint key\", a = \"bigint\", b = \"text\""),
        "column `a` is text in the database, bigint here",
    );
    check(&with("id = \"bigint key\", a = \"text\""), "column `b` is missing here and must not be null");
    check(&with("id = \"bigint key\", a = \"text\", b = \"text\", c = \"text\""), "has no column `c`");
}
