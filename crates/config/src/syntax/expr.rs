//! Expressions: the meaning of a text as a value. `$name`, a function call, `a ?? b`, or text with `{…}` in
//! it; any other text is a literal.

use super::mistakes::Mistake;
use super::words::{did_you_mean, list};

/// How a value is computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `$name`: a parameter. In `Reply::fields` the column of this name in the answer's row, if it has
    /// one.
    Param(String),
    /// `$name` in `values`: the value of a column of the same row that precedes this one in `values`.
    Column(String),
    /// A fixed value.
    Literal(Literal),
    /// `function(args…)`; the number of arguments is right.
    Call {
        /// The function that is called.
        function: Function,
        /// Its arguments.
        args: Vec<Expr>,
    },
    /// `a ?? b`: the first that is not null.
    Coalesce(Box<Expr>, Box<Expr>),
    /// Text with `{…}` in it; never nested.
    Template(Vec<Part>),
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Literal text.
    Text(String),
    /// An expression whose value is inserted as text.
    Expr(Expr),
}

/// A fixed value from the file; the column or parameter that it is used for decides its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// A text without expressions in it.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Another number; finite.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

/// A value function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `uuid()`: a random (version 4) UUID.
    Uuid,
    /// `uuid7()`: a time-ordered (version 7) UUID.
    Uuid7,
    /// `now()`: the time of the request; `now(seconds)`: this many seconds later, null when `seconds` is
    /// null.
    Now,
    /// `random_base64(n)`: `n` characters of base64. The argument is a literal from 1 to 1,000,000.
    RandomBase64,
    /// `random_code(n)`: `n` characters of `[A-Za-z0-9]`. The argument is a literal from 1 to 1,000.
    RandomCode,
    /// `random_int(a,b)`: a whole number in this range, both ends included.
    RandomInt,
    /// `one_of(a,b,…)`: one of the arguments, of which there is at least one.
    OneOf,
    /// `given($p)`: whether the request contained the parameter. The argument is an [`Expr::Param`].
    Given,
    /// `base_url()`: `public_url`, or the client's scheme and the Host of the request.
    BaseUrl,
    /// `sha256(text)`: the SHA-256 of a text in hex digits.
    Sha256,
}

/// Every function: its name, itself, its call syntax, the minimum and the maximum number of arguments.
pub(crate) const FUNCTIONS: &[(&str, Function, &str, usize, usize)] = &[
    ("uuid", Function::Uuid, "uuid()", 0, 0),
    ("uuid7", Function::Uuid7, "uuid7()", 0, 0),
    ("now", Function::Now, "now(seconds)", 0, 1),
    ("random_base64", Function::RandomBase64, "random_base64(n)", 1, 1),
    ("random_code", Function::RandomCode, "random_code(n)", 1, 1),
    ("random_int", Function::RandomInt, "random_int(a, b)", 2, 2),
    ("one_of", Function::OneOf, "one_of(a, b, …)", 1, usize::MAX),
    ("given", Function::Given, "given($name)", 1, 1),
    ("base_url", Function::BaseUrl, "base_url()", 0, 0),
    ("sha256", Function::Sha256, "sha256(text)", 1, 1),
];

/// The longest text that `random_base64` produces, in characters.
const BASE64_CHARS_MAX: i64 = 1_000_000;
/// The longest text that `random_code` produces, in characters.
const CODE_CHARS_MAX: i64 = 1_000;
/// The maximum nesting depth of calls.
const DEPTH_MAX: usize = 8;
/// The maximum number of values joined by `??`.
const ALTERNATIVES_MAX: usize = 16;

/// Parses a text as an expression. The error is the rest of a message about it.
pub(crate) fn parse(text: &str) -> Result<Expr, Mistake> {
    let trimmed = text.trim();
    if is_expression(trimmed) {
        let mut parser = Parser { text: trimmed, at: 0, depth: 0 };
        let expr = parser.coalesce()?;
        return if parser.rest().is_empty() { Ok(expr) } else { Err(parser.leftover()) };
    }
    if text.contains(['{', '}']) {
        return template(text);
    }
    Ok(Expr::Literal(Literal::Text(text.to_owned())))
}

/// Whether a text is an expression and not a literal.
pub(crate) fn is_expression(text: &str) -> bool {
    let first_word = word_length(text);
    text.strip_prefix('$').is_some_and(|rest| word_length(rest) > 0)
        || (first_word > 0 && text[first_word..].starts_with('('))
        || (text.len() > 1 && text.starts_with('\'') && text.ends_with('\''))
}

/// The length of the name at the start of a text.
fn word_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// The name in `name}` or `name...}`.
fn bare_name(text: &str) -> Option<&str> {
    let (inside, _) = text.split_once('}')?;
    let name = inside.strip_suffix("...").unwrap_or(inside);
    (!name.is_empty() && word_length(name) == name.len()).then_some(inside)
}

fn template(text: &str) -> Result<Expr, Mistake> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        plain.push_str(&rest[..brace]);
        let (two, from) = (rest.get(brace..brace + 2), &rest[brace + 1..]);
        if two == Some("{{") || two == Some("}}") {
            plain.push_str(&rest[brace..=brace]);
            rest = &from[1..];
            continue;
        }
        if rest[brace..].starts_with('}') {
            return Err("`}` without `{` before it; write }} for the character itself".into());
        }
        if let Some(name) = bare_name(from) {
            return Err(Mistake::from(format!(
                "`{{{name}}}` declares a part of a route; in a text, write {{${name}}} for a value (and {{{{ for the \
                 character {{ itself)"
            )));
        }
        let mut parser = Parser { text: from, at: 0, depth: 0 };
        let expr =
            parser.coalesce().map_err(|what| format!("{what} (write {{{{ for the character {{ itself)"))?;
        let Some(after) = parser.rest().strip_prefix('}') else {
            let before = from[..parser.at].trim_end();
            return Err(match parser.rest() {
                "" => format!("`{{{before}` must end with `}}`").into(),
                _ => parser.leftover(),
            });
        };
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(Part::Expr(expr));
        rest = after;
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Expr::Literal(Literal::Text(plain)));
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(Expr::Template(parts))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// The unread rest, without leading space.
    fn rest(&mut self) -> &'a str {
        self.at = self.text.len() - self.text[self.at..].trim_start().len();
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let word = &rest[..word_length(rest)];
        self.at += word.len();
        word
    }

    fn leftover(&mut self) -> Mistake {
        let before = self.text[..self.at].trim_end().to_owned();
        let rest = self.rest();
        Mistake::from(format!(
            "`{rest}` is too much after `{before}`; what may follow is ??, and text around an expression is written \
             as \"text {{{before}}}\""
        ))
    }

    fn coalesce(&mut self) -> Result<Expr, Mistake> {
        let mut terms = vec![self.term(false)?];
        while self.take("??") {
            if terms.len() == ALTERNATIVES_MAX {
                return Err(format!("at most {ALTERNATIVES_MAX} values may be joined by ??").into());
            }
            terms.push(self.term(false)?);
        }
        let last = terms.pop().expect("there is at least one term");
        Ok(terms.into_iter().rev().fold(last, |rest, term| Expr::Coalesce(Box::new(term), Box::new(rest))))
    }

    /// Parses one value. `bare`: a word without quotes is a text, as in an argument.
    fn term(&mut self, bare: bool) -> Result<Expr, Mistake> {
        if self.take("$") {
            return match self.word() {
                "" => Err("`$` must be followed by the name of a parameter".into()),
                // A claim of the client's identity. No parameter has a name with a dot.
                "auth" if self.text[self.at..].starts_with('.') => {
                    self.at += 1;
                    match self.word() {
                        "" => {
                            Err("`$auth.` must be followed by the name of a claim, such as $auth.sub".into())
                        }
                        claim => Ok(Expr::Param(format!("auth.{claim}"))),
                    }
                }
                name => Ok(Expr::Param(name.to_owned())),
            };
        }
        let rest = self.rest();
        if rest.starts_with('\'') {
            return self.quoted();
        }
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return self.number();
        }
        match self.word() {
            "true" => Ok(Expr::Literal(Literal::Bool(true))),
            "false" => Ok(Expr::Literal(Literal::Bool(false))),
            "" => Err(Mistake::from(format!(
                "a value is missing{}; write $name, a function such as uuid(), a number or 'a text'",
                if rest.is_empty() { " at the end".to_owned() } else { format!(" before `{rest}`") }
            ))),
            name if self.text[self.at..].starts_with('(') => self.call(name),
            name if bare => Ok(Expr::Literal(Literal::Text(name.to_owned()))),
            name => {
                Err(format!("`{name}` is no value; write ${name} for a parameter, '{name}' for a text")
                    .into())
            }
        }
    }

    fn quoted(&mut self) -> Result<Expr, Mistake> {
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(quote) = rest.find('\'') else {
                return Err("a text that starts with ' must end with ' (and '' is one of them in it)".into());
            };
            text.push_str(&rest[..quote]);
            self.at += quote + 1;
            if !self.text[self.at..].starts_with('\'') {
                return Ok(Expr::Literal(Literal::Text(text)));
            }
            text.push('\'');
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Expr, Mistake> {
        let rest = self.rest();
        let end = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-' | '+');
        let word = &rest[..rest.find(end).unwrap_or(rest.len())];
        self.at += word.len();
        let digits = word.replace('_', "");
        if let Ok(number) = digits.parse() {
            return Ok(Expr::Literal(Literal::Int(number)));
        }
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Expr::Literal(Literal::Float(number))),
            _ => Err(format!("`{word}` is not a number; write '{word}' for a text").into()),
        }
    }

    fn call(&mut self, name: &str) -> Result<Expr, Mistake> {
        let signatures = || list(FUNCTIONS.iter().map(|(_, _, signature, ..)| *signature));
        let Some((_, function, signature, least, most)) = FUNCTIONS.iter().find(|known| known.0 == name)
        else {
            let near = did_you_mean(name, FUNCTIONS.iter().map(|known| known.0));
            return Err(Mistake::from(format!(
                "unknown function {name}(); there are {}; for a text write '{name}(…)'{near}",
                signatures()
            )));
        };
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("calls may stand {DEPTH_MAX} deep at most").into());
        }
        let args = self.args(signature)?;
        self.depth -= 1;
        if args.len() < *least || args.len() > *most {
            return Err(format!("{name}() has {} arguments, but is called as {signature}", args.len()).into());
        }
        check_args(*function, signature, &args)?;
        Ok(Expr::Call { function: *function, args })
    }

    fn args(&mut self, signature: &str) -> Result<Vec<Expr>, Mistake> {
        let mut args = Vec::new();
        self.take("(");
        if self.take(")") {
            return Ok(args);
        }
        loop {
            args.push(self.term(true)?);
            if self.take(")") {
                return Ok(args);
            }
            if !self.take(",") {
                return Err(format!("`,` or `)` is missing in a call of {signature}").into());
            }
        }
    }
}

fn check_args(function: Function, signature: &str, args: &[Expr]) -> Result<(), Mistake> {
    let length = |most: i64| match &args[0] {
        Expr::Literal(Literal::Int(chars)) if (1..=most).contains(chars) => Ok(()),
        _ => Err(format!("the n of {signature} must be a number from 1 to {most}").into()),
    };
    match function {
        Function::RandomBase64 => length(BASE64_CHARS_MAX),
        Function::RandomCode => length(CODE_CHARS_MAX),
        Function::RandomInt => match args {
            [Expr::Literal(Literal::Int(low)), Expr::Literal(Literal::Int(high))] if low > high => {
                Err(format!("random_int({low}, {high}): the lower bound is above the upper one").into())
            }
            args if args
                .iter()
                .any(|arg| matches!(arg, Expr::Literal(literal) if !matches!(literal, Literal::Int(_)))) =>
            {
                Err(format!("the bounds of {signature} must be whole numbers").into())
            }
            _ => Ok(()),
        },
        Function::Now if matches!(args, [Expr::Literal(literal)] if !matches!(literal, Literal::Int(_))) => {
            Err(format!("the seconds of {signature} must be a whole number or a parameter").into())
        }
        Function::Given if !matches!(args, [Expr::Param(_)]) => {
            Err(format!("{signature} wants the name of a parameter, with its $").into())
        }
        _ => Ok(()),
    }
}

impl Expr {
    /// Calls `f` for this expression and every one in it.
    pub(crate) fn each<'e>(&'e self, f: &mut dyn FnMut(&'e Expr)) {
        f(self);
        match self {
            Expr::Param(_) | Expr::Column(_) | Expr::Literal(_) => {}
            Expr::Call { args, .. } => args.iter().for_each(|arg| arg.each(f)),
            Expr::Coalesce(first, second) => [first, second].iter().for_each(|term| term.each(f)),
            Expr::Template(parts) => parts.iter().for_each(|part| {
                if let Part::Expr(expr) = part {
                    expr.each(f);
                }
            }),
        }
    }

    /// Whether a function is called in it.
    pub(crate) fn calls(&self) -> bool {
        let mut calls = false;
        self.each(&mut |expr| calls |= matches!(expr, Expr::Call { .. }));
        calls
    }

    /// Calls `f` with the name of every parameter in this expression.
    pub fn each_param<'e>(&'e self, f: &mut dyn FnMut(&'e str)) {
        self.each(&mut |expr| {
            if let Expr::Param(name) = expr {
                f(name);
            }
        });
    }

    /// Turns the parameters that `is_column` selects into columns, except those inside `given`.
    pub(crate) fn make_columns(&mut self, is_column: &dyn Fn(&str) -> bool) {
        match self {
            Expr::Param(name) if is_column(name) => *self = Expr::Column(std::mem::take(name)),
            Expr::Param(_)
            | Expr::Column(_)
            | Expr::Literal(_)
            | Expr::Call { function: Function::Given, .. } => {}
            Expr::Call { args, .. } => args.iter_mut().for_each(|arg| arg.make_columns(is_column)),
            Expr::Coalesce(first, second) => {
                [first, second].into_iter().for_each(|term| term.make_columns(is_column));
            }
            Expr::Template(parts) => parts.iter_mut().for_each(|part| {
                if let Part::Expr(expr) = part {
                    expr.make_columns(is_column);
                }
            }),
        }
    }
}
