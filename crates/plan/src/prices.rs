//! The prices of machines and of other services: one dated file.

use crate::invalid_figures::InvalidFigures;
use toml::de::{DeTable, DeValue};

/// The file that is built in.
const BUILT_IN: &str = include_str!("../prices.toml");

/// The prices of one day.
#[derive(Debug, Clone)]
pub struct Prices {
    /// The day of the prices.
    pub date: String,
    /// Machines by the month.
    pub machine: Vec<Machine>,
    /// Traffic that leaves a provider.
    pub egress: Vec<Egress>,
    /// Services that are billed by the request.
    pub rival: Vec<Rival>,
}

/// A machine that can be rented.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Provider and size.
    pub name: String,
    /// Its processors, as the provider counts them.
    pub cores: f64,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Sustained network bandwidth in Gb/s; bursts not counted.
    pub network_gbit: f64,
    /// Dollars for 730 hours.
    pub dollars_a_month: f64,
    /// The page that says so.
    pub source: String,
    /// Whether the figure was compared with that page on the file's date.
    pub verified: bool,
}

/// A provider's price for traffic that leaves it.
#[derive(Debug, Clone)]
pub struct Egress {
    /// The first word of its machines' names.
    pub provider: String,
    /// Dollars for 1,000,000,000 bytes.
    pub dollars_a_gb: f64,
    /// The page that says so.
    pub source: String,
    /// As [`Machine::verified`].
    pub verified: bool,
}

/// A service that is paid by the request.
#[derive(Debug, Clone)]
pub struct Rival {
    /// The name of the service.
    pub name: String,
    /// Dollars for 1,000,000 requests.
    pub dollars_a_million: f64,
    /// The page that says so.
    pub source: String,
    /// As [`Machine::verified`].
    pub verified: bool,
}

impl Prices {
    /// Reads the text of a file; `None` takes the built-in one.
    ///
    /// # Errors
    /// One line that names what is wrong.
    pub fn read(text: Option<&str>) -> Result<Prices, InvalidFigures> {
        let text = text.unwrap_or(BUILT_IN);
        Prices::parse(text).map_err(|why| InvalidFigures::malformed("the prices", why))
    }

    fn parse(text: &str) -> Result<Prices, InvalidFigures> {
        let table = DeTable::parse(text).map_err(|error| error.to_string())?;
        let table = table.get_ref();
        let date = match table.get("date").map(toml::Spanned::get_ref) {
            Some(DeValue::Datetime(date)) => date.to_string(),
            _ => return Err("they have no date".into()),
        };
        let machine = entries(table, "machine", 7, |entry| {
            Ok(Machine {
                name: entry.text("name")?,
                cores: entry.number("cores")?,
                memory_gib: entry.number("memory_gib")?,
                network_gbit: entry.number("network_gbit")?,
                dollars_a_month: entry.number("dollars_a_month")?,
                source: entry.text("source")?,
                verified: entry.truth("verified")?,
            })
        })?;
        let egress = entries(table, "egress", 4, |entry| {
            Ok(Egress {
                provider: entry.text("provider")?,
                dollars_a_gb: entry.number("dollars_a_gb")?,
                source: entry.text("source")?,
                verified: entry.truth("verified")?,
            })
        })?;
        let rival = entries(table, "rival", 4, |entry| {
            Ok(Rival {
                name: entry.text("name")?,
                dollars_a_million: entry.number("dollars_a_million")?,
                source: entry.text("source")?,
                verified: entry.truth("verified")?,
            })
        })?;
        Ok(Prices { date, machine, egress, rival })
    }

    /// Dollars a GB for traffic that leaves the provider of a machine.
    pub fn egress_of(&self, machine: &Machine) -> Option<&Egress> {
        let provider = machine.name.split(' ').next()?;
        self.egress.iter().find(|egress| egress.provider == provider)
    }
}

/// Reads every `[[name]]`, each of which must have exactly `keys` keys.
fn entries<T>(
    table: &DeTable<'_>,
    name: &str,
    keys: usize,
    read: impl Fn(PriceTable<'_>) -> Result<T, InvalidFigures>,
) -> Result<Vec<T>, InvalidFigures> {
    let Some(DeValue::Array(array)) = table.get(name).map(toml::Spanned::get_ref) else {
        return Err(format!("there is no [[{name}]]").into());
    };
    let entry = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::Table(table) if table.len() == keys => read(PriceTable(table)),
        DeValue::Table(table) => Err(format!("a [[{name}]] has {} keys, not {keys}", table.len()).into()),
        _ => Err(format!("{name} must be tables, each [[{name}]]").into()),
    };
    array.iter().map(entry).collect()
}

/// One table of the file.
struct PriceTable<'a>(&'a DeTable<'a>);

impl PriceTable<'_> {
    fn text(&self, key: &str) -> Result<String, InvalidFigures> {
        match self.0.get(key).map(toml::Spanned::get_ref) {
            Some(DeValue::String(text)) => Ok(text.to_string()),
            _ => Err(format!("{key} is missing, or no text").into()),
        }
    }

    fn truth(&self, key: &str) -> Result<bool, InvalidFigures> {
        match self.0.get(key).map(toml::Spanned::get_ref) {
            Some(DeValue::Boolean(truth)) => Ok(*truth),
            _ => Err(format!("{key} is missing, or neither true nor false").into()),
        }
    }

    /// A number above 0: a price or an amount of zero is a mistake here.
    fn number(&self, key: &str) -> Result<f64, InvalidFigures> {
        let number = match self.0.get(key).map(toml::Spanned::get_ref) {
            Some(DeValue::Float(number)) => number.as_str().replace('_', "").parse().ok(),
            Some(DeValue::Integer(number)) => number.as_str().replace('_', "").parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
            _ => Err(format!("{key} must be a number above 0").into()),
        }
    }
}
