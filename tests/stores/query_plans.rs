//! Statements that grow with their table: `forebay check` and the log name them with the index or the hot
//! form, and a statement whose plan turns bad while it is served is reported once.

use forebay_tests::{Folder, Start, Stores, binary, wait_for};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[table.account]
columns = { id = "bigint key", name = "text", email = "text" }
hot = false

[[endpoint]]
route = "GET /accounts/count"
sql = "SELECT count(*) AS count FROM account WHERE name = $name"

[[endpoint]]
route = "GET /accounts/random"
sql = "SELECT id FROM account ORDER BY random() LIMIT 1"

[[endpoint]]
route = "GET /accounts/by-mail"
sql = "SELECT id FROM account WHERE email = $email"
returns = "many"

[[endpoint]]
route = "GET /accounts/{id}"
any_of = [{ sql = "SELECT id FROM account WHERE id = $id" }, { sql = "SELECT id, name FROM account WHERE id = $id" }]

[[job]]
name = "tidy"
every = "1h"
sql = "DELETE FROM account WHERE email LIKE 'x%'"
"#;

struct Fixture {
    folder: Folder,
    stores: Stores,
}

impl Fixture {
    fn new(stores: Stores) -> Fixture {
        let fixture = Fixture { folder: Folder::new(), stores };
        fixture.sql("CREATE TABLE account (id bigint PRIMARY KEY, name text, email text); CREATE INDEX mails ON account (email)");
        fixture
    }

    fn sql(&self, sql: &str) {
        if self.stores.is_postgres() {
            let url = self.stores.database_url(&self.folder);
            postgres::Client::connect(&url, postgres::NoTls).unwrap().batch_execute(sql).unwrap();
        } else {
            let connection = rusqlite::Connection::open(self.folder.database()).unwrap();
            connection.busy_timeout(Duration::from_secs(60)).unwrap();
            connection.execute_batch(sql).unwrap();
        }
    }

    fn start(&self) -> Start {
        Start::new(binary(), &self.folder, &self.folder.write("plans.toml", CONFIG))
            .stores(&self.stores, &self.folder)
    }
}

/// The expected reports, one for each of these statements and none for others.
fn expected(fixture: &Fixture) -> Vec<String> {
    let index = if fixture.stores.is_postgres() {
        "CREATE INDEX CONCURRENTLY ON"
    } else {
        "CREATE INDEX account_name ON"
    };
    let rows = "with 10,000,000 rows;";
    vec![
        format!(
            "warning: GET /accounts/count reads every row of account: about 1 s a request {rows} {index} account (name); \
             or a hot table with `count = \"account\"`"
        ),
        format!(
            "warning: GET /accounts/random reads every row and shuffles all of account: about 2 s a request {rows} \
             use a hot table with `random = \"account\"`"
        ),
        format!(
            "warning: job tidy reads every row of account: about 1 s a request {rows} no index is known that helps: add a \
             LIMIT, or `cache` its answer"
        ),
    ]
}

fn warned(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| Some(line[line.find("warning: ")?..].to_owned()));
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

fn growing_statements_are_told(stores: Stores) {
    let fixture = Fixture::new(stores);
    let checked = fixture.start().run("check", &[]);
    assert!(checked.status.success(), "{checked:?}");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(warned(&said), expected(&fixture), "{said}");
    let server = fixture.start().start();
    let said = wait_for("three warnings", || Some(server.output()).filter(|said| warned(said).len() >= 3));
    assert_eq!(warned(&said), expected(&fixture), "{said}");
}

#[test]
fn growing_statements_are_told_of_sqlite() {
    growing_statements_are_told(Stores::sqlite());
}

#[test]
fn growing_statements_are_told_of_postgres() {
    growing_statements_are_told(Stores::postgres());
}

/// An index is dropped while its statement is served.
fn a_plan_that_turns_bad_is_told_once(stores: Stores) {
    let fixture = Fixture::new(stores);
    fixture.sql(
        "INSERT INTO account WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) \
         SELECT i, 'a name', 'mail' || i FROM n",
    );
    let server = fixture.start().start();
    let mut client = server.client();
    let turned = |said: &str| {
        said.lines().filter(|line| line.contains("GET /accounts/by-mail") && line.contains(" ms now")).count()
    };
    let mut ask_for = |period: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < period {
            client.get("/accounts/by-mail?email=mail77").expect(200);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // Long enough for two checks of the statement times.
    ask_for(Duration::from_secs(11));
    assert_eq!(turned(&server.output()), 0, "{}", server.output());
    fixture.sql("DROP INDEX mails");
    wait_for("the warning", || {
        ask_for(Duration::from_secs(1));
        (turned(&server.output()) > 0).then_some(())
    });
    let said = server.output();
    let line = said.lines().find(|line| line.contains(" ms now")).expect("the line");
    assert!(line.contains("account (email)"), "{line}");
    ask_for(Duration::from_secs(11));
    assert_eq!(turned(&server.output()), 1, "{}", server.output());
}

#[test]
fn a_plan_that_turns_bad_is_told_once_of_sqlite() {
    a_plan_that_turns_bad_is_told_once(Stores::sqlite());
}

#[test]
fn a_plan_that_turns_bad_is_told_once_of_postgres() {
    a_plan_that_turns_bad_is_told_once(Stores::postgres());
}
