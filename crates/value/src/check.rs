//! Conditions on the value of one column (CHECK) that can be judged without the database.
//!
//! A condition refuses only values that the database refuses too. Null is never refused: a comparison with
//! null is neither true nor false, and the database accepts a row unless a CHECK is false.

use crate::{Value, decimal};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// A CHECK on one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The name and the condition as the database writes them; shown in errors.
    pub text: Box<str>,
    /// The condition on the value.
    pub condition: Condition,
}

/// A condition on a value that is not null. No variant negates another condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// The number compares in this way with a decimal.
    Number(Comparison, Box<str>),
    /// The number of characters compares in this way with a number.
    Chars(Comparison, Box<str>),
    /// The text is one of these.
    OneOf(Box<[Box<str>]>),
    /// The text is none of these.
    NoneOf(Box<[Box<str>]>),
    /// The value is null.
    Null,
    /// Each of these holds.
    All(Box<[Condition]>),
    /// At least one of these holds.
    Any(Box<[Condition]>),
}

/// How the value compares with the operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `<>`
    Different,
    /// `>=`
    AtLeast,
    /// `>`
    Greater,
}

impl Condition {
    /// Whether a value is accepted. Null is, and so is a value of another kind than the condition.
    pub fn keeps(&self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Condition::All(all), _) => all.iter().all(|condition| condition.keeps(value)),
            (Condition::Any(any), _) => any.iter().any(|condition| condition.keeps(value)),
            (Condition::Null, _) => false,
            (Condition::OneOf(texts), Value::Text(text)) => texts.contains(text),
            (Condition::NoneOf(texts), Value::Text(text)) => !texts.contains(text),
            (Condition::Chars(comparison, count), Value::Text(text)) => {
                comparison.holds(&text.chars().count().to_string(), count)
            }
            (Condition::Number(comparison, number), Value::Bigint(value)) => {
                comparison.holds(&value.to_string(), number)
            }
            (Condition::Number(comparison, number), Value::Numeric(value)) => comparison.holds(value, number),
            (Condition::Number(comparison, number), Value::Double(value)) => {
                comparison.holds(&value.to_string(), number)
            }
            _ => true,
        }
    }
}

impl Comparison {
    /// The comparison with its operands exchanged: `a < b` is `b > a`.
    #[must_use]
    pub fn mirrored(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::AtMost => Comparison::AtLeast,
            Comparison::AtLeast => Comparison::AtMost,
            Comparison::Greater => Comparison::Less,
            Comparison::Equal | Comparison::Different => self,
        }
    }

    /// Whether two decimals compare in this way; true if one of them is no decimal.
    fn holds(self, left: &str, right: &str) -> bool {
        let Some(order) = decimal::compared(left, right) else { return true };
        match self {
            Comparison::Less => order == Ordering::Less,
            Comparison::AtMost => order != Ordering::Greater,
            Comparison::Equal => order == Ordering::Equal,
            Comparison::Different => order != Ordering::Equal,
            Comparison::AtLeast => order != Ordering::Less,
            Comparison::Greater => order == Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(comparison: Comparison, than: &str) -> Condition {
        Condition::Number(comparison, than.into())
    }

    #[test]
    fn numbers_compare_by_value() {
        let positive = number(Comparison::Greater, "0");
        for (value, keeps) in [
            (Value::Bigint(1), true),
            (Value::Bigint(0), false),
            (Value::Bigint(i64::MIN), false),
            (Value::Numeric("0.00".into()), false),
            (Value::Numeric("0.01".into()), true),
            (Value::Numeric("-12.5".into()), false),
            (Value::Double(1e-7), true),
            (Value::Double(-0.0), false),
            (Value::Double(f64::NAN), true),
            (Value::Null, true),
            (Value::Text("no number".into()), true),
        ] {
            assert_eq!(positive.keeps(&value), keeps, "{value:?}");
        }
        assert!(number(Comparison::Equal, "1.0").keeps(&Value::Bigint(1)));
        assert!(!number(Comparison::Different, "1.0").keeps(&Value::Bigint(1)));
        assert!(!number(Comparison::Less, "9").keeps(&Value::Bigint(10)));
        assert!(number(Comparison::AtMost, "10").keeps(&Value::Bigint(9)));
        assert!(number(Comparison::AtLeast, "-10").keeps(&Value::Bigint(-9)));
    }

    #[test]
    fn texts_are_listed_or_counted() {
        let text = |text: &str| Value::Text(text.into());
        let listed = Condition::OneOf(["new".into(), "paid".into()].into());
        assert!(listed.keeps(&text("paid")) && !listed.keeps(&text("Paid")) && listed.keeps(&Value::Null));
        let filled = Condition::NoneOf(["".into()].into());
        assert!(!filled.keeps(&text("")) && filled.keeps(&text(" ")));
        let short = Condition::Chars(Comparison::AtMost, "2".into());
        assert!(short.keeps(&text("äö")) && !short.keeps(&text("abc")));
    }

    #[test]
    fn conditions_are_joined() {
        let (low, high) = (number(Comparison::AtLeast, "1"), number(Comparison::AtMost, "5"));
        let both = Condition::All([low.clone(), high.clone()].into());
        assert!(both.keeps(&Value::Bigint(5)) && !both.keeps(&Value::Bigint(6)));
        let or_null = Condition::Any([Condition::Null, both].into());
        assert!(or_null.keeps(&Value::Null) && !or_null.keeps(&Value::Bigint(0)));
    }
}
