//! Decides which CHECK constraints can be evaluated in memory: those that compare one column with constants.
//!
//! A condition that is not understood with certainty is left to the database. Certainty depends on types: a
//! text is only compared for equality (its order depends on the collation), a double is only compared with
//! whole numbers (only the database decides how a decimal converts to a double).

use forebay_value::{Comparison, Condition, Schema};
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, UnaryOperator, Value,
};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

/// How the values of a column compare in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    Whole,
    Decimal,
    Double,
    /// Compared byte by byte, for equality only.
    Text,
}

/// The columns that a condition may refer to.
pub(crate) struct Columns<'a> {
    pub schema: &'a Schema,
    /// How each column of the schema compares; `None` where that is uncertain.
    pub compares: &'a [Option<Compares>],
    /// The column that `VALUE` means in a domain's condition.
    pub value: Option<usize>,
}

/// The one column of a PostgreSQL condition, and the condition in the form that memory evaluates.
pub(crate) fn of_postgres(sql: &str, columns: &Columns<'_>) -> Option<(usize, Condition)> {
    understood(&PostgreSqlDialect {}, sql, columns, |ident, name| match ident.quote_style {
        Some(_) => ident.value == name,
        None => ident.value.to_ascii_lowercase() == name,
    })
}

/// The same for SQLite, whose names are case-insensitive.
pub(crate) fn of_sqlite(sql: &str, columns: &Columns<'_>) -> Option<(usize, Condition)> {
    understood(&SQLiteDialect {}, sql, columns, |ident, name| ident.value.eq_ignore_ascii_case(name))
}

fn understood(
    dialect: &dyn Dialect,
    sql: &str,
    columns: &Columns<'_>,
    is_named: fn(&Ident, &str) -> bool,
) -> Option<(usize, Condition)> {
    let mut parser = Parser::new(dialect).try_with_sql(sql).ok()?;
    let expr = parser.parse_expr().ok()?;
    if parser.peek_token_ref().token != Token::EOF {
        return None;
    }
    let mut reader = Reader { columns, is_named, column: None };
    let condition = reader.condition(&expr)?;
    Some((reader.column?, condition))
}

/// The left side of a comparison: the column's value, or the number of its characters.
enum Subject {
    Value(Compares),
    Chars,
}

enum Constant {
    Number(Box<str>),
    Text(Box<str>),
}

struct Reader<'a> {
    columns: &'a Columns<'a>,
    is_named: fn(&Ident, &str) -> bool,
    /// The only column of the condition.
    column: Option<usize>,
}

impl Reader<'_> {
    fn condition(&mut self, expr: &Expr) -> Option<Condition> {
        match expr {
            Expr::Nested(inner) => self.condition(inner),
            Expr::IsNull(subject) => self.subject(subject).map(|_| Condition::Null),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                Some(Condition::All([self.condition(left)?, self.condition(right)?].into()))
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                Some(Condition::Any([self.condition(left)?, self.condition(right)?].into()))
            }
            Expr::BinaryOp { left, op, right } => {
                let comparison = comparison(op)?;
                if let Some(constant) = constant(right) {
                    compared(&self.subject(left)?, comparison, constant)
                } else {
                    compared(&self.subject(right)?, comparison.mirrored(), constant(left)?)
                }
            }
            Expr::Between { expr, negated: false, low, high } => {
                let subject = self.subject(expr)?;
                let least = compared(&subject, Comparison::AtLeast, constant(low)?)?;
                let greatest = compared(&subject, Comparison::AtMost, constant(high)?)?;
                Some(Condition::All([least, greatest].into()))
            }
            Expr::InList { expr, list, negated } => {
                let subject = self.subject(expr)?;
                if *negated { none_of(&subject, list) } else { one_of(&subject, list) }
            }
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                one_of(&self.subject(left)?, elements(right)?)
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                none_of(&self.subject(left)?, elements(right)?)
            }
            _ => None,
        }
    }

    fn subject(&mut self, expr: &Expr) -> Option<Subject> {
        match expr {
            Expr::Nested(inner) => self.subject(inner),
            Expr::Identifier(ident) => {
                let column = self.position(ident)?;
                if self.column.is_some_and(|known| known != column) {
                    return None;
                }
                self.column = Some(column);
                self.columns.compares[column].map(Subject::Value)
            }
            Expr::Cast { expr, data_type, .. } => {
                let Subject::Value(compares) = self.subject(expr)? else { return None };
                let keeps_value = match compares {
                    Compares::Whole => ["smallint", "integer", "bigint", "numeric"].as_slice(),
                    Compares::Decimal => &["numeric"],
                    Compares::Double => &["double precision"],
                    Compares::Text => &["text", "character varying"],
                };
                keeps_value.contains(&&*name_of(data_type)).then_some(Subject::Value(compares))
            }
            Expr::Function(call) => {
                let name = call.name.to_string().to_ascii_lowercase();
                let FunctionArguments::List(list) = &call.args else { return None };
                let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = list.args.as_slice() else {
                    return None;
                };
                let is_length = matches!(&*name, "length" | "char_length" | "character_length");
                let of = self.subject(of)?;
                (is_length && matches!(of, Subject::Value(Compares::Text))).then_some(Subject::Chars)
            }
            _ => None,
        }
    }

    fn position(&self, ident: &Ident) -> Option<usize> {
        match self.columns.value {
            Some(column) => ident.value.eq_ignore_ascii_case("value").then_some(column),
            None => {
                let columns = &self.columns.schema.columns;
                columns.iter().position(|column| (self.is_named)(ident, &column.name))
            }
        }
    }
}

fn comparison(op: &BinaryOperator) -> Option<Comparison> {
    Some(match op {
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::AtMost,
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::Different,
        BinaryOperator::GtEq => Comparison::AtLeast,
        BinaryOperator::Gt => Comparison::Greater,
        _ => return None,
    })
}

fn compared(subject: &Subject, comparison: Comparison, constant: Constant) -> Option<Condition> {
    match (subject, constant) {
        (Subject::Chars, Constant::Number(number)) => Some(Condition::Chars(comparison, number)),
        (Subject::Value(Compares::Whole | Compares::Decimal), Constant::Number(number)) => {
            Some(Condition::Number(comparison, number))
        }
        (Subject::Value(Compares::Double), Constant::Number(number)) if is_whole(&number) => {
            Some(Condition::Number(comparison, number))
        }
        (Subject::Value(Compares::Text), Constant::Text(text)) => match comparison {
            Comparison::Equal => Some(Condition::OneOf([text].into())),
            Comparison::Different => Some(Condition::NoneOf([text].into())),
            _ => None,
        },
        _ => None,
    }
}

fn one_of(subject: &Subject, list: &[Expr]) -> Option<Condition> {
    if let Some(texts) = texts(subject, list) {
        return Some(Condition::OneOf(texts));
    }
    let equal = list.iter().map(|item| compared(subject, Comparison::Equal, constant(item)?));
    equal.collect::<Option<_>>().map(Condition::Any)
}

fn none_of(subject: &Subject, list: &[Expr]) -> Option<Condition> {
    if let Some(texts) = texts(subject, list) {
        return Some(Condition::NoneOf(texts));
    }
    let different = list.iter().map(|item| compared(subject, Comparison::Different, constant(item)?));
    different.collect::<Option<_>>().map(Condition::All)
}

/// The texts with which a text is compared.
fn texts(subject: &Subject, list: &[Expr]) -> Option<Box<[Box<str>]>> {
    let Subject::Value(Compares::Text) = subject else { return None };
    let texts = list.iter().map(|item| match constant(item)? {
        Constant::Text(text) => Some(text),
        Constant::Number(_) => None,
    });
    texts.collect()
}

/// The elements of `ARRAY[…]`.
fn elements(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Nested(inner) => elements(inner),
        Expr::Cast { expr, data_type, .. } => {
            matches!(&*name_of(data_type), "text[]" | "character varying[]").then(|| elements(expr))?
        }
        Expr::Array(array) => Some(&array.elem),
        _ => None,
    }
}

fn constant(expr: &Expr) -> Option<Constant> {
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match constant(expr)? {
            Constant::Number(number) if !number.starts_with('-') => {
                Some(Constant::Number(format!("-{number}").into()))
            }
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => is_decimal(number).then(|| Constant::Number((&**number).into())),
            Value::SingleQuotedString(text) => Some(Constant::Text((&**text).into())),
            _ => None,
        },
        // PostgreSQL writes negative constants as texts: '-5'::integer.
        Expr::Cast { expr, data_type, .. } => match (constant(expr)?, &*name_of(data_type)) {
            (Constant::Text(text), "text" | "character varying") => Some(Constant::Text(text)),
            (Constant::Number(number) | Constant::Text(number), "smallint" | "integer" | "bigint") => {
                is_whole(&number).then_some(Constant::Number(number))
            }
            (Constant::Number(number) | Constant::Text(number), "numeric") => {
                is_decimal(&number).then_some(Constant::Number(number))
            }
            (Constant::Number(number) | Constant::Text(number), "double precision") => {
                is_whole(&number).then_some(Constant::Number(number))
            }
            _ => None,
        },
        _ => None,
    }
}

fn name_of(data_type: &sqlparser::ast::DataType) -> String {
    data_type.to_string().to_ascii_lowercase()
}

/// Whether the text is digits, optionally with a minus and a point.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits(whole) && is_digits(fraction)
}

/// Whether the text is a whole number that a double represents exactly.
fn is_whole(text: &str) -> bool {
    const DIGITS_MAX: usize = 15;
    is_decimal(text) && !text.contains('.') && text.len() <= DIGITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind, Type};

    const COMPARES: [Option<Compares>; 6] = [
        Some(Compares::Whole),
        Some(Compares::Whole),
        Some(Compares::Decimal),
        Some(Compares::Text),
        Some(Compares::Double),
        None,
    ];

    fn schema() -> Schema {
        let columns = ["id", "qty", "price", "status", "ratio", "Odd One"];
        let column = |name: &str| Column {
            name: name.into(),
            ty: Type::Bigint,
            nullable: name != "id",
            unique: false,
            indexed: false,
            fill: None,
        };
        let columns = columns.map(column).to_vec();
        Schema::new("orders", columns, 0, KeyKind::Bigint).expect("a schema")
    }

    fn postgres(sql: &str) -> Option<(usize, Condition)> {
        of_postgres(sql, &Columns { schema: &schema(), compares: &COMPARES, value: None })
    }

    fn number(comparison: Comparison, than: &str) -> Condition {
        Condition::Number(comparison, than.into())
    }

    #[test]
    fn conditions_as_postgresql_writes_them() {
        let range = |low: &str, high: &str| {
            Condition::All([number(Comparison::AtLeast, low), number(Comparison::AtMost, high)].into())
        };
        let listed = Condition::OneOf(["new".into(), "it's".into()].into());
        for (sql, expected) in [
            ("(qty > 0)", (1, number(Comparison::Greater, "0"))),
            ("((qty)::numeric > 0.5)", (1, number(Comparison::Greater, "0.5"))),
            ("(qty > '-5'::integer)", (1, number(Comparison::Greater, "-5"))),
            ("(0 < qty)", (1, number(Comparison::Greater, "0"))),
            ("((qty >= 1) AND (qty <= 100))", (1, range("1", "100"))),
            ("(price >= (0)::numeric)", (2, number(Comparison::AtLeast, "0"))),
            ("(price <> 0.50)", (2, number(Comparison::Different, "0.50"))),
            ("(ratio < (1)::double precision)", (4, number(Comparison::Less, "1"))),
            ("(status <> ''::text)", (3, Condition::NoneOf(["".into()].into()))),
            ("(status = ANY (ARRAY['new'::text, 'it''s'::text]))", (3, listed.clone())),
            (
                "((status)::text = ANY ((ARRAY['new'::character varying, 'it''s'::character varying])::text[]))",
                (3, listed.clone()),
            ),
            ("((status)::text <> ALL (ARRAY['a'::text]))", (3, Condition::NoneOf(["a".into()].into()))),
            ("(char_length((status)::text) = 6)", (3, Condition::Chars(Comparison::Equal, "6".into()))),
            (
                "((qty IS NULL) OR (qty = ANY (ARRAY[1, 2])))",
                (
                    1,
                    Condition::Any(
                        [
                            Condition::Null,
                            Condition::Any(
                                [number(Comparison::Equal, "1"), number(Comparison::Equal, "2")].into(),
                            ),
                        ]
                        .into(),
                    ),
                ),
            ),
        ] {
            assert_eq!(postgres(sql), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_is_not_certain_is_left_to_the_database() {
        for sql in [
            "(qty > id)",
            "((qty > 0) OR (price > (0)::numeric))",
            "((qty % 2) = 0)",
            "(qty IS NOT NULL)",
            "(NOT (qty = 1))",
            "(status > 'a'::text)",
            "(status ~ '^[a-z]+$'::text)",
            "(status = 'a'::citext)",
            "(status = ANY ('{a,b}'::text[]))",
            "(lower(status) = 'a'::text)",
            "(ratio < (0.1)::double precision)",
            "((price)::integer > 0)",
            "((status)::character varying(3) = 'abc'::text)",
            "(qty > (0.5)::integer)",
            "(\"Odd One\" > 0)",
            "(Qty > NULL)",
            "(octet_length(status) < 5)",
            "(qty > 0) garbage",
            "true",
            "",
        ] {
            assert_eq!(postgres(sql), None, "{sql}");
        }
    }

    #[test]
    fn a_domain_names_no_column() {
        let columns = Columns { schema: &schema(), compares: &COMPARES, value: Some(1) };
        assert_eq!(of_postgres("(VALUE > 0)", &columns), Some((1, number(Comparison::Greater, "0"))));
        assert_eq!(of_postgres("(qty > 0)", &columns), None);
    }

    #[test]
    fn conditions_as_people_write_them_for_sqlite() {
        let columns = Columns { schema: &schema(), compares: &COMPARES, value: None };
        for (sql, expected) in [
            ("QTY>0", (1, number(Comparison::Greater, "0"))),
            ("\"qty\" >= -1", (1, number(Comparison::AtLeast, "-1"))),
            ("status IN ('a', 'b')", (3, Condition::OneOf(["a".into(), "b".into()].into()))),
            ("status NOT IN ('a')", (3, Condition::NoneOf(["a".into()].into()))),
            ("length(status) <= 8", (3, Condition::Chars(Comparison::AtMost, "8".into()))),
            (
                "qty BETWEEN 1 AND 5",
                (
                    1,
                    Condition::All(
                        [number(Comparison::AtLeast, "1"), number(Comparison::AtMost, "5")].into(),
                    ),
                ),
            ),
        ] {
            assert_eq!(of_sqlite(sql, &columns), Some(expected), "{sql}");
        }
        for sql in ["status IN (\"a\")", "qty > 0 AND status <> ''", "typeof(qty) = 'integer'", "qty"] {
            assert_eq!(of_sqlite(sql, &columns), None, "{sql}");
        }
    }
}
