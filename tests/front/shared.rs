//! Upstream answers that several Forebay servers cache on one Redis.

use super::upstream::Scripted;
use forebay_tests::{Client, Folder, Server, Start, Stores, binary, wait_for};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Two Forebay servers in front of one app, and the Redis that they share.
struct Pair {
    app: Scripted,
    /// The version in the app's answers to GET.
    version: Arc<AtomicUsize>,
    redis: Local,
    servers: [Server; 2],
    _folders: [Folder; 2],
    _stores: [Stores; 2],
}

impl Pair {
    /// `cache` is the cache setting of `* /shop/{id}` in the config.
    fn start(cache: &str) -> Pair {
        let version = Arc::new(AtomicUsize::new(1));
        let now = version.clone();
        let app = Scripted::new(move |seen, stream| {
            let number =
                if seen.head.starts_with("GET") { now.load(SeqCst) } else { now.fetch_add(1, SeqCst) + 1 };
            let body = format!("version {number}");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).is_ok()
        });
        let spec = Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::None);
        let redis = Local::up(spec).unwrap_or_else(|error| panic!("{error}"));
        let config = format!(
            "[[endpoint]]\nroute = '* /shop/{{id}}'\nproxy = 'http://{}'\nretries = 0\n\
             cache = {{ {cache}, tags = ['item:{{$id}}'] }}\ninvalidates = ['item:{{$id}}']",
            app.address
        );
        let (folders, stores) = ([Folder::new(), Folder::new()], [Stores::new(), Stores::new()]);
        let servers = std::array::from_fn(|index| {
            let (folder, stores) = (&folders[index], &stores[index]);
            let start =
                Start::new(binary(), folder, &folder.write("front.toml", &config)).stores(stores, folder);
            start.set(&format!("cache.shared={}", redis.url())).set("memory.name=front").start()
        });
        Pair { app, version, redis, servers, _folders: folders, _stores: stores }
    }

    fn clients(&self) -> [Client; 2] {
        std::array::from_fn(|index| self.servers[index].client())
    }

    fn asked(&self) -> usize {
        self.app.seen().len()
    }
}

fn read(client: &mut Client, target: &str) -> String {
    let answer = client.get(target);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer.text().to_owned()
}

#[test]
fn an_app_is_asked_once_for_all_servers() {
    let pair = Pair::start("local = '10m', shared = '10m'");
    let [mut first, mut second] = pair.clients();
    assert_eq!(read(&mut first, "/shop/7"), "version 1");
    // If the second server had sent a request to the app, it would have received another version.
    pair.version.store(5, SeqCst);
    assert_eq!(read(&mut second, "/shop/7"), "version 1");
    assert_eq!(pair.asked(), 1);
    // Both servers show a write through one of them: the writing server at once, the other when it
    // receives the invalidation.
    assert_eq!(first.ask("PUT", "/shop/7", None).text(), "version 6");
    assert_eq!(read(&mut first, "/shop/7"), "version 6");
    wait_for("the other one hears of it", || (read(&mut second, "/shop/7") == "version 6").then_some(()));
    assert_eq!(pair.asked(), 3, "the app was asked by one of them for both");
}

#[test]
fn strict_holds_for_apps_too() {
    let pair = Pair::start("local = '10m', shared = '10m', consistency = 'strict'");
    let [mut first, mut second] = pair.clients();
    for round in 0..100 {
        let (writer, reader) =
            if round % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        let written = writer.ask("PUT", "/shop/7", None).text().to_owned();
        assert_eq!(
            read(reader, "/shop/7"),
            written,
            "round {round}: older than what was answered before it began"
        );
        assert_eq!(read(writer, "/shop/7"), written, "round {round}");
    }
    // A server works without the shared level when that does not answer within a second, as on a
    // stalled machine.
    let failed = |server: &Server| server.admin("GET", "/cache").expect(200)["shared_failures"] != 0;
    let (asked, has_failed) = (pair.asked(), pair.servers.iter().any(failed));
    assert!(asked == 200 || has_failed, "a read after a write asks the app once for both: {asked}");
}

#[test]
fn without_redis_each_asks_for_itself() {
    let pair = Pair::start("local = '200ms', shared = '10m', stale_if_error = '10m'");
    let [mut first, mut second] = pair.clients();
    for client in [&mut first, &mut second] {
        assert_eq!(read(client, "/shop/7"), "version 1");
    }
    pair.redis.kill("node-1").unwrap_or_else(|error| panic!("{error}"));
    pair.version.store(2, SeqCst);
    for client in [&mut first, &mut second] {
        wait_for("a newer one", || (read(client, "/shop/7") == "version 2").then_some(()));
        assert_eq!(read(client, "/shop/8"), "version 2");
    }
}
