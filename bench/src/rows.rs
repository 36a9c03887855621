//! One module a topic; each function measures one row and returns its lines.

pub mod accounts;
mod cache;
mod clusters;
mod failover;
mod fairness;
mod following;
pub mod front;
mod hot;
mod http;
pub mod items;
mod life;
mod links;
pub mod load;
pub mod peers;
mod planned;
mod secure;
mod servers;
mod store;
mod testers;
pub mod usages;
mod yardsticks;

use crate::process::Bench;
use crate::report::Lines;

/// A row of the targets.
pub struct Row {
    /// The name by which it is requested.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Measures it.
    pub run: fn(&Bench) -> Lines,
}

/// All of them, in the order of the targets.
pub const ALL: &[Row] = &[
    Row { name: "1", title: "GET /simple, server", run: http::simple },
    Row { name: "2", title: "GET /simple, 16 pipelined, server", run: http::simple_pipelined },
    Row { name: "3", title: "PATCH /update-something, 32 KB, server", run: http::update_something },
    Row { name: "4", title: "POST /code-ultra-fast, sync, drain paused, system", run: hot::ultra_fast },
    Row { name: "5", title: "GET /code-fast, 1,000,000 rows, server", run: hot::code_fast },
    Row {
        name: "5-size",
        title: "GET /code-fast, 10,000,000 rows against 100,000, server",
        run: hot::code_fast_by_size,
    },
    Row { name: "6", title: "POST and GET /code-fast on one Redis, system", run: peers::code_fast_on_redis },
    Row { name: "7", title: "POST /code on PostgreSQL, system", run: peers::code_on_postgres },
    Row { name: "8", title: "GET /code-v4 on PostgreSQL, system", run: peers::code_v4_on_postgres },
    Row { name: "9", title: "drain into SQLite", run: store::drain },
    Row { name: "9-postgres", title: "drain into PostgreSQL", run: servers::drain },
    Row { name: "10", title: "seed and warm", run: store::seed_and_warm },
    Row { name: "10-servers", title: "seed into PostgreSQL, warm from it", run: servers::seed_and_warm },
    Row { name: "11", title: "memory of a hot table", run: hot::memory },
    Row { name: "12", title: "a kept answer, 304, server", run: cache::hit },
    Row { name: "13", title: "1,000 simultaneous misses", run: cache::stampede },
    Row {
        name: "14",
        title: "forebay load beside wrk against the floor",
        run: load::beside_wrk_on_the_floor,
    },
    Row { name: "15", title: "open model against a server that stalls", run: load::stalls },
    Row { name: "16", title: "start, recovery, stop", run: life::start_recover_stop },
    Row { name: "18", title: "POST /api/usages on 1 CPU and 2 GB", run: usages::metering },
    Row { name: "19", title: "the accounts plan, open model, one server core", run: accounts::plan },
    Row {
        name: "20",
        title: "POST /links, GET /{code}, sync, drain paused, system",
        run: links::shorten_and_follow,
    },
    Row { name: "21", title: "what others commit to a followed table", run: following::others },
    Row {
        name: "21-drain",
        title: "row 9 into PostgreSQL of a followed table",
        run: following::drained_and_told,
    },
    Row {
        name: "22",
        title: "durability = \"database\" on PostgreSQL, beside SQL and beside the drain",
        run: servers::committed,
    },
    Row { name: "23", title: "checkpoints at full rate of row 4", run: following::checkpoints },
    Row {
        name: "25",
        title: "POST and GET /code-ultra-fast through clusters of 1, 3 and 6 masters, drained, by process",
        run: clusters::through_clusters,
    },
    Row { name: "27", title: "TLS 1.3 beside nginx, server", run: secure::by_tls },
    Row { name: "27-http2", title: "HTTP/2 beside nginx, server", run: secure::by_http2 },
    Row { name: "29", title: "a proxied request, beside HAProxy and nginx, server", run: front::passed_on },
    Row {
        name: "29-cache",
        title: "a kept answer of a server behind, beside nginx, server",
        run: front::kept,
    },
    Row { name: "30", title: "the accounts plan at a tenth of capacity", run: accounts::tenth },
    Row {
        name: "failover",
        title: "a primary of a cluster of 3 dies under writes: the longest one",
        run: failover::longest_writes,
    },
    Row { name: "plan", title: "2 workers beside what is predicted from 1", run: planned::two_workers },
    Row { name: "nodes", title: "a cluster of 15 masters and 15 replicas", run: servers::nodes },
    Row { name: "redis", title: "forebay load beside redis-benchmark", run: testers::beside_redis_benchmark },
    Row {
        name: "tls",
        title: "forebay load beside wrk against nginx with TLS",
        run: testers::beside_wrk_by_tls,
    },
    Row { name: "items", title: "an item four ways, system", run: items::four_ways },
    Row { name: "polls", title: "10,000 clients poll the items, one server core", run: items::polls },
    Row { name: "connections", title: "20 connections on 2 workers", run: fairness::connections },
    Row {
        name: "slow-sql",
        title: "GET /simple beside GET /code-v1 on 1,000,000 rows",
        run: fairness::slow_sql,
    },
    Row {
        name: "slow-clients",
        title: "GET /simple beside clients that are slow, deaf or idle",
        run: fairness::slow_clients,
    },
];
