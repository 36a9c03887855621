//! The types of a statement's parameters, as far as the statement's text shows them: `column = $name` and
//! other comparisons, and the positions in `INSERT INTO table (columns) VALUES (…)`. Any other parameter is
//! text, which the database compares by its own rules; `params` in the config can declare the type.

use crate::start_error::StartError;
use forebay_value::{Schema, Type};

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Token<'a> {
    /// A name or keyword, quotes removed.
    Word(&'a str),
    /// `$name`.
    Param(&'a str),
    /// Anything else that is not white space, a comment or a string.
    Sign(&'a str),
    /// A string or number.
    Constant,
}

/// The type of `$param`, if the statement shows it. `schemas` are the config's tables.
pub fn infer<'s>(sql: &str, param: &str, schemas: impl Iterator<Item = &'s Schema>) -> Option<Type> {
    let tokens = tokenize(sql);
    let mentioned: Vec<&Schema> =
        schemas.filter(|schema| tokens.iter().any(|token| is_word(*token, &schema.name))).collect();
    let type_of = |column: &str| {
        mentioned.iter().find_map(|schema| {
            schema.columns.iter().find(|c| c.name.eq_ignore_ascii_case(column)).map(|column| column.ty)
        })
    };
    compared(&tokens, param, &type_of).or_else(|| inserted(&tokens, param, &type_of))
}

/// Checks that no two columns of a result have one name: JSON would show the first one's value for both.
///
/// # Errors
/// The names that occur twice.
pub fn check_names<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), StartError> {
    let (mut seen, mut twice) = (Vec::new(), Vec::new());
    for name in names {
        let list = if seen.contains(&name) { &mut twice } else { &mut seen };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    if twice.is_empty() {
        return Ok(());
    }
    let twice = twice.join("`, `");
    Err(format!("the statement returns several columns named `{twice}`: give each its own name (AS)").into())
}

/// The names of a statement's parameters, each once, in the order of their first use.
pub fn params(sql: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for token in tokenize(sql) {
        if let Token::Param(name) = token
            && !name.is_empty()
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

fn is_word(token: Token<'_>, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.eq_ignore_ascii_case(word))
}

fn compared(tokens: &[Token<'_>], param: &str, type_of: &impl Fn(&str) -> Option<Type>) -> Option<Type> {
    let is_comparison = |token: Token<'_>| {
        matches!(token, Token::Sign("=" | "<" | ">" | "<=" | ">=" | "<>" | "!=" | "=="))
            || is_word(token, "like")
    };
    tokens.windows(3).find_map(|three| match *three {
        [Token::Word(column), sign, Token::Param(name)] if name == param && is_comparison(sign) => {
            type_of(column)
        }
        [Token::Param(name), sign, Token::Word(column)] if name == param && is_comparison(sign) => {
            type_of(column)
        }
        _ => None,
    })
}

fn inserted(tokens: &[Token<'_>], param: &str, type_of: &impl Fn(&str) -> Option<Type>) -> Option<Type> {
    let values = tokens.iter().position(|token| is_word(*token, "values"))?;
    let open = tokens[..values].iter().position(|token| *token == Token::Sign("("))?;
    let columns: Vec<&str> = tokens[open..values]
        .iter()
        .filter_map(|token| if let Token::Word(name) = token { Some(*name) } else { None })
        .collect();
    let (mut place, mut depth) = (0, 0);
    for (index, token) in tokens[values + 1..].iter().enumerate() {
        match *token {
            Token::Sign("(") => depth += 1,
            Token::Sign(")") if depth == 1 => (depth, place) = (0, 0),
            Token::Sign(")") => depth -= 1,
            Token::Sign(",") if depth == 1 => place += 1,
            // Only a parameter that is the whole value has the column's type.
            Token::Param(name) if name == param && depth == 1 => {
                let next = tokens.get(values + 2 + index);
                if matches!(next, Some(Token::Sign("," | ")"))) {
                    return type_of(columns.get(place)?);
                }
            }
            _ => {}
        }
    }
    None
}

fn tokenize(sql: &str) -> Vec<Token<'_>> {
    let bytes = sql.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        let end_of_name =
            |from: usize| from + bytes[from..].iter().take_while(|&&byte| is_name(byte)).count();
        at = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at += bytes[at..].iter().take_while(|&&byte| byte != b'\n').count();
                continue;
            }
            b'\'' => {
                tokens.push(Token::Constant);
                at += 2 + bytes[at + 1..].iter().take_while(|&&byte| byte != b'\'').count();
                continue;
            }
            b'"' => {
                let end = at + 1 + bytes[at + 1..].iter().take_while(|&&byte| byte != b'"').count();
                tokens.push(Token::Word(&sql[at + 1..end.min(sql.len())]));
                at = end + 1;
                continue;
            }
            b'$' => {
                let end = end_of_name(at + 1);
                tokens.push(Token::Param(&sql[at + 1..end]));
                end
            }
            byte if byte.is_ascii_digit() => {
                tokens.push(Token::Constant);
                end_of_name(at)
            }
            byte if is_name(byte) => {
                let end = end_of_name(at);
                tokens.push(Token::Word(&sql[start..end]));
                end
            }
            b'<' | b'>' | b'!' | b'=' => {
                let end = at + 1 + usize::from(matches!(bytes.get(at + 1), Some(b'=' | b'>')));
                tokens.push(Token::Sign(&sql[start..end]));
                end
            }
            _ => {
                tokens.push(Token::Sign(&sql[start..start + 1]));
                at + 1
            }
        };
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{Column, KeyKind};

    #[test]
    fn types_that_statements_show() {
        let column = |name: &str, ty| Column {
            name: name.into(),
            ty,
            nullable: true,
            unique: false,
            indexed: false,
            fill: None,
        };
        let id = Column { nullable: false, ..column("id", Type::Uuid) };
        let columns = vec![id, column("n", Type::Bigint), column("at", Type::Timestamp)];
        let schema = Schema::new("t", columns, 0, KeyKind::Uuid).unwrap();
        for (sql, param, expected) in [
            ("SELECT * FROM t WHERE id = $x", "x", Some(Type::Uuid)),
            ("SELECT * FROM t WHERE t.n >= $x AND 'id = $y' = $y", "x", Some(Type::Bigint)),
            ("SELECT * FROM t WHERE 'id = $y' = $y", "y", None),
            ("SELECT * FROM t WHERE $x < \"n\"", "x", Some(Type::Bigint)),
            ("SELECT $x AS name, count(*) FROM t", "x", None),
            ("INSERT INTO t (id, n, at) VALUES ($a, abs($b), $c)", "a", Some(Type::Uuid)),
            ("INSERT INTO t (id, n, at) VALUES ($a, abs($b), $c)", "b", None),
            ("INSERT INTO t (id, n, at) VALUES ($a, abs($b), $c) RETURNING id", "c", Some(Type::Timestamp)),
            ("INSERT INTO t (id, n) VALUES (1, 2), ($a, $b)", "b", Some(Type::Bigint)),
            ("UPDATE t SET n = $n -- id = $x\n WHERE id = $id", "x", None),
            ("UPDATE t SET n = $n WHERE id = $id", "id", Some(Type::Uuid)),
            ("SELECT * FROM other WHERE id = $x", "x", None),
            ("SELECT 'unfinished", "x", None),
            ("SELECT \"unfinished", "x", None),
        ] {
            assert_eq!(infer(sql, param, std::iter::once(&schema)), expected, "{sql}: {param}");
        }
    }
}
