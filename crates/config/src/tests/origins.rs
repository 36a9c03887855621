//! The sources of values: the file, the environment, the command line.

use super::*;
use std::path::PathBuf;

fn addresses(config: &Config) -> Vec<std::net::SocketAddr> {
    config.server.listen.iter().map(|listen| listen.address).collect()
}

#[test]
fn overrides_stand_above_the_environment_above_the_file() {
    let file = "[server]\nlisten = '127.0.0.1:1'\n[database]\nurl = 'sqlite:some/file.db'\n[[endpoint]]\nroute = 'GET /'\nconstant = {}";
    let env = |name: &str| match name {
        "FOREBAY_LISTEN" => Some("127.0.0.1:2, [::1]:2".to_owned()),
        "FOREBAY_DATA" => Some("/from/env".to_owned()),
        "FOREBAY_MEMORY" => Some("embedded:memory/env".to_owned()),
        _ => None,
    };
    let plain = parse("f", file, &Overrides::default(), &none).unwrap();
    assert_eq!(addresses(&plain), ["127.0.0.1:1".parse().unwrap()]);
    assert_eq!((plain.database.url.as_str(), plain.database.line), ("sqlite:some/file.db", 4));
    assert_eq!(plain.memory.data_dir, PathBuf::from("data"));

    let from_env = parse("f", file, &Overrides::default(), &env).unwrap();
    assert_eq!(addresses(&from_env), ["127.0.0.1:2".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    assert_eq!((from_env.database.url.as_str(), from_env.database.line), ("sqlite:/from/env/file.db", 0));
    assert_eq!(from_env.memory.data_dir, PathBuf::from("memory/env"), "named more precisely");

    let set = [
        "drain.pace=500",
        "memory.limit=2GiB",
        "drain.paused = true",
        "endpoint.0.timeout=5s",
        "table.x.hot=false",
    ];
    let overrides = Overrides {
        listen: Some("127.0.0.1:0".into()),
        database: Some("sqlite:/abs/x.db".into()),
        data: Some("line/".into()),
        set: set.map(str::to_owned).into(),
        ..Overrides::default()
    };
    let from_line = parse("f", file, &overrides, &env).unwrap();
    assert_eq!(addresses(&from_line), ["127.0.0.1:0".parse().unwrap()]);
    assert_eq!(from_line.database.url, "sqlite:/abs/x.db");
    assert_eq!(from_line.memory.data_dir, PathBuf::from("line/"));
    assert_eq!(
        from_line.drain,
        DrainSettings { pace_rows_per_s: Some(500.0), paused: true, window: None, keep_ms: 600_000 }
    );
    assert_eq!(from_line.memory.limit_bytes, 2 << 30);
    assert_eq!(from_line.endpoints[0].timeout_ms, 5_000);
    assert_eq!(from_line.tables[0].name, "x");

    let data = Overrides { data: Some("d".into()), ..Overrides::default() };
    assert_eq!(parse("f", file, &data, &none).unwrap().database.url, "sqlite:d/file.db");
    assert_eq!(parse("f", "", &data, &none).unwrap().database.url, "sqlite:d/forebay.db");
}

#[test]
fn mistakes_from_elsewhere_name_their_origin() {
    let overrides = Overrides {
        listen: Some("nowhere".into()),
        set: [
            "memory.limt=1GiB",
            "drain",
            "a b=1",
            "server.workers.x=1",
            "endpoint.5.timeout=1s",
            "drain.pace=-1",
        ]
        .map(str::to_owned)
        .into(),
        ..Overrides::default()
    };
    let env = |name: &str| (name == "FOREBAY_DATABASE").then(|| "mysql://me:secret@host/db".to_owned());
    let file = "[server]\nworkers = 2\n[[endpoint]]\nroute = 'GET /'\nconstant = {}";
    let errors = parse("f", file, &overrides, &env).unwrap_err().to_string();
    let expected = "\
FOREBAY_DATABASE: url: must be sqlite: and a path, such as \"sqlite:data/codes.db\", or postgres://user:password@host/database
--listen: listen: `nowhere` is not an address and a port, such as 127.0.0.1:3000, 0.0.0.0:80 or [::]:3000
--set memory.limt=1GiB: unknown key `limt` in [memory]; did you mean limit? (permitted: url, data, name, durability, limit, reserve, huge_pages, log_limit, segment, shards, read_from)
--set drain: must be KEY=VALUE, such as memory.limit=4GiB
--set a b=1: `a b` is not a key such as memory.limit
--set server.workers.x=1: `x`: there is a whole number in the file where this setting needs a table
--set endpoint.5.timeout=1s: `5` is not the number of one of 1 items (the first is 0)
--set drain.pace=-1: pace: must be \"max\", or a number of rows a second above 0 (to stop the drain: paused = true)";
    assert_eq!(errors, expected);
}

#[test]
fn variables_are_put_in() {
    let env = |name: &str| match name {
        "SET" => Some("a\"\nb = 1".to_owned()),
        "EMPTY" => Some(String::new()),
        "N" => Some("3".to_owned()),
        _ => None,
    };
    for (written, expected) in [
        ("${SET}", "a\"\nb = 1"),
        ("x${SET}y${N}", "xa\"\nb = 1y3"),
        ("${EMPTY}", ""),
        ("${EMPTY:-else}", "else"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("$${N} $N {$N}", "${N} $N {$N}"),
    ] {
        assert_eq!(tree::expand(written, &env).as_deref(), Ok(expected), "{written}");
    }
    let config = parse("f", "[server]\nworkers = '${N}'", &Overrides::default(), &env).unwrap();
    assert_eq!(config.server.workers, Some(3));
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    let errors = load(&missing, &Overrides::default(), &none).unwrap_err().to_string();
    assert!(errors.starts_with(&format!("{}: cannot read the config file: ", missing.display())), "{errors}");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert!(load(&binary, &Overrides::default(), &none).is_err());
    std::fs::write(&binary, "[drain]\npaused = true").unwrap();
    assert!(load(&binary, &Overrides::default(), &none).unwrap().drain.paused);
}
