//! Deployments on one Redis: each has a name in every key, knows its database, and needs no right to
//! another's keys.

use super::Ground;
use super::refused::assert_refused;
use forebay_tests::{Start, Stores, wait_for};
use forebay_topology::{Flavour, Persistence, Spec, Topology};
use serde_json::json;
use std::collections::BTreeSet;

/// A job, and an answer that is kept for other servers.
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

/// What docs/stores.md says that a user of Forebay needs, as a line of a server's config.
fn documented_user() -> String {
    let docs = include_str!("../../docs/stores.md");
    let (_, rest) = docs.split_once("\nACL SETUSER forebay on >secret ").expect("the user is documented");
    let (rules, _) = rest.split_once('\n').expect("it ends");
    format!("user app on >s3cret {rules}")
}

fn keys(ground: &Ground) -> BTreeSet<String> {
    let client = redis::Client::open(ground.memory.url()).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    keys.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
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
    let ground = Ground::new(Topology::Single, Flavour::Redis);
    let other = Stores::postgres();
    let first = ground.start("a", "async");
    let second = ground.start("b", "async").database(&other.database_url(&ground.folder));
    for start in [&first, &second] {
        // The same unique value in both.
        post(start, "one");
    }
    for stores in [&ground.stores, &other] {
        assert_eq!(stores.archive(&ground.folder).number("SELECT count(*) FROM tokens"), 1);
    }
    let roots: BTreeSet<String> =
        keys(&ground).iter().filter_map(|key| key.split(':').nth(1).map(str::to_owned)).collect();
    assert_eq!(roots.len(), 2, "{roots:?}");
    // One name for both is a mistake, and is said to be one.
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
    let ground = Ground::up(spec, Stores::postgres);
    let config = format!("{}{MORE}", super::CONFIG);
    let config = ground.folder.write("named.toml", &config);
    let url = ground.memory.url().replace("://", "://app:s3cret@");
    let start = |name: &str| {
        Start::new(forebay_tests::binary(), &ground.folder, &config)
            .stores(&ground.stores, &ground.folder)
            .data(ground.folder.path().join(name))
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
    let strange: Vec<String> = keys(&ground).into_iter().filter(|key| !key.starts_with("fb:shop:")).collect();
    assert_eq!(strange, [] as [&str; 0]);
}
