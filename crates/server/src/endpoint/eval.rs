//! Expressions, compiled: what a config file writes as `$name`, `random_code(6)` or
//! `"name-{random_int(0,999)}"`, resolved at start to slots and functions so that no request looks up a name.

use crate::functions;
use crate::problem::Problem;
use forebay_value::{Invalid, Timestamp, Type, Value, ValueRef, check_bounds, from_text, json};

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Eval {
    /// The value of a parameter.
    Slot(usize),
    /// A column of the row that the answer shows, or of a new row.
    Column(usize),
    /// A fixed value.
    Const(Value),
    /// Whether the parameter in this slot has a value other than null.
    Given(usize),
    /// `uuid()`
    Uuid4,
    Uuid7,
    Now,
    /// `now(seconds)`; the text is the name of the argument, for the error when the result is out of range.
    NowIn(Box<Eval>, String),
    /// `random_base64(n)`
    RandomBase64(usize),
    /// `random_code(n)`
    RandomCode(usize),
    /// `random_int(a,b)`; the text names the bounds, for the error when `a` is greater than `b`.
    RandomInt(Box<Eval>, Box<Eval>, String),
    /// `one_of(a,b,…)`
    OneOf(Vec<Eval>),
    /// `a ?? b`: `a` unless it is null, else `b`.
    Coalesce(Box<Eval>, Box<Eval>),
    /// Text concatenated from parts.
    Template(Vec<Eval>),
    /// `sha256(text)`
    Sha256(Box<Eval>),
}

/// The initial capacity for the text of a template, in bytes: about the length of a URL.
const TEMPLATE_BYTES: usize = 128;

/// The values of one request's parameters.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// The values in slot order; null for a missing parameter.
    pub values: Vec<Value>,
    /// Bit i: the request contained parameter i, possibly as null.
    given: u64,
}

/// The most parameters an endpoint can have: the bits of [`Slots::given`].
pub const SLOTS_MAX: usize = 64;

impl Slots {
    /// Removes all values and keeps the capacity.
    pub fn clear(&mut self) {
        self.values.clear();
        self.given = 0;
    }

    /// Appends the next value.
    pub fn push(&mut self, value: Value, given: bool) {
        self.given |= u64::from(given) << self.values.len();
        self.values.push(value);
    }

    /// Whether the request contained the parameter in this slot.
    pub fn is_given(&self, slot: usize) -> bool {
        self.given & (1 << slot) != 0
    }
}

/// The values that an expression can refer to.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    slots: &'a Slots,
    columns: Columns<'a>,
    /// The number of rows in the table that a random code is generated for.
    rows: u64,
}

/// The row that `$column` refers to.
#[derive(Clone, Copy)]
enum Columns<'a> {
    None,
    /// The row that the answer shows.
    Answer(&'a [ValueRef<'a>]),
    /// The columns of a new row that are computed so far.
    Own(&'a [Value]),
}

impl<'a> Scope<'a> {
    /// A scope with the parameters only.
    pub fn new(slots: &'a Slots) -> Scope<'a> {
        Scope { slots, columns: Columns::None, rows: 0 }
    }

    /// A scope with the parameters and the number of rows in the table that random codes are generated for.
    pub fn beside_rows(slots: &'a Slots, rows: u64) -> Scope<'a> {
        Scope { slots, columns: Columns::None, rows }
    }

    /// A scope with the parameters and the columns of one row.
    pub fn with_columns<'b>(&self, columns: &'b [ValueRef<'b>]) -> Scope<'b>
    where
        'a: 'b,
    {
        Scope { slots: self.slots, columns: Columns::Answer(columns), rows: self.rows }
    }

    /// A scope with the parameters and the columns of a new row that are computed so far.
    pub fn with_own<'b>(&self, own: &'b [Value]) -> Scope<'b>
    where
        'a: 'b,
    {
        Scope { slots: self.slots, columns: Columns::Own(own), rows: self.rows }
    }
}

impl Eval {
    /// Evaluates the expression. Fails when an argument that the client chose is not valid.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Eval::Slot(slot) => scope.slots.values[*slot].clone(),
            Eval::Column(column) => match scope.columns {
                Columns::Answer(columns) => columns[*column].to_owned(),
                Columns::Own(columns) => columns[*column].clone(),
                Columns::None => Value::Null,
            },
            Eval::Const(value) => value.clone(),
            Eval::Given(slot) => Value::Bool(!scope.slots.values[*slot].is_null()),
            Eval::Uuid4 => Value::Uuid(functions::uuid4()),
            Eval::Uuid7 => Value::Uuid(functions::uuid7()),
            Eval::Now => Value::Timestamp(Timestamp::now()),
            Eval::NowIn(seconds, name) => now_in(seconds.evaluate(scope)?, name)?,
            Eval::RandomBase64(chars) => Value::Text(functions::random_base64(*chars).into()),
            Eval::RandomCode(chars) => {
                Value::Text(functions::random_code(code_chars(*chars, scope.rows)).into())
            }
            Eval::RandomInt(low, high, name) => {
                random_int(low.evaluate(scope)?, high.evaluate(scope)?, name)?
            }
            Eval::OneOf(choices) => choices[functions::random_index(choices.len())].evaluate(scope)?,
            Eval::Coalesce(first, second) => match first.evaluate(scope)? {
                Value::Null => second.evaluate(scope)?,
                value => value,
            },
            Eval::Template(parts) => {
                let mut text = Vec::with_capacity(TEMPLATE_BYTES);
                for part in parts {
                    write_text(part.evaluate(scope)?.as_ref(), &mut text);
                }
                Value::Text(String::from_utf8(text).expect("values write themselves as UTF-8").into())
            }
            Eval::Sha256(of) => match of.evaluate(scope)? {
                Value::Null => Value::Null,
                value => {
                    let mut text = Vec::new();
                    write_text(value.as_ref(), &mut text);
                    Value::Text(functions::sha256_hex(&text).into())
                }
            },
        })
    }

    /// Evaluates the expression and converts the value to this type; a wrong value is a 400 or 422 that names
    /// `name`.
    pub fn evaluate_as(&self, ty: Type, name: &str, scope: &Scope<'_>) -> Result<Value, Problem> {
        let value = self.evaluate(scope)?;
        coerce(value, ty).map_err(|invalid| Problem::invalid(name, &invalid))
    }

    /// Whether the value is random, so that evaluating again may give another; false when the client gave the
    /// value.
    pub fn is_drawn(&self, scope: &Scope<'_>) -> bool {
        match self {
            Eval::Uuid4 | Eval::Uuid7 | Eval::RandomBase64(_) | Eval::RandomCode(_) | Eval::RandomInt(..) => {
                true
            }
            Eval::OneOf(choices) => choices.len() > 1,
            Eval::Coalesce(first, second) => match first.evaluate(scope) {
                Ok(Value::Null) => second.is_drawn(scope),
                _ => first.is_drawn(scope),
            },
            Eval::Template(parts) => parts.iter().any(|part| part.is_drawn(scope)),
            Eval::Sha256(of) => of.is_drawn(scope),
            Eval::Slot(_)
            | Eval::Column(_)
            | Eval::Const(_)
            | Eval::Given(_)
            | Eval::Now
            | Eval::NowIn(..) => false,
        }
    }

    /// Whether the expression contains `random_code`.
    pub fn draws_code(&self) -> bool {
        match self {
            Eval::RandomCode(_) => true,
            Eval::Coalesce(first, second) => first.draws_code() || second.draws_code(),
            Eval::OneOf(parts) | Eval::Template(parts) => parts.iter().any(Eval::draws_code),
            Eval::Sha256(of) => of.draws_code(),
            _ => false,
        }
    }

    /// Whether the expression refers to this column.
    pub fn uses_column(&self, column: usize) -> bool {
        match self {
            Eval::Column(own) => *own == column,
            Eval::Coalesce(first, second) => first.uses_column(column) || second.uses_column(column),
            Eval::NowIn(seconds, _) => seconds.uses_column(column),
            Eval::Sha256(of) => of.uses_column(column),
            Eval::RandomInt(low, high, _) => low.uses_column(column) || high.uses_column(column),
            Eval::OneOf(parts) | Eval::Template(parts) => parts.iter().any(|part| part.uses_column(column)),
            _ => false,
        }
    }
}

/// The time `seconds` from now; an error beyond the end of the year 9999 or before 1970.
fn now_in(seconds: Value, name: &str) -> Result<Value, Problem> {
    const YEAR_10000_MICROS: i64 = 253_402_300_800_000_000;
    let seconds = coerce(seconds, Type::Bigint).map_err(|invalid| Problem::invalid(name, &invalid))?;
    let Value::Bigint(seconds) = seconds else { return Ok(Value::Null) };
    let micros = seconds.checked_mul(1_000_000).and_then(|micros| micros.checked_add(Timestamp::now().0));
    match micros {
        Some(micros @ 0..YEAR_10000_MICROS) => Ok(Value::Timestamp(Timestamp(micros))),
        _ => Err(Problem::parameter(name, "leads out of the calendar")),
    }
}

/// The length of a random code for a table with `rows` rows. It grows by one character whenever 1 % of all
/// codes of a length is used, so that guesses miss and new codes rarely collide.
fn code_chars(least: usize, rows: u64) -> usize {
    let enough = |chars: usize| 62f64.powi(chars as i32) / 100.0 > rows as f64;
    (least..).find(|&chars| enough(chars)).expect("powers of 62 pass every number of rows")
}

fn random_int(low: Value, high: Value, name: &str) -> Result<Value, Problem> {
    match (low, high) {
        (Value::Bigint(low), Value::Bigint(high)) if low <= high => {
            Ok(Value::Bigint(functions::random_int(low, high)))
        }
        (Value::Bigint(low), Value::Bigint(_)) => {
            Err(Problem::parameter(name, format!("must be at least {low}")))
        }
        _ => Err(Problem::parameter(name, "must be a whole number")),
    }
}

/// Converts a value to this type, or returns the error that names the required form.
pub fn coerce(value: Value, ty: Type) -> Result<Value, Invalid> {
    let coerced = match (value, ty.unbounded()) {
        (value, ty) if value.as_ref().fits(ty) => Ok(value),
        (Value::Text(text), ty) => from_text(ty, &text),
        (Value::Bigint(number), Type::Double) => Ok(Value::Double(number as f64)),
        (Value::Bigint(number), Type::Numeric) => Ok(Value::Numeric(number.to_string().into())),
        (value, Type::Text { .. }) => {
            let mut text = Vec::new();
            write_text(value.as_ref(), &mut text);
            Ok(Value::Text(String::from_utf8(text).expect("values write themselves as UTF-8").into()))
        }
        (_, ty) => Err(Invalid::form(format!("a {ty}"))),
    }?;
    // The bounds come from the column; a parameter that was declared as plain text was not checked against
    // them.
    check_bounds(ty, coerced.as_ref())?;
    Ok(coerced)
}

/// Appends a value as plain text: JSON without the quotes, null as nothing.
pub fn write_text(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Text(text) => out.extend_from_slice(text.as_bytes()),
        value => {
            let start = out.len();
            json::write_value(value, out);
            if out.len() > start + 1 && out[start] == b'"' {
                out.pop();
                out.remove(start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_grow_with_the_table() {
        for (least, rows, expected) in [
            (6, 0, 6),
            (6, 568_002_355, 6),
            (6, 568_002_356, 7),
            (1, 0, 1),
            (1, 1, 2),
            (1, 38, 2),
            (1, 39, 3),
        ] {
            assert_eq!(code_chars(least, rows), expected, "{least} characters beside {rows} rows");
        }
    }

    #[test]
    fn expressions() {
        let mut slots = Slots::default();
        slots.push(Value::Bigint(7), true);
        slots.push(Value::Null, false);
        let scope = Scope::new(&slots);
        let text = |text: &str| Value::Text(text.into());
        let template = Eval::Template(vec![Eval::Const(text("id-")), Eval::Slot(0), Eval::Slot(1)]);
        let coalesce = |slot| Eval::Coalesce(Box::new(Eval::Slot(slot)), Box::new(Eval::RandomCode(6)));
        assert_eq!(template.evaluate(&scope), Ok(text("id-7")));
        assert_eq!(coalesce(0).evaluate(&scope), Ok(Value::Bigint(7)));
        assert!(!coalesce(0).is_drawn(&scope));
        assert!(coalesce(1).is_drawn(&scope));
        assert_eq!(Eval::Given(1).evaluate(&scope), Ok(Value::Bool(false)));
        let backwards =
            Eval::RandomInt(Box::new(Eval::Const(Value::Bigint(9))), Box::new(Eval::Slot(0)), "max".into());
        assert_eq!(backwards.evaluate(&scope).unwrap_err().detail, "`max` must be at least 9");
        assert_eq!(coerce(text("8"), Type::Bigint), Ok(Value::Bigint(8)));
        assert_eq!(coerce(Value::Bool(true), Type::Bigint), Err(Invalid::form("a bigint")));
        let beyond = Err(Invalid::beyond("a whole number from -32768 to 32767"));
        assert_eq!(coerce(Value::Bigint(32_768), Type::Smallint), beyond);
        assert_eq!(
            coerce(text("1.50"), Type::Decimal { precision: 3, scale: 2 }),
            Ok(Value::Numeric("1.50".into()))
        );
        assert_eq!(coerce(text("äö"), Type::Text { max_chars: Some(2) }), Ok(text("äö")));
    }
}
