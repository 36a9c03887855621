//! `forebay load`: what can be typed. What it means is decided in the load tester.

use clap::Args;
use forebay_load::Typed;

#[derive(Debug, Args)]
pub struct Load {
    /// Where to, such as http://localhost:3000/simple or redis://localhost; a plan may have it.
    pub url: Option<String>,
    /// Connections, over all workers [default: 10].
    #[arg(short, long, value_name = "N")]
    connections: Option<String>,
    /// How long requests are sent: 500ms, 20s, 10m [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    duration: Option<String>,
    /// How many requests are sent, instead of how long: 1000, 10k, 2m.
    #[arg(short, long, short_alias = 'n', value_name = "N")]
    amount: Option<String>,
    /// Requests under way on each connection [default: 1].
    #[arg(short, long, value_name = "N")]
    pipelining: Option<String>,
    /// Threads [default: one a core].
    #[arg(short, long, value_name = "N")]
    workers: Option<String>,
    /// Method [default: GET; POST with a body].
    #[arg(short, long, value_name = "METHOD")]
    method: Option<String>,
    /// A header, `Name: value`. May be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Body, or @file.
    #[arg(short, long, value_name = "BODY")]
    body: Option<String>,
    /// How long an answer may take [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    timeout: Option<String>,
    /// How long connecting may take [default: as --timeout].
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<String>,
    /// How long answers are waited for when sending has ended [default: as --timeout].
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
    /// Take any certificate.
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Open model: so many requests are due a second, over all connections and agents.
    #[arg(short = 'R', long, value_name = "RATE")]
    rate: Option<String>,
    /// Open model: most requests under way at once; connections are made as they are needed [default: 1000, without -c].
    #[arg(long, value_name = "N")]
    max_concurrency: Option<String>,
    /// Cut from the results.
    #[arg(long, value_name = "TIME")]
    warmup: Option<String>,
    /// A plan: weighted endpoints, templates, stages.
    #[arg(long, value_name = "FILE")]
    plan: Option<String>,
    /// low, average, high, very-high: 5, 50, 250, 1000 requests a second for 15 s; with -long, for 10 min.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Redis: SETs to GETs [default: 1:10].
    #[arg(long, value_name = "SETS:GETS")]
    ratio: Option<String>,
    /// Redis: bytes of a value [default: 32].
    #[arg(long, value_name = "BYTES")]
    data_size: Option<String>,
    /// Redis: keys are memtier-1 to memtier-N [default: 10m].
    #[arg(long, value_name = "N")]
    key_maximum: Option<String>,
    /// Redis: a key, with % in the place of its number; in a cluster, {…} is its hash tag [default: memtier-%].
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Redis: who answers GETs, primaries or replicas [default: primaries].
    #[arg(long, value_name = "WHO")]
    read_from: Option<String>,
    /// Let these agents send the load (forebay agent), all from the same moment: HOST:PORT, several parted by commas.
    #[arg(long, value_name = "ADDRESSES")]
    pub agents: Option<String>,
    /// What the agents were started with; better in the environment, as FOREBAY_AGENT_TOKEN.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// When to begin: seconds of Unix time, or +5s from now.
    #[arg(long, value_name = "TIME")]
    start_at: Option<String>,
    /// Watch a server, for the verdict: http://HOST:PORT of its admin listener, or agent://HOST:PORT of an agent beside any other server. May be repeated.
    #[arg(long, value_name = "URL")]
    pub monitor: Vec<String>,
    /// Write the results as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<String>,
    /// Compare with the JSON of an earlier run.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<String>,
    /// What must hold, such as 'p99<10ms' or 'errors==0'; exit code 3 when it does not. May be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub threshold: Vec<String>,
    /// Search for the highest rate at which this holds, such as 'p99<10ms'; -d is the length of a step.
    #[arg(long, value_name = "CONDITION")]
    pub find_max: Option<String>,
}

impl Load {
    /// As the load tester takes it.
    pub fn to_typed(&self) -> Typed {
        Typed {
            url: self.url.clone(),
            connections: self.connections.clone(),
            duration: self.duration.clone(),
            amount: self.amount.clone(),
            pipelining: self.pipelining.clone(),
            workers: self.workers.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            timeout: self.timeout.clone(),
            connect_timeout: self.connect_timeout.clone(),
            grace: self.grace.clone(),
            insecure: self.insecure,
            rate: self.rate.clone(),
            max_concurrency: self.max_concurrency.clone(),
            warmup: self.warmup.clone(),
            plan: self.plan.clone(),
            profile: self.profile.clone(),
            ratio: self.ratio.clone(),
            data_size: self.data_size.clone(),
            key_maximum: self.key_maximum.clone(),
            key: self.key.clone(),
            read_from: self.read_from.clone(),
            start_at: self.start_at.clone(),
        }
    }
}
