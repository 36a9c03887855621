//! Refusals at start, each with one sentence that says what to do.

use crate::support::{FLAVOURS, address, apply, connect, quick, up};
use forebay_redis::{Client, Durability, Error, Kind, Need, Options, Replicas, require};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};

async fn refused(url: &str, options: Options) -> Error {
    Client::connect(url, options).await.expect_err("it is refused")
}

#[track_caller]
fn says(error: &Error, kind: &Kind, part: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn sync_without_a_disk_is_refused() {
    let sync = Options { durability: Durability::Sync, ..quick() };
    for flavour in FLAVOURS {
        let local = up(Topology::Single, flavour);
        says(&refused(&local.url(), sync.clone()).await, &Kind::Unsupported, "set appendonly yes");
    }
    let keep =
        |flavour, persistence| Local::up(Spec::new(Topology::Single).on(flavour).keep(persistence)).unwrap();
    let local = keep(Flavour::Redis, Persistence::EverySecond);
    says(&refused(&local.url(), sync.clone()).await, &Kind::Unsupported, "has no WAITAOF");
    let local = keep(Flavour::Valkey, Persistence::AppendOnly);
    says(&refused(&local.url(), sync.clone()).await, &Kind::Unsupported, "appendfsync no");
    // With this setting `appendfsync always` does not sync while a rewrite or a snapshot is running.
    let postponing = |flavour| {
        let spec = Spec::new(Topology::Single).on(flavour).keep(Persistence::Always);
        Local::up(spec.directive("no-appendfsync-on-rewrite yes")).unwrap()
    };
    let local = postponing(Flavour::Redis);
    says(&refused(&local.url(), sync.clone()).await, &Kind::Unsupported, "set no-appendfsync-on-rewrite no");
    // WAITAOF waits for the sync.
    let local = postponing(Flavour::Valkey);
    let client = Client::connect(&local.url(), sync).await.unwrap();
    apply(&client.link(), "k", "a").await.unwrap();
    let mut info = redis::Client::open(local.url()).unwrap().get_connection().unwrap();
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut info).unwrap();
    assert!(info.contains("cmdstat_waitaof"), "{info}");
}

/// The server may have been built without a command, may have renamed it, or may forbid it to the user.
#[tokio::test]
async fn a_command_that_a_setting_needs_is_named_with_the_setting() {
    let sync = Options { durability: Durability::Sync, ..quick() };
    let replicated = Options { durability: Durability::Replicated(Replicas::Count(1)), ..quick() };
    let wait_aof = "does not run WAITAOF, or not for this user, and durability = \"sync\" needs";
    let wait = "does not run WAIT, or not for this user, and durability = \"replicated\" needs it";
    for directive in ["rename-command", "user default on nopass ~* &* +@all"] {
        let without = |topology, flavour, command: &str| {
            let line = match directive {
                "rename-command" => format!("rename-command {command} \"\""),
                user => format!("{user} -{command}"),
            };
            let spec = Spec::new(topology).on(flavour).keep(Persistence::EverySecond);
            Local::up(spec.directive(line)).unwrap()
        };
        let local = without(Topology::Single, Flavour::Valkey, "waitaof");
        says(&refused(&local.url(), sync.clone()).await, &Kind::Unsupported, wait_aof);
        // A setting that does not need the command.
        Client::connect(&local.url(), quick()).await.unwrap();
        let local = without(Topology::Replicas { replicas: 1 }, Flavour::Redis, "wait");
        says(&refused(&local.url(), replicated.clone()).await, &Kind::Unsupported, wait);
        let local = without(Topology::Single, Flavour::Redis, "client");
        let client = Client::connect(&local.url(), quick()).await.unwrap();
        let error = client.require_invalidations(b"tag:", "the cache needs").await.unwrap_err();
        let expected = "does not run CLIENT TRACKING, or not for this user, and the cache needs it";
        says(&error, &Kind::Unsupported, expected);
    }
    let local = up(Topology::Single, Flavour::Redis);
    let client = Client::connect(&local.url(), quick()).await.unwrap();
    client.require_invalidations(b"tag:", "the cache needs").await.unwrap();
}

#[tokio::test]
async fn passwords_are_asked_for_and_not_shown() {
    let mut spec = Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::None);
    spec.password = Some("open@sesame".into());
    spec = spec.directive("user limited on >limited ~* +@all -info");
    let local = Local::up(spec).unwrap();
    let node = address(&local, "node-1");
    let error = refused(&format!("redis://{node}"), quick()).await;
    says(&error, &Kind::Auth, "without a password");
    let error = refused(&format!("redis://:guessed@{node}"), quick()).await;
    says(&error, &Kind::Auth, "refuses the password");
    assert!(!error.to_string().contains("guessed"));
    let error = refused(&format!("redis://limited:limited@{node}"), quick()).await;
    says(&error, &Kind::Auth, "+info");
    let client = Client::connect(&format!("redis://:open%40sesame@{node}"), quick()).await.unwrap();
    assert!(!format!("{client:?}").contains("sesame"));
    apply(&client.link(), "k", "a").await.unwrap();

    let local = up(Topology::Single, Flavour::Valkey);
    let error = refused(&format!("redis://:needless@{}", address(&local, "node-1")), quick()).await;
    says(&error, &Kind::Auth, "password");
}

#[tokio::test]
async fn a_server_that_is_not_what_the_url_says_is_refused() {
    let local = up(Topology::Replicas { replicas: 1 }, Flavour::Redis);
    let replica = address(&local, "node-2");
    says(&refused(&format!("redis://{replica}"), quick()).await, &Kind::Unsupported, "is a replica");
    says(
        &refused(&format!("redis-cluster://{replica}"), quick()).await,
        &Kind::Unsupported,
        "not a node of a cluster",
    );
    says(
        &refused(&format!("redis-sentinel://{replica}/main"), quick()).await,
        &Kind::Unsupported,
        "no Sentinel",
    );
    let two = Options { durability: Durability::Replicated(Replicas::Count(2)), ..quick() };
    says(&refused(&local.url(), two).await, &Kind::Unsupported, "has 1 replicas in step, 2 are asked for");

    let local = up(Topology::Sentinel { replicas: 1 }, Flavour::Redis);
    let sentinel = address(&local, "sentinel-1");
    says(
        &refused(&format!("redis-sentinel://{sentinel}/nobody"), quick()).await,
        &Kind::Unsupported,
        "\"nobody\"",
    );
    says(&refused(&format!("redis://{sentinel}"), quick()).await, &Kind::Unsupported, "is a Sentinel");

    let local = up(Topology::Cluster { masters: 3, replicas: 0 }, Flavour::Redis);
    let node = address(&local, "node-1");
    says(&refused(&format!("redis://{node}"), quick()).await, &Kind::Unsupported, "use redis-cluster://");

    let nobody = refused("redis://127.0.0.1:1", quick()).await;
    says(&nobody, &Kind::Connect, "127.0.0.1:1");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_by_whoever_needs_it_not_to() {
    let facts = async |lines: &[&str]| {
        let mut spec = Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::None);
        for line in lines {
            spec = spec.directive(*line);
        }
        let local = Local::up(spec).unwrap();
        connect(&local, quick()).await.facts().await.unwrap().remove(0)
    };
    let evicting = facts(&["maxmemory 100mb", "maxmemory-policy allkeys-lru"]).await;
    says(
        &require(&evicting, Need::NoEviction).unwrap_err(),
        &Kind::Unsupported,
        "maxmemory-policy noeviction",
    );
    assert_eq!(evicting.maxmemory_bytes, 100 << 20);
    require(&facts(&["maxmemory 100mb", "maxmemory-policy noeviction"]).await, Need::NoEviction).unwrap();
    require(&facts(&["maxmemory-policy allkeys-lru"]).await, Need::NoEviction).unwrap();
    for need in [Need::Streams, Need::Scripts, Need::Primary] {
        require(&evicting, need).unwrap();
    }
}

#[tokio::test]
async fn a_unix_socket_and_a_database_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let spec = Spec::new(Topology::Single).on(Flavour::Valkey).keep(Persistence::None);
    let _local = Local::up(spec.directive(format!("unixsocket {}", socket.display()))).unwrap();
    let client = Client::connect(&format!("redis+unix://{}?db=3", socket.display()), quick()).await.unwrap();
    apply(&client.link(), "k", "a").await.unwrap();
    let node = client.primaries().remove(0).address;
    assert!(crate::support::info(&client, &node, "keyspace", "db3").await.starts_with("keys=1"));
}
