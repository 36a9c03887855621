//! The list of keys: defaults, the documentation, and that no input makes the reader panic.

use super::*;
use crate::sections::action::ACTIONS;
use crate::sections::admin::ADMIN;
use crate::sections::cache::CACHE;
use crate::sections::database::DATABASE;
use crate::sections::drain::DRAIN;
use crate::sections::endpoint::ENDPOINT;
use crate::sections::file::TOP;
use crate::sections::log::LOG;
use crate::sections::memory::MEMORY;
use crate::sections::server::{LIMITS, SERVER};
use crate::sections::table::TABLE;
use proptest::prelude::*;

/// Writing every default of `keys` into a file gives the same config as an empty file.
#[test]
fn defaults_are_what_the_list_of_keys_says() {
    let mut file = String::new();
    for section in [&SERVER, &LIMITS, &DATABASE, &MEMORY, &CACHE, &DRAIN, &ADMIN, &LOG] {
        file += &format!("{}\n", section.name);
        for key in section.keys.iter().filter(|key| !key.default.is_empty() && !key.default.starts_with('('))
        {
            file += &format!("{} = {}\n", key.name, key.default);
        }
    }
    let shown = |mut config: Config| {
        (config.database.line, config.memory.line) = (0, 0);
        config
    };
    assert_eq!(shown(good(&file)), shown(good("")));
    let plain = endpoint("route = 'GET /'\nsql = 'SELECT 1'");
    for key in ENDPOINT.keys.iter().filter(|key| !key.default.is_empty() && !key.default.starts_with('(')) {
        let written = endpoint(&format!("route = 'GET /'\nsql = 'SELECT 1'\n{} = {}", key.name, key.default));
        assert_eq!(written, plain, "{}", key.name);
    }
}

/// The tables of docs/configuration.md must equal the list of keys. With `FOREBAY_BLESS` set, writes them.
#[test]
fn documentation_has_every_key() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let mut document = std::fs::read_to_string(&file).unwrap();
    for (name, table) in key_tables() {
        let (start, end) = (format!("<!-- keys of {name} -->\n"), "<!-- end -->");
        let from = document.find(&start).unwrap_or_else(|| panic!("no table {start}")) + start.len();
        let to = from + document[from..].find(end).expect("every table has an end");
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            document.replace_range(from..to, &table);
        } else {
            assert_eq!(&document[from..to], table, "docs/configuration.md, the keys of {name}");
        }
    }
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&file, &document).unwrap();
    }
    for (_, _, signature, ..) in expr::FUNCTIONS {
        assert!(
            document.contains(&format!("| `{signature}` |")),
            "docs/configuration.md does not explain {signature}"
        );
    }
    let sql_names = Type::SQL_NAMES.iter().map(|(sql, _)| sql);
    for ty in Type::NAMES.iter().chain(&["serial", "url", "slug(n)"]).chain(sql_names) {
        assert!(document.contains(&format!("`{ty}`")), "docs/configuration.md does not name the type {ty}");
    }
}

/// Fragments of config files, valid and invalid, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let keys = TOP.keys.iter().chain(ENDPOINT.keys).chain(SERVER.keys).chain(TABLE.keys);
    let mut words: Vec<String> = keys.map(|key| key.name.to_owned()).collect();
    words.extend(
        ACTIONS.iter().flat_map(|known| {
            std::iter::once(&known.action).chain(known.with).map(|key| key.name.to_owned())
        }),
    );
    let values = [
        "\"GET /{id}\"",
        "\"$id\"",
        "\"a{$b}\"",
        "\"{\"",
        "\"${X}\"",
        "\"uuid()\"",
        "{ a = \"text key\" }",
        "[]",
        "{}",
        "1",
        "-1.5",
        "true",
        "nan",
        "1979-05-27",
        "\"t\"",
        "\"4GiB\"",
        "[{ sql = \"SELECT 1\" }]",
        "\"'\"",
        "\"é{{\"",
        "{ id = \"serial key\", é = \"text = 'x\" }",
        "\"bigint 1..5 = 2\"",
        "\"random_int(1,\"",
        "0x",
        "\"\\u0000\"",
    ];
    let entry = (prop::sample::select(words), prop::sample::select(values.to_vec()));
    let body = prop::collection::btree_map(entry.0, entry.1, 0..6).prop_map(|entries| {
        entries.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect::<String>()
    });
    let headers = vec![
        "[server]",
        "[table.t]",
        "[[endpoint]]",
        "[[endpoint]]",
        "[[endpoint]]",
        "[endpoint.reply]",
        "[memory]",
        "é",
    ];
    let section =
        (prop::sample::select(headers), body).prop_map(|(header, body)| format!("{header}\n{body}"));
    prop::collection::vec(section, 0..8).prop_map(|sections| sections.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_file_makes_it_panic(text in pieces(), set in "\\PC{0,12}") {
        let overrides = Overrides { set: vec![set], ..Overrides::default() };
        if let Err(errors) = parse("f", &text, &overrides, &none) {
            prop_assert!(!errors.errors().is_empty());
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|[\\[\\]{}=\"'.#\n\r$]){0,60}") {
        let _ = load_text(&text);
    }

    #[test]
    fn no_expression_makes_it_panic(text in "[$a-z0-9_(){}',?. é-]{0,24}") {
        let _ = expr::parse(&text);
        let _ = units::bytes(&text);
        let _ = units::milliseconds(&text);
        let _ = load_text(&format!("[[endpoint]]\nroute = \"GET /{text}\"\nsql = \"x\"\nparams = {{ a = \"{text}\" }}\n[table.t.columns]\na = \"{text}\""));
    }

    #[test]
    fn a_value_stays_what_it_was(words in "[a-z ]{1,20}") {
        prop_assert_eq!(expr::parse(&words), Ok(text(&words)));
        let quoted = format!("'{words}'");
        prop_assert_eq!(expr::parse(&quoted), Ok(text(&words)));
    }
}
