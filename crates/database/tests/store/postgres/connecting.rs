//! Starting, and working without a reachable server for a while.

use super::{Scratch, server, url_of};
use forebay_database::{Kind, Options, Store};
use forebay_value::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn what_is_wrong_at_the_start_is_one_clear_line() {
    for (url, part) in [
        (url_of("no_such_database", ""), "there is no database no_such_database"),
        (url_of("postgres", "user=nobody_of_this_name"), "nobody_of_this_name"),
        ("postgres://u:secret@127.0.0.1:1/db".into(), "error connecting to server: Connection refused"),
        (url_of("postgres", "pool_size=400"), "pool_size=400 does not fit"),
        (url_of("postgres", "pool=4"), "the parameter pool is not known"),
        (url_of("postgres", "sslmode=require&sslrootcert=/none"), "sslrootcert: /none cannot be read"),
    ] {
        let error = Store::open(&url, Options::default()).unwrap_err();
        assert!(error.message().contains(part), "{part}: {error}");
        assert!(!error.message().contains("secret") && !error.message().contains('\n'), "{error}");
        // Of these failures only an unreachable server may pass by itself.
        assert_eq!(error.may_retry(), part.contains("refused"), "{error}");
    }
}

/// A server for this test alone, which the test may kill.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn new(settings: &str) -> Server {
        let folder = tempfile::Builder::new().prefix("forebay-pg").tempdir_in("/tmp").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server { folder, port };
        server.shell(&format!("chmod 777 {}", server.folder.path().display()), false);
        server.shell(
            &format!(
                "{}/initdb -D {} -U forebay --auth-host=scram-sha-256 --auth-local=trust --no-sync",
                bin().display(),
                server.data()
            ),
            true,
        );
        std::fs::write(server.folder.path().join("settings"), settings).unwrap();
        server.start(settings);
        server
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn start(&self, settings: &str) {
        let folder = self.folder.path().display();
        let options = format!("-p {} -k {folder} -c listen_addresses=127.0.0.1 {settings}", self.port);
        self.shell(
            &format!("{}/pg_ctl -w -D {} -l {folder}/log -o '{options}' start", bin().display(), self.data()),
            true,
        );
    }

    fn stop(&self, how: &str) {
        self.shell(&format!("{}/pg_ctl -w -D {} -m {how} stop", bin().display(), self.data()), true);
    }

    /// Runs a command as a user that PostgreSQL accepts.
    fn shell(&self, command: &str, as_postgres: bool) {
        let is_root = std::fs::metadata("/root/.").is_ok() && std::fs::read_dir("/root").is_ok();
        let mut run = if as_postgres && is_root { Command::new("runuser") } else { Command::new("sh") };
        if as_postgres && is_root {
            run.args(["-u", "postgres", "--", "sh"]);
        }
        let status =
            run.args(["-c", &format!("{command} >/dev/null 2>&1")]).current_dir("/tmp").status().unwrap();
        assert!(status.success(), "{command}");
    }

    fn url(&self, params: &str) -> String {
        format!(
            "postgres://forebay@/postgres?host={}&port={}{params}",
            self.folder.path().display(),
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server is stopped already, when the test has stopped it.
        let command = format!(
            "{}/pg_ctl -D {} -m immediate stop; chmod -R 777 {}",
            bin().display(),
            self.data(),
            self.data()
        );
        let _ = Command::new("runuser").args(["-u", "postgres", "--", "sh", "-c", &command]).output();
    }
}

fn bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")));
    let found = versions.into_iter().flatten().find(|bin: &PathBuf| Path::new(bin).join("initdb").exists());
    found.expect("PostgreSQL's programs; scripts/services installs them")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_is_found_again_when_it_is_back() {
    server();
    let own = Server::new("-c fsync=off");
    let store = Store::open(&own.url("&pool_size=6"), Options::default()).unwrap();
    let create = store.prepare("CREATE TABLE t (x bigint PRIMARY KEY)").await.unwrap();
    store.run(&create, vec![]).await.unwrap();
    let insert = store.prepare("INSERT INTO t VALUES ($x)").await.unwrap();
    store.run(&insert, vec![Value::Bigint(0)]).await.unwrap();
    let writing = tokio::spawn({
        let (store, insert) = (store.clone(), insert.clone());
        async move {
            let mut acknowledged = Vec::new();
            let (mut failures, mut since_failure) = (0, 0);
            for x in 1.. {
                match store.run(&insert, vec![Value::Bigint(x)]).await {
                    Ok(_) => {
                        acknowledged.push(x);
                        since_failure += 1;
                    }
                    Err(error) => {
                        assert!(error.may_retry(), "{error:?}");
                        assert!(
                            matches!(error.kind(), Kind::Unavailable | Kind::UnknownOutcome),
                            "{error:?}"
                        );
                        failures += 1;
                        since_failure = 0;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                if failures > 0 && since_failure > 50 {
                    break;
                }
            }
            (acknowledged, failures)
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::task::block_in_place(|| {
        own.stop("immediate");
        own.start("-c fsync=off");
    });
    let (acknowledged, failures) = writing.await.unwrap();
    assert!(failures > 0);
    let count = store.prepare("SELECT count(*) FROM t WHERE x = ANY ($xs)").await.unwrap();
    let all = format!("[{}]", acknowledged.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
    let found = loop {
        // Reads have their own connections: they are refused until 0.1 s after the last failed attempt.
        match store.run(&count, vec![Value::Json(all.clone().into())]).await {
            Ok(found) => break found,
            Err(error) => assert_eq!(*error.kind(), Kind::Unavailable, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(found.values, [Value::Bigint(acknowledged.len() as i64)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_and_a_wrong_password_are_named() {
    server();
    let own = Server::new("-c fsync=off -c max_connections=20 -c superuser_reserved_connections=0");
    let url = format!("postgres://forebay:wrong@127.0.0.1:{}/postgres", own.port);
    let error = tokio::task::block_in_place(|| Store::open(&url, Options::default())).unwrap_err();
    assert!(error.message().contains("password") && !error.message().contains("wrong@"), "{error}");
    assert!(!error.may_retry(), "{error:?}");
    // The pool is reduced to fit: 20, of which 5 are left to other clients.
    let store = Store::open(&own.url(""), Options::default()).unwrap();
    let mut others = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&own.url(""), tokio_postgres::NoTls).await {
        tokio::spawn(connection);
        others.push(client);
    }
    let full = Store::open(&own.url(""), Options::default()).unwrap_err();
    assert!(full.message().contains("max_connections is used up") && full.may_retry(), "{full}");
    drop(others);
    let began = Instant::now();
    loop {
        let answered = async { store.run(&store.prepare("SELECT 1").await?, vec![]).await };
        match answered.await {
            Ok(rows) => break assert_eq!(rows.len(), 1),
            Err(error) => assert!(error.may_retry() && began.elapsed() < Duration::from_secs(60), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A certificate for `localhost` from its own authority, created with `openssl`.
fn certificates(folder: &Path) {
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt && \
        openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr && \
        printf 'subjectAltName=DNS:localhost' > names && \
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt && \
        chown postgres server.key && chmod 600 server.key";
    let made = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn certificates_are_checked_unless_that_is_turned_off() {
    server();
    let folder = tempfile::Builder::new().prefix("forebay-tls").tempdir_in("/tmp").unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    certificates(folder.path());
    let share = Command::new("chmod").args(["755", &folder.path().display().to_string()]).status().unwrap();
    assert!(share.success());
    let own = Server::new(&format!(
        "-c fsync=off -c ssl=on -c ssl_cert_file={} -c ssl_key_file={}",
        at("server.crt"),
        at("server.key")
    ));
    let set = format!(
        "psql -h {} -p {} -U forebay postgres -c \"ALTER USER forebay PASSWORD 'x'\"",
        own.folder.path().display(),
        own.port
    );
    own.shell(&set, true);
    let open = |host: &str, params: &str| {
        let url = format!("postgres://forebay:x@{host}:{}/postgres?{params}", own.port);
        Store::open(&url, Options::default()).map(drop).map_err(|error| error.to_string())
    };
    let trusted = format!("sslmode=verify-full&sslrootcert={}", at("ca.crt"));
    open("localhost", &trusted).unwrap();
    open("localhost", "sslmode=require-insecure").unwrap();
    open("localhost", "").unwrap();
    let other_host = open("127.0.0.1", &trusted).unwrap_err();
    assert!(other_host.contains("certificate"), "{other_host}");
    for mode in ["require", "verify-full"] {
        let unknown = open("localhost", &format!("sslmode={mode}")).unwrap_err();
        assert!(unknown.contains("certificate"), "{unknown}");
    }
}

#[tokio::test]
async fn the_url_for_people_has_no_password() {
    let scratch = Scratch::new().await;
    assert!(scratch.store.describe_url().ends_with(&scratch.database), "{}", scratch.store.describe_url());
}
