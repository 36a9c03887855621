//! What a database enforces on a column and can be checked from one value; and how it changes a value that
//! it accepts, so that memory shows the value that the database will store.
//!
//! Not included: rules that need another column, row or table, or the database's own language (most CHECKs,
//! foreign keys, triggers).

use crate::{
    Check, Date, Invalid, LocalTimestamp, Schema, TimeOfDay, Timestamp, Type, Value, Zone, array, decimal,
    jsonb,
};
use serde::{Deserialize, Serialize};

const DAY_MICROS: i64 = 86_400_000_000;

/// The most labels of an enum that an error lists.
const LABELS_SHOWN: usize = 12;

/// Which values a column accepts, in addition to its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Whole numbers in a range, both ends included (`int2`, `int4`).
    Range {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
    /// Decimals, stored with all their digits and without an exponent (`numeric`).
    Plain,
    /// Decimals, rounded to `scale` digits after the point, of at most `precision` digits (`numeric(p,s)`).
    Decimal {
        /// Most digits in total.
        precision: u16,
        /// Digits after the point; below 0, zeros before it.
        scale: i16,
    },
    /// Decimals, and JSON and texts that are numbers, stored as a whole number or a double when possible
    /// (SQLite's NUMERIC affinity).
    Affinity,
    /// Text of at most this many characters; further spaces at the end are cut off (`varchar(n)`).
    Chars(u32),
    /// Text of this many characters, padded with spaces (`char(n)`).
    Padded(u32),
    /// Text of at most this many bytes (`name`).
    Octets(u32),
    /// One of these texts (an enum).
    Labels(Box<[Box<str>]>),
    /// Numbers of 32 bits (`float4`).
    Real,
    /// JSON in the form in which `jsonb` stores it.
    Jsonb,
    /// Arrays in JSON, each element within a type and a bound.
    Array(Elements),
    /// Text that is a date, or an instant whose day in UTC is stored (`date`).
    Date,
    /// Text that is a time of day (`time`).
    Time,
    /// Text that is a time of day, rounded to this many digits of a second (`time(p)`).
    RoundedTime(u32),
    /// Instants, rounded to this many digits of a second, at most six (`timestamptz(p)`).
    Instant(u32),
    /// Dates and times of a clock, rounded to this many digits of a second (`timestamp(p)`); an instant
    /// becomes what a clock of this zone shows.
    Local {
        /// Digits of a second, at most six.
        digits: u32,
        /// The zone of the database's clock.
        zone: Zone,
    },
    /// Doubles that are a number or infinite, without -0 (SQLite stores NaN as NULL, and -0 as 0).
    NotNan,
}

/// What an array accepts as an element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elements {
    ty: Type,
    bound: Option<Box<Bound>>,
}

impl Elements {
    /// Elements of a type, within a bound.
    pub fn new(ty: Type, bound: Option<Bound>) -> Elements {
        Elements { ty, bound: bound.map(Box::new) }
    }

    fn as_stored(&self, text: &str) -> Result<String, Invalid> {
        array::as_stored(text, self.ty, |value| match &self.bound {
            Some(bound) => bound.as_stored(value),
            None => Ok(value),
        })
    }
}

impl Bound {
    /// The value as the database will store it. A value of another kind is returned unchanged.
    ///
    /// # Errors
    /// When the database would refuse it.
    pub fn as_stored(&self, value: Value) -> Result<Value, Invalid> {
        Ok(match (self, value) {
            (Bound::Range { min, max }, Value::Bigint(number)) if !(*min..=*max).contains(&number) => {
                return Err(Invalid::beyond(format!("a whole number from {min} to {max}")));
            }
            (Bound::Plain, Value::Numeric(text)) => Value::Numeric(plain(text)?),
            (Bound::Decimal { precision, scale }, Value::Numeric(text)) => {
                Value::Numeric(rounded(text, *precision, *scale)?)
            }
            (Bound::Affinity, Value::Numeric(text)) => Value::Numeric(by_affinity(&text)?.into()),
            (Bound::Affinity, Value::Json(text))
                if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) =>
            {
                Value::Json(by_affinity(&text)?.into())
            }
            (Bound::Affinity, Value::Text(text)) => match number_by_affinity(&text)? {
                Some(number) => Value::Text(number.into()),
                None => Value::Text(text),
            },
            (Bound::Chars(max), Value::Text(text)) => Value::Text(cut(text, *max)?),
            (Bound::Padded(chars), Value::Text(text)) => {
                let text = cut(text, *chars)?;
                let missing = *chars as usize - text.chars().count();
                Value::Text((String::from(text) + &" ".repeat(missing)).into())
            }
            (Bound::Octets(max), Value::Text(text)) if text.len() > *max as usize => {
                return Err(Invalid::beyond(format!("a text of at most {max} bytes")));
            }
            (Bound::Array(elements), Value::Json(text)) => Value::Json(elements.as_stored(&text)?.into()),
            (Bound::Labels(labels), Value::Text(text)) if !labels.contains(&text) => {
                return Err(Invalid::beyond(named(labels)));
            }
            (Bound::Real, Value::Double(number)) => {
                let narrow = number as f32;
                if !narrow.is_finite() && number.is_finite() {
                    return Err(Invalid::beyond("a number of 32 bits"));
                }
                if !number.is_finite() {
                    return Ok(Value::Double(number));
                }
                // The shortest digits that identify the value, as the database returns it.
                Value::Double(narrow.to_string().parse().unwrap_or(f64::from(narrow)))
            }
            (Bound::Jsonb, Value::Json(text)) => Value::Json(jsonb::as_jsonb(&text)?.into()),
            (Bound::Date, Value::Text(text)) => Value::Text(date(text)?),
            (Bound::Time, Value::Text(text)) => Value::Text(time_of_day(&text, 6)?),
            (Bound::RoundedTime(digits), Value::Text(text)) => Value::Text(time_of_day(&text, *digits)?),
            (Bound::Instant(digits), Value::Timestamp(at)) => Value::Timestamp(to_digits(at, *digits)?),
            (Bound::Local { digits, zone }, Value::Timestamp(at)) => {
                Value::Local(LocalTimestamp(to_digits(zone.clock_at(at), *digits)?))
            }
            (Bound::Local { digits, .. }, Value::Local(LocalTimestamp(at))) => {
                Value::Local(LocalTimestamp(to_digits(at, *digits)?))
            }
            (Bound::NotNan, Value::Double(number)) if number.is_nan() => {
                return Err(Invalid::beyond("a number"));
            }
            // Adding zero turns -0 into 0.
            (Bound::NotNan, Value::Double(number)) => Value::Double(number + 0.0),
            (_, value) => value,
        })
    }

    /// Whether every value of this type is within the bound and stored unchanged.
    fn is_implied_by(&self, ty: Type) -> bool {
        match (self, ty) {
            // SQLite's bool is 0 or 1.
            (Bound::Range { .. }, Type::Bool) => true,
            (Bound::Range { min, max }, ty) => {
                ty.range().is_some_and(|(least, greatest)| *min <= least && greatest <= *max)
            }
            (Bound::Chars(max), Type::Text { max_chars: Some(chars) }) => chars <= *max,
            _ => false,
        }
    }
}

/// A `numeric` without an exponent; what is no number stays.
fn plain(text: Box<str>) -> Result<Box<str>, Invalid> {
    if is_word(&text) {
        return Ok(text);
    }
    let plain = decimal::plain(&text)
        .ok_or_else(|| Invalid::beyond("a decimal number with no more digits than the database holds"))?;
    Ok(if *plain == *text { text } else { plain.into() })
}

/// A `numeric(p,s)`: NaN is not rounded, and the infinities do not fit a precision.
fn rounded(text: Box<str>, precision: u16, scale: i16) -> Result<Box<str>, Invalid> {
    if *text == *"NaN" {
        return Ok(text);
    }
    let rounded = if is_word(&text) { None } else { decimal::rounded(&text, precision, scale) };
    rounded.map(Into::into).ok_or_else(|| beyond_digits(precision, scale))
}

/// Whether a `numeric` is NaN or an infinity.
fn is_word(text: &str) -> bool {
    text == "NaN" || text.ends_with('y')
}

/// Limits a text to `max` characters; spaces beyond them are cut off.
fn cut(text: Box<str>, max: u32) -> Result<Box<str>, Invalid> {
    if text.len() <= max as usize {
        return Ok(text);
    }
    match text.char_indices().nth(max as usize) {
        None => Ok(text),
        Some((end, _)) if text[end..].bytes().all(|byte| byte == b' ') => Ok(text[..end].into()),
        Some(_) => Err(Invalid::beyond(format!("a text of at most {max} characters"))),
    }
}

/// Converts a date to PostgreSQL's form.
fn date(text: Box<str>) -> Result<Box<str>, Invalid> {
    let of_instant = || {
        let at = Timestamp::parse_stored(&text)?;
        Date::of_days(at.0.div_euclid(DAY_MICROS)).filter(|_| at.is_usual())
    };
    let date = Date::parse(&text).or_else(of_instant);
    let date = date.ok_or_else(|| Invalid::beyond("a date such as 2016-11-01"))?;
    Ok(date.to_string().into())
}

/// Converts a time of day to the form in which it is read from PostgreSQL, rounded to this many digits of a
/// second.
fn time_of_day(text: &str, digits: u32) -> Result<Box<str>, Invalid> {
    let unit = 10i64.pow(6 - digits.min(6));
    let rounded = |time: TimeOfDay| TimeOfDay::of_micros((time.micros() + unit / 2) / unit * unit);
    let time = TimeOfDay::parse(text).and_then(rounded);
    let time = time.ok_or_else(|| Invalid::beyond("a time of day such as 14:11:51"))?;
    Ok(time.to_string().into())
}

/// Rounds an instant to this many digits of a second, half away from the year 2000, which is PostgreSQL's
/// epoch.
fn to_digits(at: Timestamp, digits: u32) -> Result<Timestamp, Invalid> {
    if matches!(at, Timestamp::INFINITY | Timestamp::NEGATIVE_INFINITY) {
        return Ok(at);
    }
    if digits >= 6 {
        return Ok(at);
    }
    let unit = 10i64.pow(6 - digits);
    let micros = at.to_postgres();
    let rounded = (micros.abs() + unit / 2) / unit * unit * micros.signum();
    let rounded = Timestamp::of_postgres(rounded);
    // The last instant may round beyond the range of the type.
    Timestamp::parse(&rounded.to_string()).ok_or_else(|| Invalid::beyond("a time before the year 294277"))
}

/// The text that SQLite's NUMERIC affinity makes of a decimal.
fn by_affinity(text: &str) -> Result<String, Invalid> {
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(whole.to_string());
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number + 0.0).to_string()),
        _ => Err(Invalid::beyond("a decimal number that fits in 64 bits")),
    }
}

/// The number that SQLite's NUMERIC affinity makes of a text, as a text; `None`: the text stays. An infinity
/// is refused: its text is no number.
fn number_by_affinity(text: &str) -> Result<Option<String>, Invalid> {
    let digits = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) {
        return Ok(None);
    }
    if let Ok(whole) = digits.parse::<i64>() {
        return Ok(Some(whole.to_string()));
    }
    let Ok(number) = digits.parse::<f64>() else { return Ok(None) };
    if number.is_infinite() {
        return Err(Invalid::beyond("a text, or a number that fits in 64 bits"));
    }
    // Both ends are doubles.
    let is_whole = number.fract() == 0.0 && number > i64::MIN as f64 && number < i64::MAX as f64;
    Ok(Some(if is_whole { (number as i64).to_string() } else { real_text(number) }))
}

/// A double as SQLite's text of one is shown: with a point or an exponent.
pub fn real_text(number: f64) -> String {
    if number.is_finite() { format!("{number:?}") } else { number.to_string().replace("inf", "Infinity") }
}

fn beyond_digits(precision: u16, scale: i16) -> Invalid {
    Invalid::beyond(match i32::from(precision) - i32::from(scale) {
        whole @ 0.. => format!("a decimal number of at most {whole} digits before the point"),
        zeros => format!("a decimal number with {} zeros after the point", -zeros),
    })
}

fn named(labels: &[Box<str>]) -> String {
    let shown = &labels[..labels.len().min(LABELS_SHOWN)];
    let rest = if shown.len() < labels.len() { ", …" } else { "" };
    format!("one of {}{rest}", shown.join(", "))
}

/// What the database enforces on one column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rule {
    /// Whether null is refused.
    pub not_null: bool,
    /// Which values it accepts.
    pub bound: Option<Bound>,
    /// The CHECK conditions on its values.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// How the database is asked in which form it stores a text, for a type that only it knows.
    #[serde(default)]
    pub form: Option<Form>,
}

/// A statement that selects the form in which the database stores the text `$given`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The statement.
    pub sql: Box<str>,
    /// Whether the form depends on the session's settings.
    pub is_styled: bool,
}

impl Rule {
    fn as_stored(&self, value: Value) -> Result<Value, Invalid> {
        let value = match (&self.bound, value) {
            (_, Value::Null) if self.not_null => return Err(Invalid::null()),
            (_, Value::Null) => return Ok(Value::Null),
            (Some(bound), value) => bound.as_stored(value)?,
            (None, value) => value,
        };
        match self.checks.iter().find(|check| !check.condition.keeps(&value)) {
            Some(check) => Err(Invalid::refused(&check.text)),
            None => Ok(value),
        }
    }
}

/// The rules of a table, by column of its schema. Rules that the schema itself implies are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rules(Box<[Option<Rule>]>);

impl Rules {
    /// The rules of a table, one for each column of its schema.
    pub fn new(schema: &Schema, rules: impl IntoIterator<Item = Rule>) -> Rules {
        let relevant = |(index, rule): (usize, Rule)| {
            let column = &schema.columns[index];
            let is_key = index == schema.key;
            let bound = rule.bound.clone().filter(|bound| !bound.is_implied_by(column.ty));
            // A key is looked up as it was given, so it is not padded.
            let bound = match bound {
                Some(Bound::Padded(chars)) if is_key => Some(Bound::Chars(chars)),
                bound => bound,
            };
            let not_null = rule.not_null && column.nullable;
            let rule = Rule { not_null, bound, ..rule };
            (rule != Rule::default()).then_some(rule)
        };
        Rules(rules.into_iter().enumerate().map(relevant).collect())
    }

    /// Whether no column has a rule.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The value of a column as the database will store it.
    ///
    /// # Errors
    /// When the database would refuse it.
    pub fn as_stored(&self, column: usize, value: Value) -> Result<Value, Invalid> {
        match self.0.get(column) {
            Some(Some(rule)) => rule.as_stored(value),
            _ => Ok(value),
        }
    }

    /// See [`Rule::form`].
    pub fn form(&self, column: usize) -> Option<&Form> {
        self.0.get(column)?.as_ref()?.form.as_ref()
    }

    /// Whether a column has a form.
    pub fn has_forms(&self) -> bool {
        self.0.iter().flatten().any(|rule| rule.form.is_some())
    }

    /// Whether a column accepts a whole number.
    pub fn allows(&self, column: usize, number: i64) -> bool {
        self.as_stored(column, Value::Bigint(number)).is_ok()
    }

    /// Whether a column may refuse a whole number.
    pub fn is_bounded(&self, column: usize) -> bool {
        let rule = self.0.get(column).and_then(Option::as_ref);
        rule.is_some_and(|rule| matches!(rule.bound, Some(Bound::Range { .. })) || !rule.checks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, KeyKind};

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn bounded(not_null: bool, bound: Bound) -> Rule {
        Rule { not_null, bound: Some(bound), ..Rule::default() }
    }

    fn number(text: &str) -> Value {
        Value::Numeric(text.into())
    }

    #[track_caller]
    fn check(bound: Bound, value: Value, expected: Result<Value, &str>) {
        let got = bound.as_stored(value.clone()).map_err(|invalid| invalid.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{value:?} by {bound:?}");
    }

    #[test]
    fn values_are_judged_as_the_database_judges_them() {
        let small = || Bound::Range { min: -32_768, max: 32_767 };
        check(small(), Value::Bigint(32_767), Ok(Value::Bigint(32_767)));
        check(small(), Value::Bigint(32_768), Err("must be a whole number from -32768 to 32767"));
        let money = || Bound::Decimal { precision: 8, scale: 2 };
        check(money(), number("19.8"), Ok(number("19.80")));
        check(money(), number("19.805"), Ok(number("19.81")));
        check(
            money(),
            number("12345678.9"),
            Err("must be a decimal number of at most 6 digits before the point"),
        );
        check(
            money(),
            number("999999.995"),
            Err("must be a decimal number of at most 6 digits before the point"),
        );
        check(Bound::Plain, number("1e2"), Ok(number("100")));
        check(Bound::Affinity, number("1.50"), Ok(number("1.5")));
        check(Bound::Affinity, number("3.00"), Ok(number("3")));
        check(Bound::Affinity, number("1e999"), Err("must be a decimal number that fits in 64 bits"));
        check(Bound::Affinity, Value::Json("1e2".into()), Ok(Value::Json("100".into())));
        check(Bound::NotNan, Value::Double(-0.0), Ok(Value::Double(0.0)));
        check(Bound::Chars(2), text("äö"), Ok(text("äö")));
        check(Bound::Chars(2), text("äö   "), Ok(text("äö")));
        check(Bound::Chars(2), text("a "), Ok(text("a ")));
        check(Bound::Chars(2), text("äöü"), Err("must be a text of at most 2 characters"));
        check(Bound::Padded(3), text("ä"), Ok(text("ä  ")));
        check(Bound::Padded(3), text("abcd"), Err("must be a text of at most 3 characters"));
        let labels = || Bound::Labels(Box::new(["pending".into(), "paid".into()]));
        check(labels(), text("paid"), Ok(text("paid")));
        check(labels(), text("lost"), Err("must be one of pending, paid"));
        check(Bound::Date, text("2016-11-01T23:00:00-05:00"), Ok(text("2016-11-02")));
        check(Bound::Date, text("9999-12-31"), Ok(text("9999-12-31")));
        check(Bound::Date, text("0044-03-15 bc"), Ok(text("0044-03-15 BC")));
        check(Bound::Plain, number("-Infinity"), Ok(number("-Infinity")));
        check(money(), number("NaN"), Ok(number("NaN")));
        check(
            money(),
            number("Infinity"),
            Err("must be a decimal number of at most 6 digits before the point"),
        );
        check(Bound::Date, text("2016-02-30"), Err("must be a date such as 2016-11-01"));
        check(Bound::Time, text("14:11"), Ok(text("14:11:00")));
        check(Bound::Time, text("24:00:00"), Ok(text("24:00:00")));
        check(Bound::RoundedTime(1), text("14:11:51.25"), Ok(text("14:11:51.3")));
        check(Bound::RoundedTime(0), text("23:59:59.5"), Ok(text("24:00:00")));
        check(Bound::Time, text("noon"), Err("must be a time of day such as 14:11:51"));
        let at = |text: &str| Value::Timestamp(Timestamp::parse(text).unwrap());
        check(Bound::Instant(0), at("2016-11-01T09:11:51.5Z"), Ok(at("2016-11-01T09:11:52Z")));
        check(Bound::Instant(0), at("1999-12-31T23:59:58.5Z"), Ok(at("1999-12-31T23:59:58Z")));
        check(Bound::Instant(3), at("2016-11-01T09:11:51.000499Z"), Ok(at("2016-11-01T09:11:51Z")));
        let zone = || Zone::new(vec![(i64::MIN, 3600), (1_480_000_000, 7200)]);
        let clock = |text: &str| Value::Local(LocalTimestamp::parse(text).unwrap());
        let local = |digits| Bound::Local { digits, zone: zone() };
        check(local(6), at("2016-11-01T09:11:51.5Z"), Ok(clock("2016-11-01T10:11:51.5")));
        check(local(0), at("2016-12-01T09:11:51.5Z"), Ok(clock("2016-12-01T11:11:52")));
        check(local(0), clock("2016-12-01T09:11:51.5"), Ok(clock("2016-12-01T09:11:52")));
        check(local(0), at("infinity"), Ok(clock("infinity")));
        check(Bound::NotNan, Value::Double(f64::INFINITY), Ok(Value::Double(f64::INFINITY)));
        check(Bound::NotNan, Value::Double(f64::NAN), Err("must be a number"));
        check(Bound::Real, Value::Double(0.1), Ok(Value::Double(0.1)));
        check(Bound::Real, Value::Double(1e300), Err("must be a number of 32 bits"));
        check(
            Bound::Jsonb,
            Value::Json("{\"b\": 1, \"a\": 2}".into()),
            Ok(Value::Json("{\"a\":2,\"b\":1}".into())),
        );
    }

    #[test]
    fn what_the_schema_says_is_no_rule() {
        let column = |name: &str, ty, nullable| Column {
            name: name.into(),
            ty,
            nullable,
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = vec![
            column("id", Type::Bigint, false),
            column("qty", Type::Smallint, false),
            column("name", Type::Text { max_chars: Some(8) }, true),
        ];
        let schema = Schema::new("things", columns, 0, KeyKind::Bigint).unwrap();
        let rules = |name: Rule| {
            let qty = bounded(true, Bound::Range { min: -32_768, max: 32_767 });
            Rules::new(&schema, [Rule { not_null: true, ..Rule::default() }, qty, name])
        };
        assert!(rules(bounded(false, Bound::Chars(9))).is_empty());
        let narrower = rules(bounded(true, Bound::Chars(7)));
        assert!(!narrower.is_empty());
        assert_eq!(narrower.as_stored(2, Value::Null), Err(Invalid::null()));
        assert_eq!(narrower.as_stored(2, text("1234567 ")), Ok(text("1234567")));
        assert!(narrower.as_stored(2, text("12345678")).is_err());
        assert!(narrower.allows(1, i64::MAX), "the type judges it");
    }
}
