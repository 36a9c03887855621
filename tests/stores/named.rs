//! Deployments on one Redis: each has its name in every key, records its database, and needs no
//! access to another's keys.

use super::Fixture;
use super::refused::assert_refused;
use forebay_tests::{Archive, Client, Folder, Postgres, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use serde_json::json;
use std::collections::BTreeSet;

/// A job, and an answer that is cached on the shared level.
const MORE: &str = r#"
[cache]
shared = "${CACHE}"

[[job]]
name = "note"
every = "200ms"
sql = "INSERT INTO notes (token) VALUES ('by the job')"

[[endpoint]]
route = "GET /kept"
sql = "SELECT count(*) AS kept FROM notes"
cache = { shared = "1m" }
"#;

/// The permissions that docs/stores.md lists for Forebay's user, as a line of a server's config.
fn documented_user() -> String {
    let docs = include_str!("../../docs/stores.md");
    let (_, rest) = docs.split_once("\nACL SETUSER forebay on >secret ").expect("the user is documented");
    let (rules, _) = rest.split_once('\n').expect("it ends");
    format!("user app on >s3cret {rules}")
}

fn keys(memory: &Local) -> BTreeSet<String> {
    let client = redis::Client::open(memory.url()).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    keys.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
}

/// The names of the deployments that have keys on this Redis.
fn names(memory: &Local) -> BTreeSet<String> {
    keys(memory).iter().filter_map(|key| key.split(':').nth(1).map(str::to_owned)).collect()
}

fn post(start: &Start, token: &str) {
    let server = start.start();
    server.wait_healthy();
    server.client().ask("POST", "/tokens", Some(&json!({ "token": token }).to_string())).expect(201);
    server.drain();
    assert_eq!(server.stop().status.code(), Some(0));
}

#[test]
fn two_databases_on_one_redis_do_not_meet() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let other = Stores::postgres();
    let first = fixture.start("a", "async");
    let second = fixture.start("b", "async").database(&other.database_url(&fixture.folder));
    for start in [&first, &second] {
        // The same unique value in both.
        post(start, "one");
    }
    for stores in [&fixture.stores, &other] {
        assert_eq!(stores.archive(&fixture.folder).number("SELECT count(*) FROM tokens"), 1);
    }
    let roots = names(&fixture.memory);
    assert_eq!(roots.len(), 2, "{roots:?}");
    // One name for two databases is reported as a mistake.
    let named = |start: &Start| start.clone().set("memory.name=shop");
    post(&named(&first), "two");
    let said = assert_refused(&named(&second), "belongs to another database");
    assert!(said.contains("\"shop\"") && said.contains("memory.name"), "{said}");
    let output = named(&second).run("drain", &["--set", "memory.name=shop"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn the_documented_user_is_enough_and_its_deployment_touches_no_other_keys() {
    let rules = documented_user();
    assert!(rules.contains("~fb:*"), "{rules}");
    let spec = Spec::new(Topology::Single).on(Flavour::Redis);
    let spec = spec.directive(rules.replace("~fb:*", "~fb:shop:*")).keep(Persistence::Always);
    let fixture = Fixture::up(spec, Stores::postgres);
    let config = format!("{}{MORE}", super::CONFIG);
    let config = fixture.folder.write("named.toml", &config);
    let url = fixture.memory.url().replace("://", "://app:s3cret@");
    let start = |name: &str| {
        Start::new(forebay_tests::binary(), &fixture.folder, &config)
            .stores(&fixture.stores, &fixture.folder)
            .data(fixture.folder.path().join(name))
            .memory(&url)
            .environment("CACHE", &url)
            .set("memory.name=shop")
            .start()
    };
    let (one, two) = (start("a"), start("b"));
    for server in [&one, &two] {
        server.wait_healthy();
        let token = json!({ "token": server.address.to_string() }).to_string();
        server.client().ask("POST", "/tokens", Some(&token)).expect(201);
    }
    wait_for("the job runs", || {
        let jobs =
            [&one, &two].map(|server| server.admin("GET", "/jobs").expect(200)["scheduled"][0].clone());
        assert!(jobs.iter().all(|job| job["failures"] == 0), "{jobs:?}");
        jobs.iter().any(|job| job["runs"].as_u64() > Some(1)).then_some(())
    });
    let kept = one.client().ask("GET", "/kept", None).expect(200);
    wait_for("what one server keeps is shown by the other", || {
        (two.client().ask("GET", "/kept", None).expect(200) == kept).then_some(())
    });
    one.drain();
    for server in [&one, &two] {
        let printed = server.output();
        assert!(!printed.contains("NOPERM") && !printed.contains("No permissions"), "{printed}");
    }
    let strange: Vec<String> =
        keys(&fixture.memory).into_iter().filter(|key| !key.starts_with("fb:shop:")).collect();
    assert_eq!(strange, [] as [&str; 0]);
}

/// The embedded tier, with shared answers and a shared rate.
const APART: &str = r#"
[cache]
shared = "${CACHE}"

[[endpoint]]
route = "GET /counted"
constant = {}
rate = "5/1h shared"
"#;

const WORD: &str = r#"
[[endpoint]]
route = "GET /kept"
sql = "SELECT current_setting('my.word', true) AS word"
cache = { shared = "1h" }
"#;

const WORDS: &str = r#"
[table.words]
columns = { id = "bigint key", word = "text" }

[[endpoint]]
route = "POST /words"
insert = "words"
values = { id = "$id", word = "$word" }

[[endpoint]]
route = "GET /words/{id}"
get = "words"
"#;

/// Servers with embedded tiers, on one Redis.
struct Apart {
    folder: Folder,
    redis: Local,
    config: std::path::PathBuf,
}

impl Apart {
    fn new(more: &str) -> Apart {
        let folder = Folder::new();
        let config = folder.write("apart.toml", &format!("{APART}{more}"));
        let spec = Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::None);
        let redis = Local::up(spec).unwrap_or_else(|error| panic!("{error}"));
        Apart { folder, redis, config }
    }

    fn start(&self, name: &str, database: &str) -> Start {
        let start = Start::new(binary(), &self.folder, &self.config).database(database);
        start.data(self.folder.path().join(name)).environment("CACHE", &self.redis.url())
    }
}

/// How many of `times` requests the rate accepts.
fn counted(server: &Server, times: usize) -> usize {
    let mut client = server.client();
    let answers: Vec<u16> = (0..times).map(|_| client.get("/counted").status).collect();
    assert!(answers.iter().all(|status| [200, 429].contains(status)), "{answers:?}");
    answers.iter().filter(|status| **status == 200).count()
}

/// Sets the word that this database shows in each new session.
fn say(archive: &Archive, word: &str) {
    let name = archive.text("SELECT current_database()::text");
    archive.rows(&format!("ALTER DATABASE {name} SET my.word = '{word}'"));
}

fn kept(client: &mut Client) -> String {
    client.get("/kept").expect(200)["word"].as_str().expect("a word").to_owned()
}

/// The name of this database's deployment.
fn name(archive: &Archive) -> String {
    archive.text("SELECT left(id, 8) FROM forebay_database")
}

#[test]
fn memory_in_the_process_and_one_redis_two_databases_do_not_meet() {
    let apart = Apart::new(WORD);
    let stores = [Stores::postgres(), Stores::postgres()];
    let [url, other] = stores.each_ref().map(|stores| stores.database_url(&apart.folder));
    let archives = stores.each_ref().map(|stores| stores.archive(&apart.folder));
    say(&archives[0], "one");
    let one = apart.start("a", &url).start();
    let second = apart.start("b", &other).start();
    assert_eq!((counted(&one, 10), counted(&second, 10)), (5, 5), "each has a budget of its own");
    assert_eq!(kept(&mut one.client()), "one");
    assert_eq!(names(&apart.redis), BTreeSet::from_iter([&archives[0], &archives[1]].map(name)));
    one.stop();
    // Another server of the same database has the same cached answers, and the same remaining
    // budget.
    say(&archives[0], "two");
    let again = apart.start("c", &url).start();
    assert_eq!((kept(&mut again.client()).as_str(), counted(&again, 1)), ("one", 0));
    again.stop();
    // The URL now leads to another database, as after a change of the host or a recreated database.
    archives[0].rows("DROP TABLE IF EXISTS forebay_database");
    let anew = apart.start("d", &url).start();
    assert_eq!((kept(&mut anew.client()).as_str(), counted(&anew, 10)), ("two", 5));
}

#[test]
fn a_start_without_its_database_knows_the_name_of_its_deployment() {
    let (apart, postgres) = (Apart::new(WORDS), Postgres::start(&[]));
    let stores = Stores::postgres_at(&postgres.server_url());
    let start = apart.start("a", &stores.database_url(&apart.folder));
    let server = start.start();
    server.wait_healthy();
    server.client().post_json("/words", r#"{"id":1,"word":"one"}"#).expect(201);
    assert_eq!(counted(&server, 10), 5);
    server.drain();
    server.checkpoint();
    let own = BTreeSet::from([name(&stores.archive(&apart.folder))]);
    postgres.kill();
    server.kill();
    let server = start.start();
    assert_eq!(server.client().get("/words/1").expect(200)["word"], "one");
    assert_eq!((counted(&server, 1), names(&apart.redis)), (0, own));
    server.kill();
    postgres.restart();
}

#[test]
fn without_a_database_that_servers_share_a_name_must_be_given() {
    let apart = Apart::new("");
    let start = apart.start("a", &format!("sqlite:{}", apart.folder.database().display()));
    let ended = start.try_start().err().expect("it does not start");
    assert!(ended.output.contains("apart.toml:3:") && ended.output.contains("name = \"shop\""), "{ended:?}");
    let named = start.set("memory.name=shop").start();
    assert_eq!(counted(&named, 10), 5);
    assert_eq!(names(&apart.redis), BTreeSet::from(["shop".to_owned()]));
}
