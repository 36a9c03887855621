//! The file of a plan, as typed: every key known, every mistake with its line.

use crate::mistyped::Mistyped;
use crate::units;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const PLAN_KEYS: [&str; 14] = [
    "url",
    "connections",
    "pipelining",
    "workers",
    "rate",
    "max_concurrency",
    "timeout",
    "warmup",
    "duration",
    "amount",
    "seed",
    "headers",
    "endpoint",
    "stage",
];
const ENDPOINT_KEYS: [&str; 8] =
    ["name", "weight", "method", "path", "headers", "body", "expect", "validate"];
const STAGE_KEYS: [&str; 3] = ["for", "from", "to"];

/// A plan as it was typed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// The folder of the files that the plan names.
    pub folder: PathBuf,
    /// Scheme, host and port; a path is prefixed to those of the endpoints.
    pub url: Option<String>,
    /// `-c`
    pub connections: Option<u64>,
    /// `-p`
    pub pipelining: Option<u64>,
    /// `-w`
    pub workers: Option<u64>,
    /// `-R`
    pub rate: Option<f64>,
    /// As the option `--max-concurrency`: requests under way at most, of an open model.
    pub max_concurrency: Option<u64>,
    /// `-t`
    pub timeout: Option<Duration>,
    /// As the option `--warmup`: measuring begins after it.
    pub warmup: Option<Duration>,
    /// `-d`
    pub duration: Option<Duration>,
    /// As the option `-a`: the run ends after this number of requests.
    pub amount: Option<u64>,
    /// Seed of the random values; the same seed gives the same values.
    pub seed: Option<u64>,
    /// For every endpoint.
    pub headers: Vec<(String, String)>,
    /// At least one.
    pub endpoints: Vec<PlannedEndpoint>,
    /// One after the other.
    pub stages: Vec<PlannedStage>,
}

/// A kind of request.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedEndpoint {
    /// The given name, or `METHOD path`.
    pub name: String,
    /// Relative to the sum of all weights.
    pub weight: u64,
    /// Upper case.
    pub method: String,
    /// A template.
    pub path: String,
    /// Templates.
    pub headers: Vec<(String, String)>,
    /// A template.
    pub body: Option<String>,
    /// Expected statuses; an empty list means 200 to 399.
    pub expect: Vec<u16>,
    /// Whether a client sends `If-None-Match` with the last ETag of the same URL.
    pub validate: bool,
    /// The endpoint's line in the file.
    pub line: usize,
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlannedStage {
    /// How long.
    pub time: Duration,
    /// Requests a second at the beginning; when not given, the rate at the end of the previous
    /// stage.
    pub from: Option<f64>,
    /// At its end.
    pub to: f64,
}

/// A plan file: its name and its text.
struct PlanFile<'a> {
    name: &'a str,
    text: &'a str,
}

/// A key with its value.
type KeyValue<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

impl PlanFile<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn wrong(&self, at: usize, why: impl std::fmt::Display) -> Mistyped {
        format!("{}:{}: {why}", self.name, self.line(at)).into()
    }

    fn unknown(&self, entry: KeyValue<'_, '_>, known: &[&str]) -> Mistyped {
        let key = entry.0.get_ref();
        let help = match units::nearest(key, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.wrong(entry.0.span().start, format!("unknown key `{key}`; {help}"))
    }

    fn text_of<'t>(&self, entry: KeyValue<'t, '_>) -> Result<&'t str, Mistyped> {
        match entry.1.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => {
                Err(self
                    .wrong(entry.1.span().start, format!("`{}` must be a text in quotes", entry.0.get_ref())))
            }
        }
    }

    fn truth(&self, entry: KeyValue<'_, '_>) -> Result<bool, Mistyped> {
        match entry.1.get_ref() {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => {
                Err(self
                    .wrong(entry.1.span().start, format!("`{}` must be true or false", entry.0.get_ref())))
            }
        }
    }

    /// A number or a text such as `"10k"`, as `read` understands it.
    fn number<T>(
        &self,
        entry: KeyValue<'_, '_>,
        read: impl Fn(&str) -> Result<T, Mistyped>,
    ) -> Result<T, Mistyped> {
        let text = match entry.1.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => String::new(),
        };
        read(&text).map_err(|why| self.wrong(entry.1.span().start, format!("`{}`: {why}", entry.0.get_ref())))
    }

    fn texts(&self, entry: KeyValue<'_, '_>) -> Result<Vec<(String, String)>, Mistyped> {
        let DeValue::Table(table) = entry.1.get_ref() else {
            let why = format!("`{}` must be a table of texts", entry.0.get_ref());
            return Err(self.wrong(entry.1.span().start, why));
        };
        table
            .iter()
            .map(|entry| Ok((entry.0.get_ref().to_string(), self.text_of(entry)?.to_owned())))
            .collect()
    }

    fn tables<'t, 'i>(&self, entry: KeyValue<'t, 'i>) -> Result<Vec<(usize, &'t DeTable<'i>)>, Mistyped> {
        let key = entry.0.get_ref();
        let wrong = |at| self.wrong(at, format!("`{key}` must be a list of tables: [[{key}]]"));
        let DeValue::Array(items) = entry.1.get_ref() else { return Err(wrong(entry.1.span().start)) };
        let table = |item: &'t Spanned<DeValue<'i>>| match item.get_ref() {
            DeValue::Table(table) => Ok((item.span().start, table)),
            _ => Err(wrong(item.span().start)),
        };
        items.iter().map(table).collect()
    }
}

impl Plan {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Plan, Mistyped> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|why| Mistyped::unreadable(&shown, why))?;
        Plan::parse(&shown, &text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the text of a file called `name`; the files that the plan names are in `folder`.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Plan, Mistyped> {
        let source = PlanFile { name, text };
        let table = DeTable::parse(text).map_err(|why| {
            source.wrong(
                why.span().map_or(0, |span| span.start),
                why.message().lines().next().unwrap_or("not TOML"),
            )
        })?;
        let mut plan = Plan { folder: folder.to_owned(), ..Plan::default() };
        for entry in table.get_ref().iter() {
            plan.set(&source, entry)?;
        }
        if plan.endpoints.is_empty() {
            return Err(format!("{name}: there is no [[endpoint]]").into());
        }
        for (place, endpoint) in plan.endpoints.iter().enumerate() {
            if plan.endpoints[..place].iter().any(|before| before.name == endpoint.name) {
                let (line, own) = (endpoint.line, &endpoint.name);
                return Err(
                    format!("{name}:{line}: two endpoints are called `{own}`; give one a `name`").into()
                );
            }
        }
        Ok(plan)
    }

    fn set(&mut self, source: &PlanFile<'_>, entry: KeyValue<'_, '_>) -> Result<(), Mistyped> {
        match entry.0.get_ref().as_ref() {
            "url" => self.url = Some(source.text_of(entry)?.to_owned()),
            "connections" => self.connections = Some(source.number(entry, units::count)?),
            "pipelining" => self.pipelining = Some(source.number(entry, units::count)?),
            "workers" => self.workers = Some(source.number(entry, units::count)?),
            "rate" => self.rate = Some(source.number(entry, units::rate)?),
            "max_concurrency" => self.max_concurrency = Some(source.number(entry, units::count)?),
            "timeout" => self.timeout = Some(source.number(entry, units::duration)?),
            "warmup" => self.warmup = Some(source.number(entry, units::duration)?),
            "duration" => self.duration = Some(source.number(entry, units::duration)?),
            "amount" => self.amount = Some(source.number(entry, units::count)?),
            "seed" => self.seed = Some(source.number(entry, units::count)?),
            "headers" => self.headers = source.texts(entry)?,
            "endpoint" => {
                for (at, table) in source.tables(entry)? {
                    self.endpoints.push(endpoint(source, at, table)?);
                }
            }
            "stage" => {
                for (at, table) in source.tables(entry)? {
                    self.stages.push(stage(source, at, table)?);
                }
            }
            _ => return Err(source.unknown(entry, &PLAN_KEYS)),
        }
        Ok(())
    }
}

fn endpoint(source: &PlanFile<'_>, at: usize, table: &DeTable<'_>) -> Result<PlannedEndpoint, Mistyped> {
    let (mut name, mut path, mut body) = (None, None, None);
    let (mut weight, mut method, mut headers, mut expect) = (1, "GET".to_owned(), Vec::new(), Vec::new());
    let mut validate = false;
    for entry in table.iter() {
        match entry.0.get_ref().as_ref() {
            "name" => name = Some(source.text_of(entry)?.to_owned()),
            "weight" => weight = source.number(entry, units::count)?,
            "method" => method = source.text_of(entry)?.to_uppercase(),
            "path" => path = Some(source.text_of(entry)?.to_owned()),
            "headers" => headers = source.texts(entry)?,
            "body" => body = Some(source.text_of(entry)?.to_owned()),
            "expect" => expect = statuses(source, entry)?,
            "validate" => validate = source.truth(entry)?,
            _ => return Err(source.unknown(entry, &ENDPOINT_KEYS)),
        }
    }
    let path = path.ok_or_else(|| source.wrong(at, "an endpoint needs a `path`"))?;
    let name = name.unwrap_or_else(|| format!("{method} {path}"));
    let line = source.line(at);
    if weight == 0 {
        return Err(source.wrong(at, format!("the weight of `{name}` must be above zero")));
    }
    Ok(PlannedEndpoint { name, weight, method, path, headers, body, expect, validate, line })
}

fn statuses(source: &PlanFile<'_>, entry: KeyValue<'_, '_>) -> Result<Vec<u16>, Mistyped> {
    let wrong =
        || source.wrong(entry.1.span().start, "`expect` must be a list of statuses such as [200, 404]");
    let one = |value: &DeValue<'_>| match value {
        DeValue::Integer(number) => number.as_str().parse().ok().filter(|status| (100..600).contains(status)),
        _ => None,
    };
    match entry.1.get_ref() {
        DeValue::Array(items) if !items.is_empty() => {
            items.iter().map(|item| one(item.get_ref()).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}

fn stage(source: &PlanFile<'_>, at: usize, table: &DeTable<'_>) -> Result<PlannedStage, Mistyped> {
    let (mut time, mut from, mut to) = (None, None, None);
    for entry in table.iter() {
        match entry.0.get_ref().as_ref() {
            "for" => time = Some(source.number(entry, units::duration)?),
            "from" => from = Some(source.number(entry, units::rate)?),
            "to" => to = Some(source.number(entry, units::rate)?),
            _ => return Err(source.unknown(entry, &STAGE_KEYS)),
        }
    }
    match (time, to) {
        (Some(time), Some(to)) if !time.is_zero() => Ok(PlannedStage { time, from, to }),
        _ => Err(source.wrong(at, "a stage needs `for`, a time above zero, and `to`, a rate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Plan, Mistyped> {
        Plan::parse("p.toml", text, Path::new("."))
    }

    #[test]
    fn a_plan() {
        let plan = parse(
            "url = 'http://a'\nrate = '10k'\ntimeout = '2s'\n[headers]\nA = 'b'\n[[endpoint]]\nweight = 2\nmethod = 'post'\n\
             path = '/x'\nbody = '{}'\nexpect = [201, 409]\n[[endpoint]]\npath = '/y'\n[[stage]]\nfor = '5s'\nto = 100\n",
        )
        .unwrap();
        assert_eq!((plan.rate, plan.timeout), (Some(10_000.0), Some(Duration::from_secs(2))));
        assert_eq!(plan.endpoints[0].name, "POST /x");
        assert_eq!((plan.endpoints[0].weight, plan.endpoints[1].weight), (2, 1));
        assert_eq!(plan.endpoints[0].expect, [201, 409]);
        assert_eq!(plan.stages, [PlannedStage { time: Duration::from_secs(5), from: None, to: 100.0 }]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("\nconections = 5", "p.toml:2: unknown key `conections`; did you mean `connections`?"),
            (
                "[[endpoint]]\npath = '/'\nmetod = 'GET'",
                "p.toml:3: unknown key `metod`; did you mean `method`?",
            ),
            ("[[stage]]\nfro = 5", "p.toml:2: unknown key `fro`; did you mean `for`?"),
            ("[[endpoint]]\nweight = 2", "p.toml:1: an endpoint needs a `path`"),
            ("[[endpoint]]\npath = '/'\nvalidate = 1", "p.toml:3: `validate` must be true or false"),
            ("rate = 'x'", "p.toml:1: `rate`: `x` is not a rate"),
            ("rate = [", "p.toml:1: "),
            ("url = 5", "p.toml:1: `url` must be a text"),
            ("endpoint = 5", "p.toml:1: `endpoint` must be a list of tables"),
            ("[[endpoint]]\npath = '/'\nexpect = ['x']", "p.toml:3: `expect` must be a list"),
            (
                "[[endpoint]]\npath = '/'\n[[endpoint]]\npath = '/'",
                "p.toml:3: two endpoints are called `GET /`",
            ),
            ("[[stage]]\nfor = '5s'", "p.toml:1: a stage needs"),
            ("", "p.toml: there is no [[endpoint]]"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
