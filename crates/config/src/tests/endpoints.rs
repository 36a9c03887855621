//! Endpoints, jobs, and their parts.

use super::*;

#[test]
fn expressions() {
    let check = |written: &str, expected: Expr| assert_eq!(expr::parse(written), Ok(expected), "{written}");
    check("plain text", text("plain text"));
    check("$5 off", text("$5 off"));
    check("uuid", text("uuid"));
    check("", text(""));
    check("'$name'", text("$name"));
    check("'{a}'", text("{a}"));
    check("a {{b}} c", text("a {b} c"));
    check("$name", param("name"));
    check(" uuid() ", call(Function::Uuid, vec![]));
    check("random_int(1,$max)", call(Function::RandomInt, vec![int(1), param("max")]));
    check("random_int( -5 , 1_000 )", call(Function::RandomInt, vec![int(-5), int(1000)]));
    check(
        "one_of(a, 'b, c', 1, 1.5, true, $p)",
        call(
            Function::OneOf,
            vec![
                text("a"),
                text("b, c"),
                int(1),
                Expr::Literal(Literal::Float(1.5)),
                Expr::Literal(Literal::Bool(true)),
                param("p"),
            ],
        ),
    );
    let code = || call(Function::RandomCode, vec![int(6)]);
    check("$alias ?? random_code(6)", Expr::Coalesce(Box::new(param("alias")), Box::new(code())));
    check(
        "$a ?? $b ?? 1",
        Expr::Coalesce(
            Box::new(param("a")),
            Box::new(Expr::Coalesce(Box::new(param("b")), Box::new(int(1)))),
        ),
    );
    check(
        "{base_url()}/{{x}}/{$code ?? '}'}!",
        Expr::Template(vec![
            Part::Expr(call(Function::BaseUrl, vec![])),
            Part::Text("/{x}/".into()),
            Part::Expr(Expr::Coalesce(Box::new(param("code")), Box::new(text("}")))),
            Part::Text("!".into()),
        ]),
    );
}

/// `{x}` was once short for `{$x}` in tags; now it only declares parts of routes.
#[test]
fn braces_without_a_dollar_only_declare_parts_of_routes() {
    for written in ["{id}", "item:{id}", "{$a}/{rest...}"] {
        let what = expr::parse(written).unwrap_err().to_string();
        assert!(what.contains("declares a part of a route; in a text, write {$"), "{written}: {what}");
    }
    let tagged = "route = 'GET /{id}'\nget = 't'\ncache = { local = '1s', tags = ['item:{id}'] }";
    let errors = load_text(&format!("[table.t]\ncolumns = {{ id = 'bigint key' }}\n[[endpoint]]\n{tagged}"));
    assert!(errors.unwrap_err().to_string().contains("tags: `{id}` declares a part of a route"));
}

#[test]
fn params_are_typed_or_computed() {
    let given = |ty: Option<(Type, Constraint)>, default, optional| ParamKind::Given {
        ty: ty.map(|(ty, constraint)| ParamType { ty, constraint, is_array: false }),
        default,
        optional,
    };
    let range = |min, max| Constraint::Range { min, max };
    let array = |ty, constraint, optional| ParamKind::Given {
        ty: Some(ParamType { ty, constraint, is_array: true }),
        default: None,
        optional,
    };
    for (written, expected) in [
        ("'uuid'", given(Some((Type::Uuid, Constraint::None)), None, false)),
        ("'text?'", given(Some((Type::TEXT, Constraint::None)), None, true)),
        ("'bigint = 1_250_000'", given(Some((Type::Bigint, Constraint::None)), Some(int(1_250_000)), false)),
        ("'bigint 1..10'", given(Some((Type::Bigint, range(1, 10))), None, false)),
        ("'bigint 1.. = $b'", given(Some((Type::Bigint, range(1, i64::MAX))), Some(param("b")), false)),
        ("'url'", given(Some((Type::TEXT, Constraint::Url)), None, false)),
        ("'slug(9)?'", given(Some((Type::Text { max_chars: Some(9) }, Constraint::Slug)), None, true)),
        (
            "'text(3) = abc'",
            given(Some((Type::Text { max_chars: Some(3) }, Constraint::None)), Some(text("abc")), false),
        ),
        ("'?'", given(None, None, true)),
        ("'= 5'", given(None, Some(text("5")), false)),
        (
            "'decimal(5, 2)? '",
            given(Some((Type::Decimal { precision: 5, scale: 2 }, Constraint::None)), None, true),
        ),
        ("'smallint 0.. = 7'", given(Some((Type::Smallint, range(0, 32_767))), Some(int(7)), false)),
        ("'varchar(9)'", given(Some((Type::Text { max_chars: Some(9) }, Constraint::None)), None, false)),
        ("'uuid()'", ParamKind::Computed(call(Function::Uuid, vec![]))),
        (
            "'a-{$b}'",
            ParamKind::Computed(Expr::Template(vec![Part::Text("a-".into()), Part::Expr(param("b"))])),
        ),
        ("7", ParamKind::Computed(int(7))),
        ("'bigint[] 1..10'", array(Type::Bigint, range(1, 10), false)),
        ("'uuid[]?'", array(Type::Uuid, Constraint::None, true)),
        ("'slug(9)[]'", array(Type::Text { max_chars: Some(9) }, Constraint::Slug, false)),
    ] {
        let written =
            format!("route = 'GET /'\nsql = 'SELECT 1'\nparams = {{ b = 'bigint', p = {written} }}");
        let found = endpoint(&written);
        assert_eq!(found.params[1], Param { name: "p".into(), kind: expected, line: 6 }, "{written}");
    }
}

#[test]
fn actions() {
    let check = |written: &str, expected: Action| assert_eq!(endpoint(written).action, expected, "{written}");
    let t = || "t".to_owned();
    check("route = 'GET /{id}'\nget = 't'", Action::Get(Get { table: t(), key: param("id") }));
    check("route = 'GET /{x}'\nget = 't'", Action::Get(Get { table: t(), key: param("x") }));
    check("route = 'GET /{x}/{id}'\nget = 't'", Action::Get(Get { table: t(), key: param("id") }));
    check("route = 'POST /'\nget = 't'", Action::Get(Get { table: t(), key: param("id") }));
    check("route = 'GET /{x}/{id}'\nget = 't'\nkey = '$x'", Action::Get(Get { table: t(), key: param("x") }));
    check(
        "route = 'POST /'\ninsert = 't'\nvalues = { id = 1, a = 'x{$id}{$n}', n = '$a' }\nparams = { a = 'bigint' }",
        Action::Insert(Insert {
            table: t(),
            values: vec![
                ("id".into(), int(1)),
                (
                    "a".into(),
                    Expr::Template(vec![
                        Part::Text("x".into()),
                        Part::Expr(Expr::Column("id".into())),
                        Part::Expr(param("n")),
                    ]),
                ),
                // A declared parameter takes precedence over a preceding column of the same name.
                ("n".into(), param("a")),
            ],
            retry: 8,
        }),
    );
    check(
        "route = 'PUT /'\nupsert = 't'\nvalues = { id = '$id', a = '$a' }",
        Action::Upsert(Upsert { table: t(), key: param("id"), values: vec![("a".into(), param("a"))] }),
    );
    check(
        "route = 'PATCH /{id}'\nupdate = 't'\nvalues = { n = 2 }",
        Action::Update(Update { table: t(), key: param("id"), values: vec![("n".into(), int(2))] }),
    );
    check(
        "route = 'POST /{id}'\nincrement = 't'\ncolumn = 'n'",
        Action::Increment(Increment { table: t(), key: param("id"), column: "n".into(), by: int(1) }),
    );
    check(
        "route = 'DELETE /{id}'\ndelete = 't'",
        Action::Delete(Delete { table: t(), pick: Pick::Key(param("id")) }),
    );
    check(
        "route = 'DELETE /'\ndelete = 't'\nrow = 'random'\nexcept = [1]",
        Action::Delete(Delete { table: t(), pick: Pick::Random { except: vec![Literal::Int(1)] } }),
    );
}

#[test]
fn more_actions() {
    let check = |written: &str, expected: Action| assert_eq!(endpoint(written).action, expected, "{written}");
    let t = || "t".to_owned();
    check("route = 'GET /'\ncount = 't'", Action::Count(Count { table: t(), by: None }));
    check(
        "route = 'GET /'\ncount = 't'\nby = { a = '$name' }",
        Action::Count(Count { table: t(), by: Some(("a".into(), param("name"))) }),
    );
    check(
        "route = 'GET /{id}'\nredirect = 't'\nlocation = 'a'\ncounter = 'n'\nreply = { status = 301 }",
        Action::Redirect(Redirect {
            table: t(),
            key: param("id"),
            location: "a".into(),
            status: 301,
            increment: Some("n".into()),
            expires: None,
        }),
    );
    check(
        "route = 'POST /'\ngenerate = 't'\ncount = 5\nvalues = { id = 1, a = 'x' }\nfirst = [{ a = 'y', n = 3 }]",
        Action::Generate(Generate {
            table: t(),
            count: int(5),
            values: vec![("id".into(), int(1)), ("a".into(), text("x"))],
            first: vec![vec![("n".into(), int(3)), ("id".into(), int(1)), ("a".into(), text("y"))]],
        }),
    );
    check(
        "route = 'GET /'\nconstant = { a = [1, 1.5, true], b = { c = 'd\\\"' } }"
            .replace("'d\\\"'", "'d\"'")
            .as_str(),
        Action::Constant(r#"{"a":[1,1.5,true],"b":{"c":"d\""}}"#.into()),
    );
    check("route = 'GET /'\nconstant = '[1]'", Action::Constant("[1]".into()));
}

#[test]
fn statements_and_their_rows() {
    for (sql, expected) in [
        ("SELECT 1", Returns::One),
        (" with x as (select 1) select * from x", Returns::One),
        ("WITH x AS (SELECT 1) DELETE FROM t", Returns::None),
        ("INSERT INTO t VALUES (1)", Returns::None),
        ("insert into t values (1) returning id", Returns::One),
        ("UPDATE t SET returning_at = 1", Returns::None),
    ] {
        let action = endpoint(&format!("route = 'POST /'\nsql = '{sql}'")).action;
        assert!(
            matches!(action, Action::Sql(Sql { returns, .. }) if returns == expected),
            "{sql}: {action:?}"
        );
    }
    let found = endpoint(
        "route = 'GET /'\nreturns = 'many'\n[endpoint.sql]\npostgres = 'SELECT 1'\nsqlite = 'SELECT 2'",
    );
    let Action::Sql(Sql { statements, returns: Returns::Many }) = found.action else {
        panic!("{:?}", found.action)
    };
    assert_eq!(
        (statements.in_dialect(Dialect::Postgres), statements.in_dialect(Dialect::Sqlite)),
        (Some("SELECT 1"), Some("SELECT 2"))
    );
}

#[test]
fn a_list_has_its_page_params() {
    let found = endpoint("route = 'GET /'\nlist = 't'\nparams = { limit = 'bigint 1..5 = 2' }");
    assert_eq!(
        found.action,
        Action::List(List { table: "t".into(), after: param("after"), limit: param("limit") })
    );
    assert_eq!(found.params.len(), 2);
    assert_eq!(found.params[1].name, "after");
    let found = endpoint("route = 'GET /'\nlist = 't'\nafter = 5");
    assert_eq!(found.params.iter().map(|param| param.name.as_str()).collect::<Vec<_>>(), ["limit"]);
}

#[test]
fn guards_and_replies() {
    let config = good(
        "[server]\nguard = { query = 's', secret = 'x', from = 'outside' }\n\
         [[endpoint]]\nroute = 'GET /a'\nsql = 'SELECT 1'\nreply = { status = 203, wrap = 'w', fields = ['b'], not_found = 'm' }\n\
         [[endpoint]]\nroute = 'GET /b/{p}/{rest...}'\nsql = 'SELECT 1'\nguard = { header = 'H', secret = '', status = 401 }\n\
         headers = { X-User = 'user' }\ntimeout = '5s'\nconcurrency = 7\nbatch = false",
    );
    let [a, b] = config.endpoints.as_slice() else { panic!("{:?}", config.endpoints) };
    let guard = |place, secret: &str, from, status, line| {
        Guard::Secret(Secret { place, secret: secret.into(), from, status, line })
    };
    assert_eq!(a.guard, Some(guard(SecretPlace::Query("s".into()), "x", GuardFrom::Outside, 404, 2)));
    assert_eq!(b.guard, Some(guard(SecretPlace::Header("H".into()), "", GuardFrom::Anywhere, 401, 10)));
    let fields = Some(vec![("b".to_owned(), param("b"))]);
    assert_eq!(
        a.reply,
        Reply { status: Some(203), wrap: Some("w".into()), fields, not_found: Some("m".into()) }
    );
    assert_eq!((a.timeout_ms, a.concurrency, a.batch, a.line), (30_000, 1000, true, 3));
    assert_eq!((b.timeout_ms, b.concurrency, b.batch, b.line), (5_000, 7, false, 7));
    assert_eq!(b.headers, [("X-User".to_owned(), "user".to_owned())]);
    assert_eq!(b.path_params().collect::<Vec<_>>(), ["p", "rest"]);
}

#[test]
fn rates() {
    let check = |written: &str, count, period_ms, per| {
        let found = endpoint(&format!("route = 'GET /{{id}}'\nsql = 'SELECT 1'\nrate = '{written}'"));
        let is_shared = false;
        assert_eq!(found.rate, Some(Rate { count, period_ms, per, is_shared }), "{written}");
    };
    check("100/s", 100, 1_000, Per::Endpoint);
    check("1_000 / 10s per ip", 1_000, 10_000, Per::Ip);
    check("6000/m per header X-Api-Key", 6_000, 60_000, Per::Header("X-Api-Key".into()));
    check("1/1.5h per path", 1, 5_400_000, Per::Path);
    for (written, what) in [
        ("100", "must be a number of requests and a time"),
        ("100/", "must be a number"),
        ("/s", "must be a number"),
        ("0/s", "from 1 to"),
        ("5/fortnight", "must be a number"),
        ("5/0s", "must be a number"),
        ("5/s per", "must be a number"),
        ("5/s per user", "must be a number"),
        ("5/s per header", "must be a number"),
        ("5/s per header a b", "not the name of a header"),
        ("5/s per path", "needs a route with a parameter"),
        ("5/s shared per ip", "must be a number"),
        ("5/s per ip shared", "servers can only count together on Redis or Valkey"),
    ] {
        let file = format!("[[endpoint]]\nroute = 'GET /'\nsql = 'SELECT 1'\nrate = '{written}'");
        let errors = load_text(&file).unwrap_err().to_string();
        assert!(errors.contains(what), "{written}: {errors}");
    }
}

#[test]
fn rates_of_all_servers() {
    for place in [
        "[memory]\nurl = 'redis://a:1'\n[database]\nurl = 'postgres://b/c'",
        "[cache]\nshared = 'redis://a:1'\n[memory]\nname = 'shop'",
        "[cache]\nshared = 'redis://a:1'\n[database]\nurl = 'postgres://b/c'",
    ] {
        let file =
            format!("{place}\n[[endpoint]]\nroute = 'GET /'\nsql = 'SELECT 1'\nrate = '5/s per ip shared'");
        let expected = Rate { count: 5, period_ms: 1_000, per: Per::Ip, is_shared: true };
        assert_eq!(good(&file).endpoints[0].rate, Some(expected));
    }
}

#[test]
fn writes_that_wait_for_the_database() {
    let file = |tier: &str, table: &str, endpoint: &str| {
        let config = good(&format!(
            "[memory]\ndurability = '{tier}'\n[table.t]\ncolumns = {{ id = 'bigint key' }}\n{table}\n\
             [[endpoint]]\nroute = 'DELETE /t/{{id}}'\ndelete = 't'\n{endpoint}"
        ));
        config.has_strict_write(&config.endpoints[0])
    };
    let (sync, database) = ("durability = 'sync'", "durability = 'database'");
    for (tier, table, endpoint, waits) in [
        ("sync", "", "", false),
        ("database", "", "", true),
        ("async", database, "", true),
        ("async", "", database, true),
        ("sync", database, sync, false),
        ("database", sync, "", false),
        ("database", sync, database, true),
    ] {
        assert_eq!(file(tier, table, endpoint), waits, "{tier}: {table}: {endpoint}");
    }
    let file =
        "[memory]\ndurability = 'async'\n[table.t]\ncolumns = { id = 'bigint key' }\ndurability = 'sync'";
    assert!(load_text(file).unwrap_err().to_string().contains("is not what the memory tier does"));
}

#[test]
fn tags_have_the_parameters_of_their_endpoint() {
    let sql = "sql = 'SELECT * FROM t WHERE id = $id'\n";
    let tagged = |route: &str, action: &str, tag: &str| {
        load_text(&format!(
            "[[endpoint]]\nroute = 'GET {route}'\n{action}cache = {{ local = '1s', tags = ['a:{{{tag}}}'] }}"
        ))
    };
    for (route, action, tag) in [
        ("/{id}", "sql = 'SELECT 1'\n", "$id"),
        ("/", sql, "$id"),
        ("/", "sql = 'SELECT 1'\nparams = { id = 'text?' }\n", "$id"),
        ("/", "sql = 'SELECT 1'\nheaders = { X-Id = 'id' }\n", "$id"),
    ] {
        tagged(route, action, tag).unwrap_or_else(|errors| panic!("{route} {action}: {errors}"));
    }
    for (action, tag) in [(sql, "$i"), (sql, "$id2"), ("sql = 'SELECT $id2'\n", "$id")] {
        let errors = tagged("/", action, tag).expect_err("it has no such parameter").to_string();
        assert!(errors.contains(&format!("cache: tags: `{tag}` is neither in the route")), "{errors}");
    }
    let errors =
        load_text("[[endpoint]]\nroute = 'PUT /'\nsql = 'UPDATE t SET n = $n'\ninvalidates = ['a:{$id}']");
    assert!(errors.unwrap_err().to_string().contains("invalidates: `$id` is neither in the route"));
}

#[test]
fn what_weakens_a_guard_is_said() {
    let users = "[auth.people]\nkind = 'basic'\nfile = 'users'\n";
    let set = |url: &str| {
        format!(
            "[auth.tokens]\nkind = 'jwt'\nalgorithms = ['RS256']\njwks = '{url}'\nissuer = 'a'\naudience = 'b'\n"
        )
    };
    let secret = |secret: &str| format!("guard = {{ header = 'X-Key', secret = '{secret}' }}\n");
    let file = |before: &str, guard: &str| {
        format!("{before}[[endpoint]]\nroute = 'GET /a'\n{guard}constant = {{}}\n")
    };
    let on = |listen: &str, more: &str| format!("[server]\nlisten = '{listen}'\n{more}");
    for (text, expected) in [
        (file("", &secret("0123456789abcde")), "the secret of `GET /a` has 15 characters"),
        (file("", &secret("0123456789abcdef")), ""),
        (file("", &secret("")), ""),
        (
            file(&set("http://login.example/keys"), "guard = 'tokens'\n"),
            "auth.tokens: the key set comes from login.example",
        ),
        (file(&set("https://login.example/keys"), "guard = 'tokens'\n"), ""),
        (file(&set("http://localhost:8080/keys"), "guard = 'tokens'\n"), ""),
        (file(&set("http://[::1]:8080/keys"), "guard = 'tokens'\n"), ""),
        (
            file(&(on("0.0.0.0:80", "") + users), "guard = 'people'\n"),
            "auth.people: passwords arrive without encryption",
        ),
        (file(&(on("0.0.0.0:80", "") + users), ""), ""),
        (file(&(on("127.0.0.1:80", "") + users), "guard = 'people'\n"), ""),
        (file(&(on("0.0.0.0:80", "trusted_proxies = ['10.0.0.0/8']\n") + users), "guard = 'people'\n"), ""),
    ] {
        let found = weaknesses(&good(&text)).join("\n");
        let is_said = if expected.is_empty() { found.is_empty() } else { found.starts_with(expected) };
        assert!(is_said, "{text}\n{found}");
    }
}

#[test]
fn an_open_route_for_other_methods_beside_a_guard() {
    let guard = "guard = { header = 'X-Key', secret = 'a secret of some length' }\n";
    let file = |admin: &str, any: &str, any_guard: &str| {
        format!(
            "[[endpoint]]\nroute = '{admin}'\n{guard}proxy = 'http://a'\n[[endpoint]]\nroute = '{any}'\n{any_guard}proxy = 'http://a'"
        )
    };
    for (admin, any, any_guard, is_weak) in [
        ("GET /admin", "/{path...}", "", true),
        ("GET /admin/{id}", "/{path...}", "", true),
        ("POST /admin/{rest...}", "/admin/{rest...}", "", true),
        ("GET /admin", "/admin", "", true),
        ("GET /admin", "/{path...}", guard, false),
        ("GET /admin", "/app/{path...}", "", false),
        ("* /admin", "/{path...}", "", false),
        ("GET /admin", "/admin/{rest...}", "", true),
    ] {
        let found = weaknesses(&good(&file(admin, &format!("* {any}"), any_guard)));
        assert_eq!(found.len(), usize::from(is_weak), "{admin} beside * {any}: {found:?}");
    }
    let found = weaknesses(&good(&file("* /admin/{rest...}", "GET /{path...}", "")));
    assert_eq!(
        found,
        ["`* /admin/{rest...}` has a guard, and `GET /{path...}` has none: GET of this path pass without it"]
    );
}

#[test]
fn jobs() {
    let config = good(
        "[[job]]\nname = 'a'\nevery = '60s'\nsql = 'DELETE FROM t'\n\
         [[job]]\nname = 'b_2'\nevery = '1500ms'\njitter = '0s'\nsql = { sqlite = 'SELECT 1' }",
    );
    let [a, b] = config.jobs.as_slice() else { panic!("{:?}", config.jobs) };
    assert_eq!((a.name.as_str(), a.every_ms, a.jitter_ms, a.line), ("a", 60_000, 6_000, 1));
    assert_eq!((b.every_ms, b.jitter_ms), (1_500, 0));
    assert_eq!(
        explain(&config),
        "job    a    every 60s: sql → sqlite:data/forebay.db\njob    b_2  every 1500ms: sql ← sqlite:data/forebay.db\n"
    );
    for (written, what) in [
        ("", "a job needs `name`"),
        ("name = 'a'", "a job needs `every`"),
        ("name = 'a'\nevery = '1s'", "a job needs `sql`"),
        ("name = 'a-b'\nevery = '1s'\nsql = 'SELECT 1'", "letters, digits and _"),
        ("name = 'a'\nevery = '1s'\njitter = '2s'\nsql = 'SELECT 1'", "longer than every"),
        ("name = 'a'\nevery = '1s'\nsql = { postgres = 'SELECT 1' }", "no statement for sqlite"),
        ("name = 'a'\nevery = '1s'\nsql = 'SELECT 1'\n[[job]]\nname = 'a'", "a job needs `every`"),
        (
            "name = 'a'\nevery = '1s'\nsql = 'SELECT 1'\n[[job]]\nname = 'a'\nevery = '1s'\nsql = 'SELECT 1'",
            "is called a too",
        ),
    ] {
        let errors = load_text(&format!("[[job]]\n{written}")).unwrap_err().to_string();
        assert!(errors.contains(what), "{written}: {errors}");
    }
}

#[test]
fn proxies() {
    let plain = endpoint("route = '* /shop/{path...}'\nproxy = 'http://127.0.0.1:8080'");
    assert_eq!((plain.method, plain.method.name()), (Method::Any, "*"));
    assert_eq!(plain.timeout_ms, 120_000);
    let Action::Proxy(proxy) = plain.action else { panic!("{:?}", plain.action) };
    assert_eq!(
        (proxy.upstreams.as_slice(), proxy.connect_timeout_ms, proxy.silence_timeout_ms, proxy.retries),
        (&["http://127.0.0.1:8080".to_owned()][..], 60_000, None, 1)
    );
    assert_eq!(
        (proxy.health, proxy.keeps_host, proxy.trusts_front, proxy.body_bytes),
        (None, true, false, 1 << 30)
    );
    let full = endpoint(
        "route = 'GET /a'\nproxy = ['http://a', 'HTTPS://[::1]:81/']\nca = 'ca.pem'\nhealth = '/healthz?x=1'\nhost = 'upstream'\n\
         forwarded = 'append'\nretries = 0\nbody = '4GiB'\nconnect_timeout = '1s'\nsilence_timeout = '5s'",
    );
    let Action::Proxy(proxy) = full.action else { panic!("{:?}", full.action) };
    assert_eq!(proxy.upstreams, ["http://a", "https://[::1]:81"]);
    assert_eq!((proxy.ca, proxy.silence_timeout_ms), (Some("ca.pem".into()), Some(5_000)));
    assert_eq!(
        (proxy.health.as_deref(), proxy.keeps_host, proxy.trusts_front, proxy.body_bytes, proxy.retries),
        (Some("/healthz?x=1"), false, true, 4 << 30, 0)
    );
    for (written, what) in [
        ("route = 'GET /'\nproxy = 'localhost:8080'", "must be http://"),
        ("route = 'GET /'\nproxy = 'http://a'\nca = 'ca.pem'", "ca: no server"),
        ("route = 'GET /'\nproxy = 'http://a/b'", "must have no path"),
        ("route = 'GET /'\nproxy = 'http://a?b'", "must have no path"),
        ("route = 'GET /'\nproxy = 'http://me:secret@a'", "must be http://"),
        ("route = 'GET /'\nproxy = 'ftp://a'", "must be http://"),
        ("route = 'GET /'\nproxy = []", "must name 1 to 64"),
        ("route = 'GET /'\nproxy = 'http://a'\nhealth = 'x'", "must be a path"),
        ("route = 'GET /'\nproxy = 'http://a'\nreply = { wrap = 'x' }", "does not go with proxy"),
        ("route = 'GET /'\nproxy = 'http://a'\nreturns = 'many'", "does not go with proxy"),
        ("route = '* /'\nsql = 'SELECT 1'", "only a proxy"),
        ("route = 'GET /'\nproxy = 'http://a'\netag = true", "only beside `cache`"),
        ("route = 'GET /'\nproxy = 'http://a'\ncompress = true", "only beside `cache`"),
        ("route = 'POST /'\nproxy = 'http://a'\ncache = { local = '1s' }", "only what GET answers"),
        (
            "route = 'GET /'\nproxy = 'http://a'\ncache = { local = '1s' }\ninvalidates = ['a']",
            "writes nothing",
        ),
        ("route = 'GET /'\nproxy = 'http://a'\ncache = { local = '1s', private = true }", "only with `vary`"),
        (
            "route = 'GET /'\nproxy = 'http://a'\ncache = { local = '1s', largest = '9MiB' }",
            "must be between",
        ),
        (
            "route = 'GET /'\nproxy = 'http://a'\ncache = { local = '1s', upstream = 'no' }",
            "must be \"heed\"",
        ),
        (
            "route = 'GET /'\nsql = 'SELECT 1'\ncache = { local = '1s', strip = ['A'] }",
            "goes with proxy alone",
        ),
    ] {
        let errors = load_text(&format!("[[endpoint]]\n{written}")).unwrap_err().to_string();
        assert!(errors.contains(what), "{written}: {errors}");
    }
}

#[test]
fn proxies_whose_answers_are_kept() {
    let kept = endpoint(
        "route = '* /shop/{id}'\nproxy = 'http://a'\ncache = { local = '1s' }\ninvalidates = ['item:{$id}']",
    );
    let proxied = kept.cache.expect("a cache").proxied;
    assert_eq!((proxied.heed, proxied.keeps_private, proxied.largest_bytes), (Heed::Always, false, 1 << 20));
    assert!(
        proxied.ignore.is_empty() && proxied.strip.is_empty() && kept.invalidates.len() == 1 && kept.etag
    );
    let full = endpoint(
        "route = 'GET /a'\nproxy = 'http://a'\ncompress = true\ncache = { local = '1s', upstream = 'ignore', private = true, vary = ['X-User'], \
         ignore = ['Cookie'], strip = ['Set-Cookie'], largest = '10KiB' }",
    );
    let proxied = full.cache.expect("a cache").proxied;
    assert_eq!((proxied.heed, proxied.keeps_private, proxied.largest_bytes), (Heed::Never, true, 10 << 10));
    assert_eq!((proxied.ignore, proxied.strip), (vec!["Cookie".to_owned()], vec!["Set-Cookie".to_owned()]));
}
