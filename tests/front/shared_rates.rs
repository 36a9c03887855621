//! Rates that several servers count together, on one Redis and on a cluster.

use forebay_tests::{Answer, Folder, Server, Start, Stores, binary, root, wait_for};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

/// Two servers, and the Redis that they share.
struct Pair {
    redis: Local,
    servers: [Server; 2],
    _folders: [Folder; 2],
    _stores: [Stores; 2],
}

/// The periods are longer than any test.
const CONFIG: &str = "\
[server]\ntrusted_proxies = ['127.0.0.0/8']\n\
[[endpoint]]\nroute = 'GET /all'\nconstant = { a = 1 }\nrate = '10/1h shared'\n\
[[endpoint]]\nroute = 'POST /each'\nparams = { text = 'text' }\nsql = 'SELECT $text AS text'\nrate = '6/1h per ip shared'\n\
[[endpoint]]\nroute = 'GET /key'\nconstant = { a = 1 }\nrate = '4/1h per header X-Key shared'\n\
[[endpoint]]\nroute = 'GET /quick'\nconstant = { a = 1 }\nrate = '2/10s shared'\n\
[[endpoint]]\nroute = 'GET /own'\nconstant = { a = 1 }\nrate = '10/1h'\n\
[auth.users]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = 'a secret of the users, and long enough'\n\
[auth.partners]\nkind = 'jwt'\nalgorithms = 'HS256'\nsecret = 'a secret of partners, and long enough'\n\
[[endpoint]]\nroute = 'GET /mine'\nguard = { any = ['users', 'partners'] }\nconstant = { a = 1 }\n\
rate = '5/1h per auth.sub shared'\n\
[[endpoint]]\nroute = 'GET /team'\nguard = 'users'\nconstant = { a = 1 }\nrate = '3/1h per auth.team shared'\n";

impl Pair {
    fn start(topology: Topology) -> Pair {
        let spec = Spec::new(topology).on(Flavour::Redis).keep(Persistence::None);
        let redis = Local::up(spec).unwrap_or_else(|error| panic!("{error}"));
        let (folders, stores) = ([Folder::new(), Folder::new()], [Stores::sqlite(), Stores::sqlite()]);
        let servers = std::array::from_fn(|index| {
            let (folder, stores) = (&folders[index], &stores[index]);
            let start = Start::new(binary(), folder, &folder.write("front.toml", CONFIG));
            start
                .stores(stores, folder)
                .set(&format!("cache.shared={}", redis.url()))
                .set("memory.name=front")
                .start()
        });
        Pair { redis, servers, _folders: folders, _stores: stores }
    }

    /// Sends `times` requests to both servers in turn. Returns how many were served, and the last
    /// answer.
    fn ask(&self, times: usize, ask: impl Fn(&Server) -> Answer) -> (usize, Answer) {
        let answers: Vec<Answer> = (0..times).map(|time| ask(&self.servers[time % 2])).collect();
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        assert!(answers.iter().all(|answer| [200, 429].contains(&answer.status)), "{answers:?}");
        (served, answers.into_iter().last().expect("it was asked"))
    }

    /// Whether a server now counts for itself.
    fn is_apart(&self, server: &Server) -> bool {
        let ready = server.admin("GET", "/ready").expect(200);
        let conditions = ready["conditions"].as_array().expect("a list");
        conditions.iter().any(|condition| condition["state"] == "rates apart")
    }
}

fn get(path: &str) -> impl Fn(&Server) -> Answer {
    move |server| server.client().get(path)
}

/// The remaining budget, and the seconds until it is full again.
#[track_caller]
fn standing(answer: &Answer) -> (u64, u64) {
    let text = answer.header("ratelimit").unwrap_or_else(|| panic!("no RateLimit: {answer:?}"));
    let of = |name: &str| {
        let found = text.split(';').find_map(|part| part.trim().strip_prefix(name));
        found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    (of("r="), of("t="))
}

/// How often a check is tried.
const TRIES: usize = 5;
const APART: &str = "each server counts the rates that are `shared` for itself";

/// Redis must answer within half a second, else each server counts for itself. On a machine that stalled for
/// that long the check is inconclusive and is repeated.
fn unless_apart(topology: Topology, check: impl Fn(&Pair)) {
    for _ in 0..TRIES {
        let pair = Pair::start(topology);
        let checked = catch_unwind(AssertUnwindSafe(|| check(&pair)));
        let Err(panic) = checked else { return };
        if pair.servers.iter().all(|server| server.count_lines(APART) == 0) {
            resume_unwind(panic);
        }
    }
    panic!("Redis never answered in time");
}

fn count_together(pair: &Pair) {
    for expected in (0..10).rev() {
        let answer = pair.servers[expected % 2].client().get("/all");
        answer.expect(200);
        let (left, whole_in_s) = standing(&answer);
        assert_eq!(left, expected as u64);
        // Each request costs six minutes; a part of the first may have passed.
        let spent_s = 360 * (10 - expected as u64);
        assert!((spent_s - 60..=spent_s).contains(&whole_in_s), "{whole_in_s} of {spent_s}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"default\";q=10;w=3600"));
    }
    for server in &pair.servers {
        let refused = server.client().get("/all");
        refused.expect_problem(429, "too many requests");
        let wait_s: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
        assert!((300..=360).contains(&wait_s), "{wait_s}");
        assert_eq!(standing(&refused), (0, wait_s));
    }
    // Callers do not share a budget, and each has one budget on both servers; body and parameters
    // reach the action.
    for caller in ["10.0.0.1", "10.0.0.2", "2001:db8::1"] {
        let (served, _) = pair.ask(20, |server| {
            let headers = [("X-Forwarded-For", caller)];
            let mut client = server.client();
            let answer = client.call("POST", "/each", &headers, Some(r#"{"text":"a"}"#)).expect("an answer");
            assert!(answer.status == 429 || answer.text().contains(r#""text":"a""#), "{answer:?}");
            answer
        });
        assert_eq!(served, 6, "{caller}");
    }
    // Keys of many slots.
    for caller in 0..20 {
        let key = format!("key-{caller}");
        let ask = |server: &Server| {
            server.client().call("GET", "/key", &[("X-Key", &key)], None).expect("an answer")
        };
        assert_eq!(pair.ask(10, ask).0, 4, "{key}");
    }
    assert_eq!(pair.ask(40, get("/own")).0, 20, "the one that is not shared");
    // The budget grows with time on both servers.
    assert!(pair.ask(20, get("/quick")).0 < 20);
    wait_for("there is one again", || (pair.servers[0].client().get("/quick").status == 200).then_some(()));
}

#[test]
fn two_servers_give_what_one_would() {
    unless_apart(Topology::Single, count_together);
}

#[test]
fn on_a_cluster_too() {
    unless_apart(Topology::Cluster { masters: 3, replicas: 0 }, count_together);
}

/// Authorization with a token of these claims, signed with the secret of `users` or `partners`.
fn bearer(auth: &str, claims: &str) -> String {
    let secret = CONFIG.split_once(&format!("[auth.{auth}]")).and_then(|(_, rest)| rest.split('\'').nth(5));
    let script = root().join("tests/front/apps/token.js");
    let made = Command::new("node").arg(script).args([secret.expect("a secret"), claims]).output();
    let made = made.expect("node is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    format!("Bearer {}", String::from_utf8(made.stdout).expect("a token").trim())
}

/// Of docs/configuration.md: a request without an identity is a 401, one without the claim a 403; the rate
/// counts neither.
#[test]
fn each_verified_subject_has_one_budget_on_all_servers() {
    unless_apart(Topology::Single, count_by_subject);
}

fn count_by_subject(pair: &Pair) {
    let ask = |path: &'static str, bearer: &str| {
        let bearer = bearer.to_owned();
        move |server: &Server| {
            let fields = [("Authorization", bearer.as_str())];
            server.client().call("GET", path, &fields, None).expect("an answer")
        }
    };
    let ann = bearer("users", r#"{"sub":"ann","team":"red"}"#);
    let forged = bearer("users", r#"{"sub":"ann","exp":1}"#);
    for server in &pair.servers {
        server.client().get("/mine").expect_problem(401, "");
        ask("/mine", &forged)(server).expect_problem(401, "");
    }
    // Another token of the same subject has the same budget.
    assert_eq!(pair.ask(4, ask("/mine", &ann)).0, 4);
    assert_eq!(pair.ask(10, ask("/mine", &bearer("users", r#"{"sub":"ann","jti":"2"}"#))).0, 1);
    for server in &pair.servers {
        let refused = ask("/mine", &ann)(server);
        refused.expect_problem(429, "");
        assert_eq!(standing(&refused).0, 0);
    }
    for other in [bearer("users", r#"{"sub":"bob"}"#), bearer("partners", r#"{"sub":"ann"}"#)] {
        assert_eq!(pair.ask(10, ask("/mine", &other)).0, 5, "a budget of its own");
    }
    for server in &pair.servers {
        ask("/team", &bearer("users", r#"{"sub":"ann"}"#))(server).expect_problem(403, "`team`");
        let several = bearer("users", r#"{"sub":"ann","team":["red","blue"]}"#);
        ask("/team", &several)(server).expect_problem(403, "`team` is not one value");
    }
    // Members of a team share its budget.
    assert_eq!(pair.ask(2, ask("/team", &ann)).0, 2);
    assert_eq!(pair.ask(10, ask("/team", &bearer("users", r#"{"sub":"bob","team":"red"}"#))).0, 1);
    assert_eq!(pair.ask(10, ask("/team", &bearer("users", r#"{"sub":"bob","team":"blue"}"#))).0, 3);
}

#[test]
fn without_redis_each_counts_for_itself_until_it_is_back() {
    let pair = Pair::start(Topology::Single);
    assert_eq!(pair.ask(6, get("/all")).0, 6, "three on each");
    pair.redis.kill("node-1").unwrap_or_else(|error| panic!("{error}"));
    // Each server has continued its own count: seven are left on each.
    assert_eq!(pair.ask(20, get("/all")).0, 14);
    for server in &pair.servers {
        wait_for("it says so", || pair.is_apart(server).then_some(()));
        server.wait_for_output(APART);
    }
    pair.redis.start("node-1").unwrap_or_else(|error| panic!("{error}"));
    for server in &pair.servers {
        wait_for("it is back", || (!pair.is_apart(server)).then_some(()));
        server.wait_for_output("rates apart");
        assert_eq!(server.count_lines("degraded: rates apart"), 1);
    }
    // This Redis stores nothing on disk, so the budget is full again, and shared by both.
    assert_eq!(pair.ask(40, get("/all")).0, 10);
}

#[test]
fn a_redis_that_stands_still_holds_up_no_request_for_long() {
    let pair = Pair::start(Topology::Single);
    assert_eq!(pair.ask(2, get("/all")).0, 2);
    pair.redis.pause("node-1").unwrap_or_else(|error| panic!("{error}"));
    // Only the first requests wait for Redis; the rest are counted locally at once.
    assert_eq!(pair.ask(40, get("/all")).0, 18);
    assert!(pair.servers.iter().all(|server| pair.is_apart(server)));
    pair.redis.resume_node("node-1").unwrap_or_else(|error| panic!("{error}"));
    for server in &pair.servers {
        wait_for("it is back", || (!pair.is_apart(server)).then_some(()));
    }
}
