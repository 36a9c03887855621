//! The flags of `forebay load`, and the run that they describe.
//!
//! [`LoadFlags`] holds the flags as typed; [`LoadFlags::resolve`] puts plan, profile and flags together
//! (flags win) into a [`Planned`] run. Every mistake is one sentence that names the flag or value.

use crate::limits::WORKERS_MAX;
use crate::mistyped::Mistyped;
use crate::plan::{Plan, PlannedStage, Requests};
use crate::redis::{self, CommandFlags, Commands, Hello};
use crate::request_source::{RequestSource, WorkTraffic};
use crate::schedule::{Rate, RateStage, SECOND_NS, Schedule, Share};
use crate::settings::{OnClose, Pace, Settings, Stop};
use crate::target::{Protocol, Target};
use crate::tls::Tls;
use crate::units;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Connections when the number is not given.
const CONNECTIONS: u64 = 10;
/// Duration when it is not given.
const DURATION: Duration = Duration::from_secs(10);
/// Time-out when it is not given.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that may be under way in the open model when the plan does not say how many connections or how
/// much concurrency.
const CONCURRENCY: u64 = 1000;
/// The ratio of SETs to GETs when it is not given. This and the next two defaults are those of
/// memtier_benchmark.
const RATIO: &str = "1:10";
const DATA_BYTES: u64 = 32;
const KEY_MAXIMUM: u64 = 10_000_000;
/// Requests a second by profile.
const PROFILES: [(&str, f64); 4] = [("low", 5.0), ("average", 50.0), ("high", 250.0), ("very-high", 1000.0)];
/// How long a profile lasts, and how long its `-long` form does.
const PROFILE_TIMES: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(600)];

/// Flags of `forebay load`, as typed: this definition is the parser and the help.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LoadFlags {
    /// The target, such as http://localhost:3000/simple or redis://localhost; a plan may name it.
    pub url: Option<String>,
    /// Connections, over all workers [default: 10].
    #[arg(short, long, value_name = "N")]
    pub connections: Option<String>,
    /// How long to send requests: 500ms, 20s, 10m [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<String>,
    /// How many requests to send, instead of a duration: 1000, 10k, 2m.
    #[arg(short, long, short_alias = 'n', value_name = "N")]
    pub amount: Option<String>,
    /// Requests in flight on each connection [default: 1].
    #[arg(short, long, value_name = "N")]
    pub pipelining: Option<String>,
    /// Threads [default: one per core].
    #[arg(short, long, value_name = "N")]
    pub workers: Option<String>,
    /// Method [default: GET; POST with a body].
    #[arg(short, long, value_name = "METHOD")]
    pub method: Option<String>,
    /// A header, `Name: value`. May be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Body, or @file.
    #[arg(short, long, value_name = "BODY")]
    pub body: Option<String>,
    /// How long an answer may take [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// How long connecting may take [default: as --timeout].
    #[arg(long, value_name = "TIME")]
    pub connect_timeout: Option<String>,
    /// How long to wait for answers after the last request [default: as --timeout].
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Accept any certificate.
    #[arg(short = 'k', long)]
    pub insecure: bool,
    /// Open model: requests to send a second, over all connections and agents.
    #[arg(short = 'R', long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Open model: the most requests in flight; connections are opened when they are needed [default: 1000,
    /// without -c].
    #[arg(long, value_name = "N")]
    pub max_concurrency: Option<String>,
    /// How long from the start to leave out of the results.
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<String>,
    /// Raise the load evenly over this time: the rate from 0 to -R, or without -R the number of connections.
    /// -d counts from the end of this time.
    #[arg(long, value_name = "TIME")]
    pub ramp: Option<String>,
    /// A plan: weighted endpoints, templates, stages.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<String>,
    /// low, average, high, very-high: 5, 50, 250, 1000 requests a second for 15 s; with -long, for 10 min.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Redis: SETs to GETs [default: 1:10].
    #[arg(long, value_name = "SETS:GETS")]
    pub ratio: Option<String>,
    /// Redis: bytes of a value [default: 32].
    #[arg(long, value_name = "BYTES")]
    pub data_size: Option<String>,
    /// Redis: keys are memtier-1 to memtier-N [default: 10m].
    #[arg(long, value_name = "N")]
    pub key_maximum: Option<String>,
    /// Redis: a key, with % in the place of its number; in a cluster, {…} is its hash tag [default:
    /// memtier-%].
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Redis: the servers that answer GETs, primaries or replicas [default: primaries].
    #[arg(long, value_name = "WHO")]
    pub read_from: Option<String>,
    /// When to begin: seconds of Unix time, or +5s from now.
    #[arg(long, value_name = "TIME")]
    pub start_at: Option<String>,
}

/// A checked run. Its name is not resolved and its certificates are not read yet.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The target of the load.
    pub target: Target,
    /// The settings; address and TLS are filled in by [`Planned::connectable`].
    pub settings: Settings,
    /// What is sent.
    pub work: RequestSource,
    /// `-k`: accept any certificate.
    pub insecure: bool,
}

impl Planned {
    /// Resolves the name, once, and reads the machine's root certificates.
    ///
    /// # Errors
    /// When the name has no address ([`Unconnectable::NameNotFound`]), there are no certificates,
    /// or a Redis refuses.
    pub fn connectable(&self) -> Result<Settings, Unconnectable> {
        let text = |error: io::Error| format!("{}: {error}", self.target.host);
        let named = |error: io::Error| io::Error::new(error.kind(), text(error));
        let address = self.target.resolve(self.settings.connect_timeout);
        let address = address.map_err(|error| Unconnectable::NameNotFound(text(error)))?;
        let protocols: &[&str] = if self.target.protocol == Protocol::Http { &["http/1.1"] } else { &[] };
        let tls =
            self.target.tls.then(|| Tls::new(&self.target.host, self.insecure, protocols)).transpose()?;
        let mut settings = Settings { address, tls, ..self.settings.clone() };
        if let RequestSource::Commands(commands) = &self.work {
            let is_cluster = self.target.protocol == Protocol::RedisCluster;
            redis::discover(&mut settings, self.target.login.as_ref(), is_cluster, commands)
                .map_err(named)?;
        }
        Ok(settings)
    }

    /// The traffic of a worker; `settings` are those of [`Planned::connectable`].
    pub fn traffic(&self, worker: usize, settings: &Settings) -> WorkTraffic {
        self.work.traffic(worker, settings)
    }
}

/// Why nothing can be connected to.
#[derive(Debug)]
pub enum Unconnectable {
    /// The name has no address, and why.
    NameNotFound(String),
    /// Certificates, or what a Redis answered.
    Other(io::Error),
}

impl From<io::Error> for Unconnectable {
    fn from(error: io::Error) -> Unconnectable {
        Unconnectable::Other(error)
    }
}

impl fmt::Display for Unconnectable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unconnectable::NameNotFound(why) => f.write_str(why),
            Unconnectable::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unconnectable {}

/// Reads a flag; puts its name before the error.
fn flag<T>(
    name: &str,
    typed: &Option<String>,
    read: impl Fn(&str) -> Result<T, Mistyped>,
) -> Result<Option<T>, Mistyped> {
    typed.as_deref().map(|text| read(text).map_err(|why| why.at(name))).transpose()
}

impl LoadFlags {
    /// Checks all flags and turns them into a run.
    pub fn resolve(&self) -> Result<Planned, Mistyped> {
        let plan = self.plan.as_deref().map(|path| Plan::read(Path::new(path))).transpose()?;
        let of_plan = plan.clone().unwrap_or_default();
        let url = self.url.clone().or(of_plan.url.clone());
        let target = Target::parse(&url.ok_or("a URL is missing, such as http://localhost:3000/")?)?;
        let requests = match &plan {
            _ if target.protocol != Protocol::Http => {
                let settings = self.settings(&of_plan)?;
                let work = RequestSource::Commands(self.commands()?);
                return Ok(Planned { target, settings, work, insecure: self.insecure });
            }
            _ if self.has_commands() => {
                return Err("--ratio, --data-size, --key, --key-maximum and --read-from are for redis:// and redis-cluster://".into());
            }
            None => Requests::single(&target, &self.method()?, &self.headers()?, self.body()?.as_deref())?,
            Some(plan) => {
                if self.method.is_some() || self.body.is_some() {
                    return Err("-m and -b do not go with --plan: endpoints have their own".into());
                }
                let headers = [plan.headers.clone(), self.headers()?].concat();
                Requests::of_plan(&Plan { headers, ..plan.clone() }, &target)?
            }
        };
        let settings = self.settings(&of_plan)?;
        let work = RequestSource::Requests(Arc::new(requests));
        Ok(Planned { target, settings, work, insecure: self.insecure })
    }

    /// Whether a flag was given that applies to Redis only.
    fn has_commands(&self) -> bool {
        [&self.ratio, &self.data_size, &self.key_maximum, &self.key, &self.read_from]
            .into_iter()
            .any(Option::is_some)
    }

    fn commands(&self) -> Result<Commands, Mistyped> {
        let http =
            self.plan.is_some() || self.method.is_some() || self.body.is_some() || !self.headers.is_empty();
        if http {
            return Err("--plan, -m, -b and -H are for http:// and https://".into());
        }
        let data_bytes = flag("--data-size", &self.data_size, units::count)?.unwrap_or(DATA_BYTES);
        let key_maximum = flag("--key-maximum", &self.key_maximum, units::count)?.unwrap_or(KEY_MAXIMUM);
        Commands::new(&CommandFlags {
            ratio: self.ratio.as_deref().unwrap_or(RATIO),
            data_bytes,
            key_maximum,
            key: self.key.as_deref(),
            read_from: self.read_from.as_deref(),
        })
    }

    fn settings(&self, plan: &Plan) -> Result<Settings, Mistyped> {
        let (profile_rate, profile_time) = self.profile()?.unzip();
        let rate = flag("--rate", &self.rate, units::rate)?.or(profile_rate).or(plan.rate);
        let mut pace =
            pace(rate, if self.rate.is_none() && profile_rate.is_none() { &plan.stages } else { &[] })?;
        let mut stop = self.stop(plan, profile_time, &pace)?;
        let warmup = flag("--warmup", &self.warmup, units::duration)?.or(plan.warmup).unwrap_or_default();
        let ramp = flag("--ramp", &self.ramp, units::duration)?.unwrap_or_default();
        if !ramp.is_zero() {
            (pace, stop) = ramped(ramp, warmup, pace, stop)?;
        }
        let workers = match flag("--workers", &self.workers, units::count)?.or(plan.workers) {
            Some(workers) => workers,
            None => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        };
        let timeout = flag("--timeout", &self.timeout, units::duration)?.or(plan.timeout).unwrap_or(TIMEOUT);
        let connections = flag("--connections", &self.connections, units::count)?.or(plan.connections);
        let most = flag("--max-concurrency", &self.max_concurrency, units::count)?.or(plan.max_concurrency);
        // No number is given. An open model limited to the ten default connections would behave as
        // a closed one.
        let most = match (&pace, connections, most) {
            (Pace::Open(_), None, None) => Some(CONCURRENCY),
            (_, _, most) => most,
        };
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let pipelining =
            flag("--pipelining", &self.pipelining, units::count)?.or(plan.pipelining).unwrap_or(1);
        let settings = Settings {
            address,
            nodes: Vec::new(),
            hello: Hello::default(),
            tls: None,
            connections: size(connections.unwrap_or(CONNECTIONS)),
            pipelining: size(pipelining),
            workers: size(workers).min(WORKERS_MAX + 1),
            pace,
            stop,
            warmup,
            ramp,
            timeout,
            connect_timeout: flag("--connect-timeout", &self.connect_timeout, units::duration)?
                .unwrap_or(timeout),
            grace: flag("--grace", &self.grace, units::duration)?.unwrap_or(timeout),
            max_concurrency: most.map(size),
            on_close: OnClose::Reconnect,
            share: Share::WHOLE,
            start_at: flag("--start-at", &self.start_at, start_at)?,
        };
        settings.check().map_err(|why| why.to_string())?;
        Ok(settings)
    }

    fn profile(&self) -> Result<Option<(f64, Duration)>, Mistyped> {
        let Some(name) = &self.profile else { return Ok(None) };
        let (base, time) = match name.strip_suffix("-long") {
            Some(base) => (base, PROFILE_TIMES[1]),
            None => (name.as_str(), PROFILE_TIMES[0]),
        };
        let found = PROFILES.iter().find(|(known, _)| *known == base);
        let wrong = || {
            format!("--profile: `{name}` is none of low, average, high, very-high, or one of them with -long")
                .into()
        };
        found.map(|(_, rate)| Some((*rate, time))).ok_or_else(wrong)
    }

    fn stop(&self, plan: &Plan, profile_time: Option<Duration>, pace: &Pace) -> Result<Stop, Mistyped> {
        let duration = flag("--duration", &self.duration, units::duration)?;
        let amount = flag("--amount", &self.amount, units::count)?;
        let of_stages = match pace {
            Pace::Open(schedule) => schedule.duration_ns().map(Duration::from_nanos),
            Pace::Closed => None,
        };
        match (duration, amount) {
            (Some(_), Some(_)) => Err("-d and -a: one of them ends the run, not both".into()),
            (Some(duration), None) => Ok(Stop::After(duration)),
            (None, Some(amount)) => Ok(Stop::Amount(amount)),
            (None, None) => Ok(match (profile_time.or(of_stages), plan.duration, plan.amount) {
                (Some(time), _, _) | (None, Some(time), _) => Stop::After(time),
                (None, None, Some(amount)) => Stop::Amount(amount),
                (None, None, None) => Stop::After(DURATION),
            }),
        }
    }

    fn method(&self) -> Result<String, Mistyped> {
        let method = match (&self.method, &self.body) {
            (Some(method), _) => method.to_uppercase(),
            (None, Some(_)) => "POST".into(),
            (None, None) => "GET".into(),
        };
        if method == "CONNECT" { Err("-m CONNECT: tunnels are not made".into()) } else { Ok(method) }
    }

    fn headers(&self) -> Result<Vec<(String, String)>, Mistyped> {
        let split = |typed: &String| {
            let (name, value) =
                typed.split_once(':').ok_or_else(|| format!("-H `{typed}`: write `Name: value`"))?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        };
        self.headers.iter().map(split).collect()
    }

    fn body(&self) -> Result<Option<Vec<u8>>, Mistyped> {
        match self.body.as_deref() {
            None => Ok(None),
            Some(typed) => match typed.strip_prefix('@') {
                None => Ok(Some(typed.as_bytes().to_vec())),
                Some(path) => std::fs::read(path)
                    .map(Some)
                    .map_err(|why| Mistyped::unreadable(format_args!("-b @{path}"), why)),
            },
        }
    }
}

fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn pace(rate: Option<f64>, stages: &[PlannedStage]) -> Result<Pace, Mistyped> {
    let checked =
        |rate: f64| Rate::per_s(rate).ok_or_else(|| format!("the rate {rate}/s is above a billion"));
    if stages.is_empty() {
        return Ok(match rate {
            Some(rate) => Pace::Open(Schedule::Constant(checked(rate)?)),
            None => Pace::Closed,
        });
    }
    let mut before = checked(rate.unwrap_or(0.0))?;
    let mut list = Vec::new();
    for stage in stages {
        let from = stage.from.map(checked).transpose()?.unwrap_or(before);
        before = checked(stage.to)?;
        let duration_ns = u64::try_from(stage.time.as_nanos()).unwrap_or(u64::MAX);
        list.push(RateStage { from, to: before, duration_ns });
    }
    Ok(Pace::Open(Schedule::Stages(list)))
}

/// The same load behind a ramp. The part of the ramp that is longer than the warm-up is added to
/// the duration.
fn ramped(ramp: Duration, warmup: Duration, pace: Pace, stop: Stop) -> Result<(Pace, Stop), Mistyped> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (stop, held_ns) = match stop {
        Stop::After(time) => (Stop::After(time + ramp.saturating_sub(warmup)), nanoseconds(time + warmup)),
        // The amount ends the run.
        Stop::Amount(_) => (stop, u64::MAX / 2),
    };
    let pace = match pace {
        Pace::Closed => Pace::Closed,
        Pace::Open(Schedule::Constant(rate)) => Pace::Open(Schedule::Stages(vec![
            RateStage { from: Rate::ZERO, to: rate, duration_ns: nanoseconds(ramp) },
            RateStage { from: rate, to: rate, duration_ns: held_ns },
        ])),
        Pace::Open(Schedule::Stages(_)) => {
            return Err("--ramp: the stages of the plan say how it rises".into());
        }
    };
    Ok((pace, stop))
}

fn start_at(text: &str) -> Result<SystemTime, Mistyped> {
    if let Some(wait) = text.strip_prefix('+') {
        return Ok(SystemTime::now() + units::duration(wait)?);
    }
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1e9..1e11).contains(seconds));
    let seconds = seconds
        .ok_or_else(|| format!("`{text}` is neither seconds of Unix time nor a time from now such as +5s"))?;
    Ok(UNIX_EPOCH + Duration::from_nanos((seconds * SECOND_NS as f64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(change: impl FnOnce(&mut LoadFlags)) -> Result<Settings, Mistyped> {
        let mut typed = LoadFlags { url: Some("http://a/".into()), ..LoadFlags::default() };
        change(&mut typed);
        typed.resolve().map(|planned| planned.settings)
    }

    #[test]
    fn what_is_not_said() {
        let settings = typed(|_| {}).unwrap();
        assert_eq!((settings.connections, settings.pipelining, settings.pace), (10, 1, Pace::Closed));
        assert_eq!(settings.stop, Stop::After(DURATION));
        let open = typed(|typed| typed.rate = Some("10k".into())).unwrap();
        assert_eq!((open.pace, open.max_concurrency), (Pace::rate(10_000.0), Some(1000)));
        let profile = typed(|typed| typed.profile = Some("very-high-long".into())).unwrap();
        assert_eq!((profile.pace, profile.stop), (Pace::rate(1000.0), Stop::After(Duration::from_secs(600))));
    }

    #[test]
    fn a_ramp_comes_before_the_load() {
        let ramped = |change: fn(&mut LoadFlags)| {
            typed(|typed| {
                (typed.rate, typed.ramp) = (Some("100".into()), Some("2s".into()));
                change(typed);
            })
            .unwrap()
        };
        let within = |settings: &Settings, seconds: u64| match &settings.pace {
            Pace::Open(schedule) => schedule.count_within(seconds * SECOND_NS),
            Pace::Closed => 0,
        };
        let plain = ramped(|typed| typed.duration = Some("3s".into()));
        assert_eq!(plain.stop, Stop::After(Duration::from_secs(5)));
        assert_eq!([1, 2, 5].map(|seconds| within(&plain, seconds)), [25, 100, 400]);
        let cut = ramped(|typed| {
            (typed.duration, typed.warmup) = (Some("3s".into()), Some("2s".into()));
        });
        assert_eq!((cut.stop, within(&cut, 5)), (Stop::After(Duration::from_secs(3)), 400));
        let by_amount = ramped(|typed| typed.amount = Some("1m".into()));
        assert_eq!((by_amount.stop, within(&by_amount, 10_001)), (Stop::Amount(1_000_000), 1_000_000));
        let closed = typed(|typed| typed.ramp = Some("2s".into())).unwrap();
        assert_eq!(
            (closed.pace, closed.stop),
            (Pace::Closed, Stop::After(DURATION + Duration::from_secs(2)))
        );
    }

    #[test]
    fn mistakes_in_one_line() {
        type Change = fn(&mut LoadFlags);
        let cases: [(Change, &str); 12] = [
            (|typed| typed.url = Some("localhost".into()), "`localhost`"),
            (|typed| typed.url = None, "URL"),
            (|typed| typed.rate = Some("0".into()), "rate must be above zero"),
            (|typed| typed.rate = Some("fast".into()), "--rate: `fast`"),
            (|typed| typed.connections = Some("0".into()), "connections must be from 1"),
            (|typed| typed.duration = Some("soon".into()), "--duration: `soon`"),
            (|typed| typed.duration = Some("0".into()), "duration must be above zero"),
            (|typed| typed.profile = Some("mad".into()), "--profile: `mad`"),
            (|typed| typed.headers = vec!["x".into()], "-H `x`"),
            (|typed| typed.body = Some("@/nothing/there".into()), "/nothing/there"),
            (|typed| typed.plan = Some("/nothing.toml".into()), "/nothing.toml"),
            (|typed| (typed.duration, typed.amount) = (Some("1".into()), Some("1".into())), "not both"),
        ];
        for (change, expected) in cases {
            let error = typed(change).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
        }
    }
}
