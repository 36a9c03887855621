//! Authentication: valid and invalid proofs of identity, and what depends on the identity.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Answer, Client, Folder, wait_for};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// SHA-256 of `ann's key` and `bob's key`.
const ANN: &str = "4a8c1eb8b2bbb2493bdc9ee3f7a3357b048de54a2dbc52301e88c39403cd6ce8";
const BOB: &str = "3a0d31885b0a3ca5152d2898eecb50ac564b9bf83709917edfd6e11a2c52a90b";
/// The output of `htpasswd -nbB -C 5 ann sesame`.
const PASSWORDS: &str = "ann:$2b$05$ckdqZcG4S8SYQpxCfV8Aper6r3HC/GsnPAapqkXIZOxGOGP32rVc6\n";

fn call(client: &mut Client, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    client.call(method, target, headers, None).expect("an answer")
}

fn get(client: &mut Client, target: &str, headers: &[(&str, &str)]) -> Answer {
    call(client, "GET", target, headers)
}

fn with_token(client: &mut Client, target: &str, token: &str) -> Answer {
    get(client, target, &[("Authorization", &format!("Bearer {token}"))])
}

fn keys(folder: &Folder) -> String {
    let file = folder.write("keys", &format!("{ANN} ann plan=pro\n{BOB} bob\n"));
    format!("[auth.apps]\nkind = 'key'\nfile = '{}'\n", file.display())
}

/// Writes keys into a folder. Returns tokens by name, each with the endpoint that it is for.
fn tokens(folder: &Path) -> Value {
    let script = forebay_tests::root().join("tests/front/apps/tokens.js");
    let made = Command::new("node").arg(script).arg(folder).output().expect("node is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    serde_json::from_slice(&made.stdout).expect("JSON")
}

#[test]
fn no_token_of_the_table_of_attacks_is_believed() {
    let folder = Folder::new();
    let tokens = tokens(folder.path());
    let checks = "issuer = 'https://login.example'\naudience = 'shop'\nleeway = '30s'\n";
    let path = folder.path().display();
    let front = Front::start(&format!(
        "[auth.hs]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = 'a secret of more than thirty-two bytes'\n{checks}\
         [auth.rs]\nkind = 'jwt'\nalgorithms = ['RS256']\npublic_key = '{path}/rsa.pem'\n{checks}\
         [auth.set]\nkind = 'jwt'\nalgorithms = ['RS256', 'ES256', 'EdDSA']\njwks = '{path}/jwks.json'\n{checks}\
         [[endpoint]]\nroute = 'GET /hs'\nguard = 'hs'\nsql = 'SELECT $auth.sub AS sub, $auth.role AS role'\n\
         [[endpoint]]\nroute = 'GET /rs'\nguard = 'rs'\nsql = 'SELECT $auth.sub AS sub'\n\
         [[endpoint]]\nroute = 'GET /set'\nguard = 'set'\nsql = 'SELECT $auth.sub AS sub'"
    ));
    let mut client = front.server.client();
    let table = |name: &str| tokens[name].as_object().expect("a table").clone();
    for (name, token) in table("good") {
        let (target, token) = (token[0].as_str().expect("a text"), token[1].as_str().expect("a text"));
        let answer = with_token(&mut client, target, token);
        assert_eq!((answer.status, &answer.json()["sub"]), (200, &"ann".into()), "{name}");
    }
    let bad = table("bad");
    assert!(bad.len() >= 60, "{}", bad.len());
    for (name, token) in bad {
        let (target, token) = (token[0].as_str().expect("a text"), token[1].as_str().expect("a text"));
        let answer = with_token(&mut client, target, token);
        assert_eq!(answer.status, 401, "{name}: {answer:?}");
        let challenge = answer.header("WWW-Authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer realm="), "{name}: {challenge}");
    }
    let good = tokens["good"]["HS256"][1].as_str().expect("a text");
    let bearer = format!("Bearer {good}");
    for fields in [
        &[][..],
        &[("Authorization", bearer.as_str()), ("Authorization", bearer.as_str())],
        &[("Authorization", good)],
        &[("Authorization", &format!("Basic {good}"))],
        &[("X-Api-Key", good)],
        &[("Cookie", &format!("token={good}"))],
    ] {
        assert_eq!(get(&mut client, "/hs", fields).status, 401, "{fields:?}");
    }
    assert_eq!(
        get(&mut client, &format!("/hs?access_token={good}"), &[]).status,
        401,
        "not in a URL, which is logged"
    );
    assert_eq!(get(&mut client, "/hs", &[("authorization", &format!("bearer {good}"))]).status, 200);
}

/// A server of a key set, which the test can change.
fn login(set: String) -> (Scripted, Arc<Mutex<String>>) {
    let served = Arc::new(Mutex::new(set));
    let own = served.clone();
    let login = Scripted::new(move |_, stream| {
        let set = own.lock().expect("no script panics").clone();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}", set.len()).is_ok()
    });
    (login, served)
}

fn users(login: &Scripted) -> String {
    format!(
        "[auth.users]\nkind = 'jwt'\nalgorithms = ['RS256', 'ES256']\njwks = 'http://{}/jwks'\naudience = 'shop'\n\
         [[endpoint]]\nroute = 'GET /me'\nguard = 'users'\nsql = 'SELECT $auth.sub AS sub'\n",
        login.address
    )
}

#[test]
fn a_refusal_behind_a_guard_that_waits_says_what_is_left() {
    let folder = Folder::new();
    let tokens = tokens(folder.path());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it was written");
    let (login, served) = login(read("jwks.json"));
    let once = "[[endpoint]]\nroute = 'GET /once'\nguard = 'users'\nrate = '1/h'\nconstant = {}";
    let front = Front::start(&(users(&login) + once));
    let mut client = front.server.client();
    let known = tokens["good"]["RS256 of a set"][1].as_str().expect("a text");
    wait_for("the keys are there", || (with_token(&mut client, "/me", known).status == 200).then_some(()));
    assert_eq!(with_token(&mut client, "/once", known).status, 200);
    *served.lock().expect("no script panics") = read("next.json");
    // The key of the token is fetched first.
    let next = tokens["next"].as_str().expect("a text");
    let answer = wait_for("the new key is fetched", || {
        Some(with_token(&mut client, "/once", next)).filter(|answer| answer.status == 429)
    });
    assert_eq!(answer.header("RateLimit-Policy"), Some("\"default\";q=1;w=3600"), "{answer:?}");
    assert!(answer.header("RateLimit").is_some_and(|field| field.starts_with("\"default\";r=0;t=")));
}

#[test]
fn a_key_set_is_read_again_when_a_token_names_a_new_key_and_not_for_every_one() {
    let folder = Folder::new();
    let tokens = tokens(folder.path());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it was written");
    let (login, served) = login(read("jwks.json"));
    let front = Front::start(&users(&login));
    let mut client = front.server.client();
    let token = |name: &str| tokens["good"][name][1].as_str().expect("a text").to_owned();
    wait_for("the keys are there", || {
        (with_token(&mut client, "/me", &token("RS256 of a set")).status == 200).then_some(())
    });
    assert_eq!(with_token(&mut client, "/me", &token("ES256 of a set")).status, 200);
    *served.lock().expect("no script panics") = read("next.json");
    let next = tokens["next"].as_str().expect("a text");
    wait_for("the new key is fetched", || (with_token(&mut client, "/me", next).status == 200).then_some(()));
    assert_eq!(with_token(&mut client, "/me", &token("RS256 of a set")).status, 401, "a key that is gone");
    let (fetched, began) = (login.seen().len(), Instant::now());
    for _ in 0..50 {
        assert_eq!(
            with_token(&mut client, "/me", tokens["bad"]["an unknown kid"][1].as_str().expect("a text"))
                .status,
            401
        );
    }
    // At most one fetch in ten seconds.
    let fetches_max = 1 + began.elapsed().as_secs() as usize / 10;
    assert!(login.seen().len() <= fetched + fetches_max, "{} fetches", login.seen().len() - fetched);
}

#[test]
fn api_keys_of_a_file_that_changes() {
    let folder = Folder::new();
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'GET /me'\nguard = 'apps'\nsql = 'SELECT $auth.sub AS sub'\n\
         [[endpoint]]\nroute = 'GET /plan'\nguard = 'apps'\nsql = 'SELECT $auth.plan AS plan'\n\
         [[endpoint]]\nroute = 'GET /pro'\nguard = {{ auth = 'apps', require = {{ plan = ['pro', 'team'] }} }}\nconstant = {{}}",
        keys(&folder)
    ));
    let mut client = front.server.client();
    let me = |client: &mut Client, key: &str| get(client, "/me", &[("X-Api-Key", key)]);
    assert_eq!(me(&mut client, "ann's key").expect(200)["sub"], "ann");
    assert_eq!(me(&mut client, "bob's key").expect(200)["sub"], "bob");
    for headers in [
        &[][..],
        &[("X-Api-Key", "")],
        &[("X-Api-Key", "ann")],
        &[("X-Api-Key", ANN)],
        &[("X-Api-Key", "ann's key"), ("X-Api-Key", "bob's key")],
        &[("Authorization", "Bearer ann's key")],
    ] {
        let answer = get(&mut client, "/me", headers);
        answer.expect_problem(401, "");
        assert_eq!(answer.header("WWW-Authenticate"), Some("ApiKey realm=\"apps\", header=\"X-Api-Key\""));
    }
    assert_eq!(get(&mut client, "/plan", &[("X-Api-Key", "ann's key")]).expect(200)["plan"], "pro");
    get(&mut client, "/plan", &[("X-Api-Key", "bob's key")]).expect_problem(403, "no claim `plan`");
    get(&mut client, "/pro", &[("X-Api-Key", "ann's key")]).expect(200);
    get(&mut client, "/pro", &[("X-Api-Key", "bob's key")]).expect_problem(403, "is not allowed");
    folder.write("keys", &format!("{BOB} bob plan=team\n"));
    wait_for("the file is read again", || (me(&mut client, "ann's key").status == 401).then_some(()));
    get(&mut client, "/pro", &[("X-Api-Key", "bob's key")]).expect(200);
    folder.write("keys", "this is no key\n");
    front.server.wait_for_output("what was read before holds");
    assert_eq!(me(&mut client, "bob's key").expect(200)["sub"], "bob");
}

#[test]
fn names_and_passwords_wait_for_their_hash() {
    let folder = Folder::new();
    let file = folder.write("passwords", PASSWORDS);
    let front = Front::start(&format!(
        "[auth.staff]\nkind = 'basic'\nfile = '{}'\n\
         [[endpoint]]\nroute = 'GET /me'\nguard = 'staff'\nsql = 'SELECT $auth.sub AS sub'\n\
         [[endpoint]]\nroute = 'GET /constant'\nguard = 'staff'\nconstant = {{ a = 1 }}\netag = true\n\
         [table.notes.columns]\nid = 'serial key'\nwho = 'text'\nbody = 'text'\n\
         [[endpoint]]\nroute = 'POST /notes/{{kind}}'\nguard = 'staff'\ninsert = 'notes'\n\
         values = {{ who = '$auth.sub', body = '{{$kind}}: {{$body}}' }}",
        file.display()
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    let ann = [("Authorization", "Basic YW5uOnNlc2FtZQ==")];
    for _ in 0..3 {
        assert_eq!(get(&mut client, "/me", &ann).expect(200)["sub"], "ann");
        let note = client
            .call("POST", "/notes/a%20b", &ann, Some(r#"{"body":"hello"}"#))
            .expect("an answer")
            .expect(201);
        assert_eq!((&note["who"], &note["body"]), (&"ann".into(), &"a b: hello".into()));
        let answer = get(&mut client, "/constant", &ann);
        let tag = answer.header("ETag").expect("an ETag").to_owned();
        assert_eq!(get(&mut client, "/constant", &[ann[0], ("If-None-Match", &tag)]).status, 304);
        assert_eq!(call(&mut client, "HEAD", "/constant", &ann).status, 200);
    }
    for wrong in ["YW5uOndyb25n", "Ym9iOnNlc2FtZQ==", "OnNlc2FtZQ==", "YW5uOg==", "YW5u", "!", ""] {
        let answer = get(&mut client, "/me", &[("Authorization", &format!("Basic {wrong}"))]);
        answer.expect_problem(401, "");
        assert_eq!(
            answer.header("WWW-Authenticate"),
            Some("Basic realm=\"staff\", charset=\"UTF-8\""),
            "{wrong}"
        );
    }
}

#[test]
fn a_flood_of_wrong_passwords_takes_no_place_from_others() {
    let folder = Folder::new();
    let file = folder.write("passwords", &PASSWORDS.replace("$05$", "$08$"));
    let keys = keys(&folder);
    let front = Front::start(&format!(
        "{keys}[auth.staff]\nkind = 'basic'\nfile = '{}'\n\
         [[endpoint]]\nroute = 'GET /me'\nconcurrency = 100\nguard = {{ any = ['apps', 'staff'] }}\nsql = 'SELECT $auth.sub AS sub'",
        file.display()
    ));
    let mut floods: Vec<_> = (0..10).map(|_| front.server.client()).collect();
    for flood in &mut floods {
        let request = "GET /me HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YW5uOndyb25n\r\n\r\n";
        flood.send(request.repeat(30).as_bytes()).expect("it reads");
    }
    let mut client = front.server.client();
    for _ in 0..20 {
        assert_eq!(get(&mut client, "/me", &[("X-Api-Key", "bob's key")]).expect(200)["sub"], "bob");
    }
    let mut statuses = Vec::new();
    for flood in &mut floods {
        statuses.extend((0..30).map(|_| flood.receive(false).expect("an answer").status));
    }
    assert!(statuses.iter().all(|status| [401, 429, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&503), "more were compared than may wait");
}

#[test]
fn one_of_several_guards_or_all_of_them() {
    let folder = Folder::new();
    let passwords = folder.write("passwords", PASSWORDS);
    let secret = "{ header = 'X-Secret', secret = 'sesame', status = 403 }";
    let front = Front::start(&format!(
        "{}[auth.staff]\nkind = 'basic'\nfile = '{}'\n\
         [[endpoint]]\nroute = 'GET /any'\nguard = {{ any = ['staff', 'apps'] }}\nsql = 'SELECT $auth.sub AS sub'\n\
         [[endpoint]]\nroute = 'GET /all'\nguard = {{ all = [{secret}, {{ any = ['apps', 'staff'] }}] }}\nsql = 'SELECT $auth.sub AS sub'\n\
         [[endpoint]]\nroute = 'GET /either'\nguard = {{ any = [{secret}, 'apps'] }}\nsql = 'SELECT $auth.sub AS sub'",
        keys(&folder),
        passwords.display()
    ));
    let mut client = front.server.client();
    let (ann, bob) = (("Authorization", "Basic YW5uOnNlc2FtZQ=="), ("X-Api-Key", "bob's key"));
    let knows = ("X-Secret", "sesame");
    for (target, headers, expected) in [
        ("/any", &[ann][..], Some("ann")),
        ("/any", &[bob], Some("bob")),
        ("/any", &[("Authorization", "Basic YW5uOndyb25n"), bob], Some("bob")),
        ("/any", &[], None),
        ("/all", &[knows, bob], Some("bob")),
        ("/all", &[knows, ann], Some("ann")),
        ("/all", &[knows], None),
        ("/either", &[bob], Some("bob")),
    ] {
        let answer = get(&mut client, target, headers);
        match expected {
            Some(sub) => assert_eq!(answer.expect(200)["sub"], sub, "{target} {headers:?}"),
            None => {
                answer.expect_problem(401, "");
                let challenges = answer.headers.iter().filter(|(name, _)| name == "WWW-Authenticate").count();
                assert_eq!(challenges, 2, "one for each way: {answer:?}");
            }
        }
    }
    get(&mut client, "/all", &[bob]).expect_problem(403, "secret");
    // A client that presents the shared secret has no identity.
    let answer = get(&mut client, "/either", &[knows]);
    answer.expect_problem(401, "credentials are required");
    assert_eq!(answer.header("WWW-Authenticate"), Some("ApiKey realm=\"apps\", header=\"X-Api-Key\""));
}

#[test]
fn no_kept_answer_goes_from_one_identity_to_another() {
    let folder = Folder::new();
    let app = Scripted::new(|seen, stream| {
        let who = seen.header("x-forwarded-user").unwrap_or("nobody").to_owned();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{who}",
            who.len()
        )
        .is_ok()
    });
    let open = "{ any = [{ header = 'X-Secret', secret = 'sesame' }, 'apps'] }";
    let proxy = format!("proxy = 'http://{}'", app.address);
    let sql = "sql = 'SELECT random() AS drawn'";
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'GET /local'\nguard = {open}\ncache = {{ local = '1m' }}\n{sql}\n\
         [[endpoint]]\nroute = 'GET /stale'\nguard = {open}\ncache = {{ local = '1ms', stale_while_revalidate = '1m', stale_if_error = '1m' }}\n{sql}\n\
         [[endpoint]]\nroute = 'GET /compressed'\nguard = {open}\ncompress = true\ncache = {{ local = '1m', refresh = '10s' }}\n{sql}\n\
         [[endpoint]]\nroute = 'GET /all'\nguard = {open}\ncache = {{ local = '1m', per = 'route' }}\n{sql}\n\
         [[endpoint]]\nroute = 'GET /fronted'\nguard = {open}\ncache = {{ local = '1m' }}\n{proxy}\n\
         [[endpoint]]\nroute = '* /every/{{rest...}}'\nguard = {open}\ncache = {{ local = '1m', ignore = ['Authorization', 'Cookie'] }}\n{proxy}",
        keys(&folder)
    ));
    let mut client = front.server.client();
    let (ann, bob, nobody) = (("X-Api-Key", "ann's key"), ("X-Api-Key", "bob's key"), ("X-Secret", "sesame"));
    let mut drawn = |target: &str, who| get(&mut client, target, &[who]).expect(200)["drawn"].clone();
    for target in ["/local", "/stale", "/compressed"] {
        let answers = [ann, bob, nobody].map(|who| drawn(target, who));
        assert!(
            answers[0] != answers[1] && answers[1] != answers[2] && answers[0] != answers[2],
            "{target}: {answers:?}"
        );
    }
    assert_eq!(drawn("/local", ann), drawn("/local", ann), "one that is kept is shown to the same");
    assert_eq!(drawn("/all", ann), drawn("/all", bob), "where the config says so");
    assert_ne!(drawn("/all", ann), drawn("/all", nobody), "never to nobody");
    for target in ["/fronted", "/every/thing"] {
        for _ in 0..2 {
            for (who, name) in [(ann, "ann"), (bob, "bob"), (nobody, "nobody")] {
                let answer = get(&mut client, target, &[who, ("X-Forwarded-User", "root")]);
                assert_eq!((answer.status, &answer.body[..]), (200, name.as_bytes()), "{target}");
                assert_eq!(answer.header("Vary"), Some("X-Api-Key"), "{target}");
            }
        }
        assert_eq!(get(&mut client, target, &[]).status, 401);
    }
    assert_eq!(app.seen().len(), 6, "each of three asked once for each of two");
    // Connection removes fields of the client, and none of this server.
    let connection = ("Connection", "keep-alive, X-Forwarded-User");
    assert_eq!(get(&mut client, "/fronted", &[ann, ("Cookie", "a=b"), connection]).body, b"ann");
    // Without a guard no identity is passed on, not even one that a client sends.
    let open = Front::start(&format!("[[endpoint]]\nroute = 'GET /'\n{proxy}"));
    assert_eq!(get(&mut open.server.client(), "/", &[("X-Forwarded-User", "root")]).body, b"nobody");
}

#[test]
fn a_rate_per_identity_and_what_is_left_of_it() {
    let folder = Folder::new();
    let app = Scripted::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let front = Front::start(&format!(
        "{}[[endpoint]]\nroute = 'GET /me'\nguard = 'apps'\nrate = '3/h per auth.sub'\nconstant = {{}}\n\
         [[endpoint]]\nroute = 'GET /sql'\nguard = 'apps'\nrate = '3/h per auth.sub'\nsql = 'SELECT 1 AS one'\n\
         [[endpoint]]\nroute = 'GET /app'\nguard = 'apps'\nrate = '3/h per auth.sub'\nproxy = 'http://{}'\n\
         [[endpoint]]\nroute = 'GET /plan'\nguard = 'apps'\nrate = '3/h per auth.plan'\nconstant = {{}}",
        keys(&folder),
        app.address
    ));
    let mut client = front.server.client();
    for target in ["/me", "/sql", "/app"] {
        for key in ["ann's key", "bob's key"] {
            let key = [("X-Api-Key", key)];
            for left in [2, 1, 0] {
                let answer = get(&mut client, target, &key);
                assert_eq!(answer.status, 200, "{target}");
                assert_eq!(answer.header("RateLimit-Policy"), Some("\"default\";q=3;w=3600"), "{target}");
                let field = answer.header("RateLimit").expect("what is left");
                assert!(field.starts_with(&format!("\"default\";r={left};t=")), "{target}: {field}");
            }
            let answer = get(&mut client, target, &key);
            answer.expect_problem(429, "too many requests");
            assert!(answer.header("RateLimit").is_some_and(|field| field.starts_with("\"default\";r=0;t=")));
            assert!(answer.header("Retry-After").is_some());
            get(&mut client, target, &[]).expect_problem(401, "");
        }
    }
    get(&mut client, "/plan", &[("X-Api-Key", "bob's key")]).expect_problem(403, "no claim `plan`");
}

/// A list has no single budget: the same teams in another order would have a different one.
#[test]
fn a_claim_that_is_a_list_has_no_rate() {
    let secret = "a secret of the users, and long enough";
    let front = Front::start(&format!(
        "[auth.users]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = '{secret}'\n\
         [[endpoint]]\nroute = 'GET /team'\nguard = 'users'\nrate = '1/h per auth.team'\nconstant = {{}}"
    ));
    let mut client = front.server.client();
    let mut ask = |team: &str| {
        let script = forebay_tests::root().join("tests/front/apps/token.js");
        let claims = format!(r#"{{"sub":"ann","team":{team}}}"#);
        let made =
            Command::new("node").arg(script).args([secret, &claims]).output().expect("node is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        with_token(&mut client, "/team", String::from_utf8(made.stdout).expect("a token").trim())
    };
    for several in [r#"["red","blue"]"#, r#"["blue","red"]"#, r#"["red"]"#, "[]", r#"{"name":"red"}"#] {
        ask(several).expect_problem(403, "the claim `team` is not one value");
    }
    for one in [r#""red""#, "7", r#""[red""#] {
        assert_eq!(ask(one).status, 200, "{one}");
        assert_eq!(ask(one).status, 429, "{one}");
    }
}

#[test]
fn keys_of_a_hot_table_hold_as_long_as_their_row() {
    let front = Front::start(
        "[table.api_keys.columns]\nhash = 'text key'\nowner = 'text'\nplan = 'text null'\n\
         [auth.apps]\nkind = 'key'\ntable = 'api_keys'\nsubject = 'owner'\n\
         [[endpoint]]\nroute = 'PUT /keys/{hash}'\nupsert = 'api_keys'\nvalues = { owner = '$owner', plan = '$plan' }\n\
         params = { plan = 'text?' }\n\
         [[endpoint]]\nroute = 'DELETE /keys/{hash}'\ndelete = 'api_keys'\n\
         [[endpoint]]\nroute = 'GET /me'\nguard = 'apps'\nsql = 'SELECT $auth.sub AS sub, $auth.hash AS hash'\n\
         [[endpoint]]\nroute = 'GET /who'\nguard = 'apps'\nsql = 'SELECT $auth.sub AS sub'",
    );
    front.server.wait_healthy();
    let mut client = front.server.client();
    let ann = [("X-Api-Key", "ann's key")];
    get(&mut client, "/who", &ann).expect_problem(401, "not known");
    let made = client.ask("PUT", &format!("/keys/{ANN}"), Some(r#"{"owner":"ann"}"#));
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(get(&mut client, "/who", &ann).expect(200)["sub"], "ann");
    get(&mut client, "/me", &ann).expect_problem(403, "no claim `hash`");
    assert_eq!(client.ask("DELETE", &format!("/keys/{ANN}"), None).status, 200);
    get(&mut client, "/who", &ann).expect_problem(401, "not known");
}
