//! Every type with its edge values: each is shown as PostgreSQL writes it in JSON, whichever way it is read,
//! and goes back as the same value.

use super::Scratch;
use super::follow::{LOGICAL, TRIGGERS};
use forebay_database::{
    Batch, Change, Follow, Holding, Kind, OnError, Op, Options, Patience, Priority, ScannedRows, Store,
};
use forebay_value::{Row, Schema, Timestamp, Type, Value, ValueRef, from_json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The types, each with literals of its values.
const VALUES: &[(&str, &[&str])] = &[
    ("bool", &["t", "f"]),
    ("int2", &["-32768", "32767", "0"]),
    ("int4", &["-2147483648", "2147483647"]),
    ("int8", &["-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    ("oid", &["0", "4294967295"]),
    ("float4", &["NaN", "Infinity", "-Infinity", "-0", "0.1", "3.4028235e38", "1e-45", "16777217"]),
    (
        "float8",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "0.1",
            "5e-324",
            "1.7976931348623157e308",
            "1e21",
            "1e-7",
            "123456789.5",
        ],
    ),
    (
        "numeric",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "0",
            "-0.00",
            "1.50",
            "0.00000001",
            "12345678901234567890.1230",
            "1e400",
            "-1e-400",
            "100000000",
            "9999.9999",
        ],
    ),
    ("numeric(8,2)", &["NaN", "-999999.99", "999999.99", "0.00", "0.01"]),
    ("numeric(5,-2)", &["NaN", "1200", "-9999900", "0"]),
    ("numeric(3,5)", &["0.00123", "-0.00999", "0"]),
    (
        "text",
        &[
            "",
            " ",
            "Zürich 東京 🦀",
            "it's \"so\"\\",
            "\u{1}\u{1f}\u{7f}\u{2028}",
            "NULL",
            "line\nbreak\ttab",
        ],
    ),
    ("varchar(5)", &["", "abcde", "ab   "]),
    ("char(4)", &["", "ab", "äöüß"]),
    ("name", &["pg_class", ""]),
    ("\"char\"", &["a", ""]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"]),
    (
        "timestamptz",
        &[
            "infinity",
            "-infinity",
            "4714-11-24 00:00:00+00 BC",
            "0044-03-15 12:00:00+00 BC",
            "0001-12-31 23:59:59.999999+00 BC",
            "0001-01-01 00:00:00+00",
            "1582-10-15 00:00:00+00",
            "1883-11-18 12:03:57-04:56:02",
            "1969-12-31 23:59:59.999999+00",
            "1970-01-01 00:00:00+00",
            "1999-12-31 23:59:59.5+00",
            "2000-01-01 00:00:00+00",
            "2016-12-31 23:59:59.000001+00",
            "2026-03-29 01:30:00+01",
            "9999-12-31 22:00:00+00",
            "9999-12-31 23:59:59+00",
            "9999-12-31 23:59:59.999999+00",
            "10000-01-01 00:00:00+00",
            "12345-06-07 08:09:10.11+00",
            "294246-12-31 23:59:59+00",
            "294247-01-10 04:00:54.775807+00",
            "294247-01-10 04:00:54.775808+00",
            "294276-12-31 23:59:59.999999+00",
        ],
    ),
    (
        "timestamp",
        &[
            "infinity",
            "-infinity",
            "4714-11-24 00:00:00 BC",
            "0044-03-15 12:00:00.25 BC",
            "0001-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "1970-01-01 00:00:00",
            "2000-01-01 00:00:00",
            "2016-11-01 14:11:51.5",
            "2016-11-01 14:11:50",
            "2016-11-01 14:11:51.000001",
            "2026-03-29 02:30:00",
            "9999-12-31 23:59:59.999999",
            "10000-01-01 00:00:00",
            "294276-12-31 23:59:59.999999",
        ],
    ),
    ("timestamp(3)", &["2016-11-01 14:11:51.123", "1999-12-31 23:59:58.999", "infinity"]),
    ("timestamptz(0)", &["2016-11-01 14:11:51+00", "infinity", "10000-01-01 00:00:00+00"]),
    (
        "date",
        &[
            "infinity",
            "-infinity",
            "4714-11-24 BC",
            "0044-03-15 BC",
            "0001-12-31 BC",
            "0001-01-01",
            "1969-12-31",
            "1970-01-01",
            "2000-01-01",
            "2000-02-29",
            "9999-12-31",
            "10000-01-01",
            "294277-01-01",
            "5874897-12-31",
        ],
    ),
    ("time", &["00:00:00", "24:00:00", "23:59:59.999999", "14:11:51.25", "12:00:00.000001", "10:20:30"]),
    ("time(1)", &["14:11:51.2", "24:00:00"]),
    ("timetz", &["00:00:00+00", "24:00:00-15:59", "14:11:51.25+02:30"]),
    (
        "interval",
        &[
            "0",
            "1 year 2 mons 3 days 04:05:06.7",
            "-178000000 years",
            "178000000 years",
            "-1 mon +2 days -00:00:00.000001",
            "1 day",
        ],
    ),
    ("json", &["{\"b\": 1, \"a\":2,\"a\":3}", "[]", "1e400", "\"\\u00e9\"", "{\"n\": -0.0}"]),
    (
        "jsonb",
        &[
            "{\"b\": 1, \"a\": [1, null, {}]}",
            "[]",
            "1e3",
            "\"x , y: z\"",
            "{\"a b\": 12345678901234567890.10}",
        ],
    ),
    ("bytea", &["", "\\x00", "\\xff00fe", "\\x666f6f"]),
    ("inet", &["10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "0.0.0.0/0"]),
    ("cidr", &["10.0.0.0/8", "::/0", "2001:db8::/32"]),
    ("macaddr", &["08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"]),
    ("macaddr8", &["08:00:2b:01:02:03:04:05"]),
    ("money", &["0", "-92233720368547758.08", "92233720368547758.07", "1.5"]),
    ("bit(3)", &["101", "000"]),
    ("varbit(5)", &["", "10110"]),
    ("bit varying", &["1111111111", ""]),
    ("tsvector", &["", "'a':1 'cat':3A", "'it''s'"]),
    ("tsquery", &["'a' & 'b'", "!'x'"]),
    ("xml", &["<a>1</a>", "text"]),
    ("point", &["(1,2)", "(1e300,-0)", "(NaN,Infinity)"]),
    ("line", &["{1,2,3}"]),
    ("lseg", &["[(0,0),(1,1)]"]),
    ("box", &["(1,1),(0,0)"]),
    ("path", &["[(0,0),(1,1)]", "((0,0),(1,1))"]),
    ("polygon", &["((0,0),(1,1),(2,0))"]),
    ("circle", &["<(0,0),1.5>"]),
    ("int4range", &["empty", "[1,10)", "(,5)", "[1,)", "(,)"]),
    ("int8range", &["[-9223372036854775808,9223372036854775807)"]),
    ("numrange", &["[1.10,2.20]", "empty"]),
    ("daterange", &["[2000-01-01,infinity)", "[0044-03-15 BC,10000-01-01)"]),
    ("tsrange", &["[2000-01-01 00:00:00,infinity]"]),
    ("tstzrange", &["[2000-01-01 00:00:00+00,2001-01-01 00:00:00+00)"]),
    ("pg_lsn", &["0/0", "16/B374D848"]),
    ("regclass", &["pg_class"]),
    ("regtype", &["integer"]),
    ("xid8", &["0", "18446744073709551615"]),
    ("jsonpath", &["$.\"a\"[*]"]),
    ("int4[]", &["{}", "{1,NULL,-3}", "{{1,2},{3,4}}"]),
    ("text[]", &["{}", "{\"a,b\",NULL,\"\\\"\",\"NULL\"}", "{\"\"}"]),
    ("float8[]", &["{NaN,Infinity,-Infinity,1.5}"]),
    ("numeric[]", &["{NaN,Infinity,1.50}"]),
    ("date[]", &["{infinity,9999-12-31,\"0044-03-15 BC\"}"]),
    ("timestamp[]", &["{infinity,\"10000-01-01 00:00:00\",\"2016-11-01 14:11:51.5\"}"]),
    ("timestamptz[]", &["{infinity,\"10000-01-01 00:00:00+00\"}"]),
    ("time[]", &["{24:00:00,10:03:00}"]),
    ("uuid[]", &["{00000000-0000-0000-0000-000000000001}"]),
    ("bool[]", &["{t,f,NULL}"]),
    ("jsonb[]", &["{\"{\\\"a\\\": 1}\"}"]),
    ("inet[]", &["{10.0.0.1,::1}", "{}"]),
    ("mood", &["sad", "very fine"]),
    ("mood[]", &["{sad,\"very fine\"}"]),
    ("short", &["abc", ""]),
    ("address", &["10.0.0.1"]),
    ("moment", &["2016-11-01 14:11:51.5", "infinity"]),
    ("pair", &["(1,\"a b\")", "(,)"]),
    ("pair[]", &["{\"(1,a)\"}"]),
    ("mood_range", &["[sad,\"very fine\"]"]),
];

const TYPES: &str = "CREATE TYPE mood AS ENUM ('sad', 'very fine'); CREATE DOMAIN short AS varchar(5); CREATE DOMAIN address AS inet; \
     CREATE DOMAIN moment AS timestamp; CREATE TYPE pair AS (n int, t text); CREATE TYPE mood_range AS RANGE (subtype = mood);";

/// A value of a type and its text in the database.
struct Edge {
    table: String,
    ty: &'static str,
    schema: Arc<Schema>,
    /// The JSON of each row by the database, and the JSON of its text.
    expected: BTreeMap<i64, (String, String)>,
}

async fn edges(scratch: &Scratch) -> Vec<Edge> {
    scratch.execute(TYPES).await;
    let mut edges = Vec::new();
    for (number, (ty, literals)) in VALUES.iter().enumerate() {
        let table = format!("v{number}");
        let mut sql = format!("CREATE TABLE {table} (id int PRIMARY KEY, v {ty});");
        let nulls = format!("INSERT INTO {table} VALUES (0, NULL);");
        let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
        for (id, text) in literals.iter().enumerate() {
            sql += &format!("INSERT INTO {table} VALUES ({}, {});", id + 1, literal(text));
        }
        scratch.execute(&(sql + &nulls)).await;
        let schema = scratch.store.describe(&table).await.unwrap().expect("a table");
        let mut expected = BTreeMap::new();
        for id in 0..=literals.len() as i64 {
            let json = format!(
                "SET TimeZone = 'UTC'; SELECT coalesce((row_to_json(t) -> 'v')::text, 'null') FROM (SELECT v FROM {table} WHERE id = {id}) t"
            );
            let text =
                format!("SELECT coalesce(to_json(v::text)::text, 'null') FROM {table} WHERE id = {id}");
            expected.insert(id, (scratch.text(&json).await, scratch.text(&text).await));
        }
        edges.push(Edge { table, ty, schema: Arc::new(schema), expected });
    }
    edges
}

fn shown(value: ValueRef<'_>) -> String {
    let mut out = Vec::new();
    json::write_value(value, &mut out);
    String::from_utf8(out).unwrap()
}

/// Whether a JSON of ours is the database's, apart from what our own forms differ in: six digits and `Z`,
/// base64, an oid as a number, the notation of a double, the spaces of a jsonb, and text where the database
/// shows more than text.
fn is_same(edge: &Edge, id: i64, ours: &str) -> bool {
    let (theirs, text) = &edge.expected[&id];
    if edge.schema.columns[1].ty == Type::AsText {
        return ours == if theirs.starts_with('"') { theirs } else { text };
    }
    let instant = |json: &str| Timestamp::parse(serde_json::from_str::<String>(json).ok()?.as_str());
    let bare = |json: &str| json.split_whitespace().collect::<String>();
    ours == theirs
        || edge.ty == "oid" && theirs.trim_matches('"') == ours
        || instant(ours).is_some() && instant(ours) == instant(theirs)
        || matches!(edge.schema.columns[1].ty, Type::Double)
            && ours.parse::<f64>().is_ok_and(|number| theirs.parse() == Ok(number))
        || edge.ty.starts_with("jsonb") && bare(ours) == bare(theirs)
        || edge.ty.contains("[]") && bare(&ours.replace("10000-01-01T00:00:00Z", "")) == bare(theirs)
        || edge.ty == "bytea" && is_same_bytes(ours, theirs)
}

fn is_same_bytes(ours: &str, theirs: &str) -> bool {
    let Ok(Value::Bytes(bytes)) = from_json(Type::Bytes, ours) else { return ours == theirs };
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    theirs.contains(&format!("x{hex}"))
}

async fn scanned(store: &Store, schema: &Schema) -> ScannedRows {
    let mut messages = store.scan(schema, None);
    let mut all = ScannedRows::default();
    while let Some(message) = messages.recv().await {
        let message = message.unwrap();
        all.rows.extend(message.rows);
        all.unfit.extend(message.unfit);
    }
    all
}

fn id_and_value<'a>(schema: &Schema, row: &'a Row) -> (i64, ValueRef<'a>) {
    let ValueRef::Bigint(id) = row.as_ref().get(schema, 0) else { panic!("a key") };
    (id, row.as_ref().get(schema, 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edge_value_is_shown_as_the_database_shows_it() {
    let scratch = Scratch::new().await;
    let (mut count, mut wrong) = (0, Vec::new());
    for edge in edges(&scratch).await {
        let all = scanned(&scratch.store, &edge.schema).await;
        assert_eq!(
            (all.rows.len(), all.unfit.len()),
            (edge.expected.len(), 0),
            "{}: {:?}",
            edge.ty,
            all.unfit
        );
        let value_sql = match edge.schema.columns[1].ty {
            // A cast to text writes the length of an inet's netmask too.
            Type::AsText => "CASE WHEN v IS DISTINCT FROM NULL THEN format('%s', v) END",
            _ => "v",
        };
        for row in &all.rows {
            row.as_ref().check(&edge.schema).unwrap();
            let (id, value) = id_and_value(&edge.schema, row);
            let sql = format!("SELECT {value_sql} AS v FROM {} WHERE id = $id", edge.table);
            let by_sql = scratch.run(&sql, vec![Value::Bigint(id)]).await.unwrap();
            let fetched = scratch.store.fetch(&edge.schema, Value::Bigint(id)).await.unwrap();
            assert_eq!(fetched.as_ref(), Some(row), "{} {id}", edge.ty);
            for ours in [shown(value), shown(by_sql.values[0].as_ref())] {
                if !is_same(&edge, id, &ours) {
                    wrong.push(format!("{} {ours} {:?}", edge.ty, edge.expected[&id]));
                }
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 300, "{count}");
}

fn batch(schema: &Arc<Schema>, from: Option<u64>, ops: Vec<Op>) -> Batch {
    let to = from.unwrap_or(0) + 1;
    let changes = ops.into_iter().map(|op| Change { table: 0, position: to, is_intent: false, op });
    Batch {
        log: 0xfeed,
        from,
        to,
        note: Default::default(),
        opening: String::new(),
        schemas: vec![schema.clone()],
        changes: changes.collect(),
        basis: None,
        on_error: OnError::Fail,
        patience: Patience::default(),
        priority: Priority::Holds,
        held: Holding::default(),
    }
}

/// Whether two tables hold the same, as text.
async fn hold_the_same(scratch: &Scratch, one: &str, other: &str) -> bool {
    let all = |table: &str| format!("SELECT id, v::text FROM {table}");
    let only =
        format!("SELECT count(*) FROM (({0} EXCEPT {1}) UNION ALL ({1} EXCEPT {0})) d", all(one), all(other));
    scratch.text(&only).await == "0"
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edge_value_goes_back_as_the_same_value() {
    let scratch = Scratch::new().await;
    let mut position = None;
    for edge in edges(&scratch).await {
        let copy = format!("{}_copy", edge.table);
        scratch.execute(&format!("CREATE TABLE {copy} (id int PRIMARY KEY, v {})", edge.ty)).await;
        let schema = Arc::new(scratch.store.describe(&copy).await.unwrap().unwrap());
        let enforced = scratch.store.enforced(&schema).await.unwrap().unwrap();
        let rows = scanned(&scratch.store, &edge.schema).await.rows;
        // As a client sends back what it was shown.
        let posted = rows.iter().map(|row| {
            let (id, value) = id_and_value(&edge.schema, row);
            let given = from_json(schema.columns[1].ty, &shown(value))
                .unwrap_or_else(|why| panic!("{} {id} {why}", edge.ty));
            let stored =
                enforced.rules.as_stored(1, given).unwrap_or_else(|why| panic!("{} {id} {why}", edge.ty));
            assert_eq!(shown(stored.as_ref()), shown(value), "{}", edge.ty);
            Row::from_values(&schema, &[Value::Bigint(id), stored])
        });
        let posted: Vec<Row> = posted.collect();
        let insert = posted.iter().cloned().map(Op::Insert).collect();
        let put = posted.iter().cloned().map(Op::Put).collect();
        let update = |row: &Row| Op::Update {
            key: row.as_ref().key(&schema).to_owned(),
            columns: vec![(1, row.as_ref().get(&schema, 1).to_owned())],
        };
        let updates = posted.iter().map(update).collect();
        for (way, ops) in [("insert", insert), ("put", put), ("update", updates)] {
            scratch
                .store
                .apply(batch(&schema, position, ops))
                .await
                .unwrap_or_else(|why| panic!("{} {way} {why}", edge.ty));
            position = Some(position.unwrap_or(0) + 1);
            assert!(hold_the_same(&scratch, &edge.table, &copy).await, "{} by {way}", edge.ty);
        }
        // In bulk, by the ways of long runs.
        let wide = |row: &Row, at: i64| {
            Row::from_values(&schema, &[Value::Bigint(at), row.as_ref().get(&schema, 1).to_owned()])
        };
        let many: Vec<Row> =
            (0..300).map(|at| wide(&posted[at as usize % posted.len()], 1_000 + at)).collect();
        for ops in [
            many.iter().cloned().map(Op::Insert).collect(),
            many.iter().cloned().map(Op::Put).collect(),
            many.iter().map(update).collect(),
        ] {
            scratch
                .store
                .apply(batch(&schema, position, ops))
                .await
                .unwrap_or_else(|why| panic!("{} {why}", edge.ty));
            position = Some(position.unwrap_or(0) + 1);
        }
        let differing = format!(
            "SELECT count(*) FROM {copy} c JOIN {copy} o ON o.id = (c.id - 1000) % {} WHERE c.id >= 1000 AND c.v::text IS DISTINCT FROM o.v::text",
            posted.len()
        );
        let by_place = scratch.text(&differing).await;
        let in_order = posted.iter().enumerate().all(|(at, row)| id_and_value(&schema, row).0 == at as i64);
        assert!(!in_order || by_place == "0", "{}: {by_place}", edge.ty);
        assert_eq!(scratch.store.as_stored(&schema, posted.clone()).await.unwrap(), posted, "{}", edge.ty);
    }
}

async fn followed(way: &str) {
    let scratch = Scratch::with(Options::default(), way).await;
    let edges = edges(&scratch).await;
    let follow = |edge: &Edge| Follow { schema: edge.schema.clone(), old: vec![], own: false };
    let follows: Vec<Follow> = edges.iter().map(follow).collect();
    let mut follower = scratch.store.follow(7, follows).await.unwrap();
    for edge in &edges {
        scratch.execute(&format!("UPDATE {} SET v = v", edge.table)).await;
    }
    let mut left: usize = edges.iter().map(|edge| edge.expected.len()).sum();
    while left > 0 {
        for row in follower.poll(&[]).await.unwrap().rows {
            let edge = &edges[row.table];
            let found = row.row.unwrap_or_else(|| panic!("{} {:?}", edge.ty, row.unfit));
            let (id, value) = id_and_value(&edge.schema, &found);
            assert!(
                is_same(edge, id, &shown(value)),
                "{} {} {:?}",
                edge.ty,
                shown(value),
                edge.expected[&id]
            );
            left -= 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edge_value_is_followed_by_triggers() {
    followed(TRIGGERS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edge_value_is_followed_by_logical_decoding() {
    followed(LOGICAL).await;
}

/// A database without an encoding holds bytes that are no text.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_no_utf8_stops_its_row_alone() {
    let scratch = Scratch::of_encoding("SQL_ASCII").await;
    scratch
        .execute(
            "CREATE TABLE notes (id int PRIMARY KEY, body text); INSERT INTO notes SELECT n, 'fine' FROM generate_series(1, 5) n; \
             UPDATE notes SET body = E'secret\\xff' WHERE id IN (2, 4)",
        )
        .await;
    let schema = Arc::new(scratch.store.describe("notes").await.unwrap().unwrap());
    let all = scanned(&scratch.store, &schema).await;
    assert_eq!((all.rows.len(), all.unfit.len()), (3, 2));
    let why = &*all.unfit[0].why;
    assert!(why.contains("table notes, row 2: column body") && !why.contains("secret"), "{why}");
    let error = scratch.store.fetch(&schema, Value::Bigint(4)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unfit);
    assert!(error.message().contains("table notes, row 4: column body"), "{error}");
    let error = scratch.run("SELECT body FROM notes", vec![]).await.unwrap_err();
    assert_eq!((error.kind(), error.column()), (&Kind::Unfit, Some("body")));
    let follows = vec![Follow { schema: schema.clone(), old: vec![], own: false }];
    let mut follower = scratch.store.follow(7, follows).await.unwrap();
    scratch.execute("UPDATE notes SET body = body").await;
    let (mut fit, mut unfit) = (0, 0);
    while fit + unfit < 5 {
        for row in follower.poll(&[]).await.unwrap().rows {
            fit += usize::from(row.row.is_some());
            unfit += usize::from(row.unfit.is_some());
        }
    }
    assert_eq!((fit, unfit), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unique_column_that_is_not_null_is_a_key() {
    let scratch = Scratch::new().await;
    scratch
        .execute(
            "CREATE TABLE users (name text, code int UNIQUE NOT NULL, n int UNIQUE); CREATE TABLE pairs (a int, b int, id uuid NOT NULL \
             UNIQUE, PRIMARY KEY (a, b)); CREATE TABLE late (id int NOT NULL UNIQUE DEFERRABLE)",
        )
        .await;
    let schema = scratch.store.describe("users").await.unwrap().unwrap();
    assert_eq!(schema.key_column().name, "code");
    let pairs = scratch.store.describe("pairs").await.unwrap().unwrap();
    assert_eq!(pairs.key_column().name, "id");
    assert_eq!(scratch.store.enforced(&pairs).await.unwrap().unwrap().unique, [vec![0, 1]]);
    scratch.execute("ALTER TABLE pairs RENAME TO gone").await;
    assert_eq!(scratch.store.enforced(&pairs).await.unwrap(), None, "nothing is known of a missing table");
    scratch.store.describe("late").await.unwrap_err();
    let follows = vec![Follow { schema: Arc::new(schema), old: vec![], own: false }];
    let mut follower = scratch.store.follow(7, follows).await.unwrap();
    scratch.execute("INSERT INTO users VALUES ('a', 1); UPDATE users SET name = 'b'").await;
    let mut found = None;
    while found.is_none() {
        found = follower.poll(&[]).await.unwrap().rows.pop();
    }
    assert!(found.unwrap().row.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_without_a_zone_shows_now_as_the_database_does() {
    let scratch = Scratch::new().await;
    scratch
        .execute("CREATE TABLE events (id int PRIMARY KEY, at timestamp DEFAULT now(), utc timestamp DEFAULT (now() AT TIME ZONE 'utc'))")
        .await;
    let schema = scratch.store.describe("events").await.unwrap().unwrap();
    for zone in ["UTC", "America/New_York", "Asia/Kathmandu", "Europe/Berlin", "Pacific/Apia"] {
        scratch.execute(&format!("ALTER DATABASE {} SET TimeZone = '{zone}'", scratch.database)).await;
        let rules = scratch.store.enforced(&schema).await.unwrap().unwrap().rules;
        for at in [
            "2026-01-15T12:00:00Z",
            "2026-03-08T06:59:59Z",
            "2026-03-08T07:00:00Z",
            "2026-07-01T00:00:00Z",
            "2026-10-25T01:00:00Z",
        ] {
            let instant = Value::Timestamp(Timestamp::parse(at).unwrap());
            let ours = shown(rules.as_stored(1, instant).unwrap().as_ref());
            let theirs =
                scratch.text(&format!("SELECT to_json('{at}'::timestamptz AT TIME ZONE '{zone}')")).await;
            assert_eq!(ours, theirs, "{zone}");
        }
    }
}
