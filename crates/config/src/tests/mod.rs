//! The config, from the outside: files in, models or messages out.

mod drain;
mod endpoints;
mod fixed;
mod groups;
mod key_list;
mod origins;

use super::model::*;
use super::syntax::{expr, tree, units};
use super::*;
use forebay_value::{KeyKind, Type, Value};

fn none(_: &str) -> Option<String> {
    None
}

fn load_text(text: &str) -> Result<Config, ConfigErrors> {
    parse("test.toml", text, &Overrides::default(), &none)
}

fn good(text: &str) -> Config {
    load_text(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// The only endpoint of a file with this content and a table `t`.
fn endpoint(text: &str) -> Endpoint {
    let table =
        "[table.t]\ncolumns = { id = \"bigint key\", a = \"text null indexed\", n = \"bigint = 0\" }\n";
    good(&format!("{table}[[endpoint]]\n{text}")).endpoints.remove(0)
}

fn param(name: &str) -> Expr {
    Expr::Param(name.into())
}

fn text(text: &str) -> Expr {
    Expr::Literal(Literal::Text(text.into()))
}

fn int(number: i64) -> Expr {
    Expr::Literal(Literal::Int(number))
}

fn call(function: Function, args: Vec<Expr>) -> Expr {
    Expr::Call { function, args }
}

/// `broken/NAME.toml` must give the messages of `broken/NAME.txt`. With `FOREBAY_BLESS` set, writes them.
#[test]
fn broken_files_are_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/broken");
    for name in [
        "syntax",
        "settings",
        "tls",
        "acme",
        "certificates",
        "uncertified",
        "tables",
        "routes",
        "actions",
        "caching",
        "unnamed",
        "expressions",
        "params",
        "remote",
        "auth",
        "cors",
        "groups",
        "files",
        "passing",
    ] {
        let text = std::fs::read_to_string(folder.join(name).with_extension("toml")).unwrap();
        let errors = parse(&format!("{name}.toml"), &text, &Overrides::default(), &none).unwrap_err();
        let expected_file = folder.join(name).with_extension("txt");
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&expected_file, format!("{errors}\n")).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_file).unwrap();
        assert_eq!(format!("{errors}\n"), expected, "the messages of broken/{name}.toml");
    }
}

#[test]
fn every_example_loads() {
    for (name, text) in BUNDLED {
        let config =
            parse(name, text, &Overrides::default(), &none).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(explain(&config).lines().count(), config.endpoints.len() + config.jobs.len());
        assert!(!config.endpoints.is_empty());
    }
}

#[test]
fn the_codes_example_in_words() {
    let config = parse(BUNDLED[0].0, BUNDLED[0].1, &Overrides::default(), &none).unwrap();
    let expected = "\
GET    /simple                        constant
PATCH  /update-something/{id}/{name}  handler update_something
POST   /code                          sql → sqlite:data/codes.db
GET    /code-v1                       sql ← sqlite:data/codes.db
GET    /code-v2                       sql ← sqlite:data/codes.db
GET    /code-v3                       sql ← sqlite:data/codes.db
GET    /code-v4                       sql ← sqlite:data/codes.db
POST   /code-fast                     insert codes → log → sqlite:data/codes.db
GET    /code-fast                     random codes ← memory
POST   /code-ultra-fast               insert ucodes → log → sqlite:data/codes.db
GET    /code-ultra-fast/{id}          get ucodes ← memory
";
    assert_eq!(explain(&config), expected);
    assert_eq!(
        config.table("codes").map(|table| (table.others, table.hot, table.line)),
        Some((model::Others::Unseen, true, 20))
    );
}

#[test]
fn columns_become_a_schema() {
    let config = good(
        "[table.t.columns]\nid = 'uuid key = uuid7()'\na = 'text(5) unique null'\nb = \"text = 'it''s'\"\n\
         c = 'bigint indexed = -1'\nd = 'timestamp = now()'\ne = 'numeric'\nf = 'text = plain'",
    );
    let schema = config.tables[0].columns.as_ref().unwrap();
    assert_eq!((schema.key, schema.key_kind), (0, KeyKind::Uuid));
    let fills: Vec<_> = schema.columns.iter().map(|column| column.fill.clone()).collect();
    use forebay_value::Fill;
    let value = |text: &str| Some(Fill::Value(Value::Text(text.into())));
    assert_eq!(
        fills,
        [
            Some(Fill::Uuid7),
            None,
            value("it's"),
            Some(Fill::Value(Value::Bigint(-1))),
            Some(Fill::Now),
            None,
            value("plain")
        ]
    );
    let sql = "id = 'int4 key'\nq = 'int2 = 7'\np = 'decimal(10, 2) null'\ns = 'varchar(40) unique'\nt = 'timestamptz = now()'\nj = 'jsonb null'";
    let sql = good(&format!("[table.t.columns]\n{sql}")).tables.remove(0).columns.expect("columns");
    let types: Vec<_> = sql.columns.iter().map(|column| column.ty.to_string()).collect();
    assert_eq!(types, ["integer", "smallint", "numeric(10,2)", "text(40)", "timestamp", "json"]);
    assert_eq!(sql.key_kind, KeyKind::Bigint);
    let a = &schema.columns[1];
    assert_eq!(
        (a.ty, a.unique, a.nullable, a.indexed),
        (Type::Text { max_chars: Some(5) }, true, true, false)
    );
    assert!(schema.columns[3].indexed && !schema.columns[3].nullable);
    assert_eq!(good("[table.t]\nhot = false").tables[0].columns, None);
}
