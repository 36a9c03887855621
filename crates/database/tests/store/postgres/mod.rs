//! What only PostgreSQL does, or does differently. Each test has its own database.

mod applying;
mod committing;
mod concurrency;
mod connecting;
mod errors;
mod follow;
mod follow_objects;
mod follow_rules;
mod follow_slot;
mod keys;
mod own_schema;
mod relay;
mod scanning;
mod statements;
mod types;
mod values;

use forebay_database::{Error, Options, Rows, Store};
use forebay_value::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// The URL of a server on which databases may be created.
pub(crate) fn server() -> String {
    std::env::var("FOREBAY_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("FOREBAY_TEST_POSTGRES is not set: run these tests by `make test`, or start a server with scripts/services")
    })
}

/// The server's URL with another database and these parameters.
pub(crate) fn url_of(database: &str, params: &str) -> String {
    let server = server();
    let (base, query) = server.split_once('?').unwrap_or((&server, ""));
    let (scheme, rest) = base.split_once("://").expect("a URL");
    let authority = rest.split('/').next().unwrap_or_default();
    let params: Vec<&str> = [query, params].into_iter().filter(|part| !part.is_empty()).collect();
    format!("{scheme}://{authority}/{database}?{}", params.join("&"))
}

/// A database that is dropped at the end.
pub(crate) struct Scratch {
    pub(crate) store: Store,
    pub(crate) database: String,
    plain: tokio_postgres::Client,
}

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    // Our own tables are named as in SQLite.
    client.batch_execute("SET search_path = \"$user\", public, _forebay").await.expect("a search path");
    client
}

impl Scratch {
    pub(crate) async fn new() -> Scratch {
        Scratch::with(Options::default(), "").await
    }

    pub(crate) async fn with(options: Options, params: &str) -> Scratch {
        Scratch::made(options, params, "").await
    }

    pub(crate) async fn of_encoding(encoding: &str) -> Scratch {
        let made = format!(" TEMPLATE template0 ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C'");
        Scratch::made(Options::default(), "", &made).await
    }

    async fn made(options: Options, params: &str, made: &str) -> Scratch {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let database = format!("forebay_test_{}_{number}", std::process::id());
        client(&server())
            .await
            .batch_execute(&format!("CREATE DATABASE {database}{made}"))
            .await
            .expect("a database");
        let url = url_of(&database, params);
        let store =
            tokio::task::spawn_blocking(move || Store::open(&url, options)).await.unwrap().expect("a store");
        let plain = client(&url_of(&database, "")).await;
        Scratch { store, database, plain }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.plain.batch_execute(sql).await.expect(sql);
    }

    /// The first column of the first row, as text.
    pub(crate) async fn text(&self, sql: &str) -> String {
        let rows = self.plain.simple_query(sql).await.expect(sql);
        let row = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        row.expect("a row")
    }

    pub(crate) async fn run(&self, sql: &str, params: Vec<Value>) -> Result<Rows, Error> {
        let statement = self.store.prepare(sql).await?;
        self.store.run(&statement, params).await
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        let dropping = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                // A follower's slot is in use until the server notices that its connection is lost. A
                // database that a failed test leaves behind does no harm.
                for _ in 0..100 {
                    if client(&server()).await.batch_execute(&sql).await.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        });
        let _ = dropping.join();
    }
}
