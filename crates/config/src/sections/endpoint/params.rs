//! `params = { name = "bigint 1..100 = 10" }`: types, defaults, computed parameters.

use crate::sections::table::{split_type, type_names};
use crate::sections::values::literal_fits;
use crate::syntax::expr::{self, Expr, Literal};
use crate::syntax::fields::{Cursor, literal};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};
use crate::syntax::words::{did_you_mean, is_param_name, list};
use forebay_value::Type;

/// The most parameters that an endpoint may declare.
const PARAMS_MAX: usize = 48;
/// Types of parameters that are not types of columns.
const OWN_TYPES: &[&str] = &["url", "slug", "slug(n)"];

/// A declared parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// The parameter's name in the path, the body or the query.
    pub name: String,
    /// The source of its value.
    pub kind: ParamKind,
    /// The line of its declaration; 0 when an action added it.
    pub line: usize,
}

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamKind {
    /// The request.
    Given {
        /// Its type; `None`: the type of the column or SQL parameter that it is used for, else text.
        ty: Option<ParamType>,
        /// The value when it is missing from the request.
        default: Option<Expr>,
        /// Whether it is null when it is missing (and has no default); else the answer is 400.
        optional: bool,
    },
    /// An expression, evaluated once per request.
    Computed(Expr),
}

impl ParamKind {
    /// Whether it is declared to be an array.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self, ParamKind::Given { ty: Some(ParamType { is_array: true, .. }), .. })
    }
}

/// The type of a parameter and its additional constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamType {
    /// The type of its values.
    pub ty: Type,
    /// The additional constraint.
    pub constraint: Constraint,
    /// Whether the parameter is a JSON array of such values.
    pub is_array: bool,
}

/// The constraint on a parameter in addition to its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    /// No constraint.
    None,
    /// `url`: the text must be an absolute http or https URL.
    Url,
    /// `slug`, `slug(n)`: the text must have at least one character, all of `[A-Za-z0-9_-]`.
    Slug,
    /// `bigint a..b`: a whole number in this range, both ends included (`a..` and `..b` extend to the limits
    /// of 64 bits).
    Range {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
}

/// Reads the declared parameters. `path` are those of the route.
pub(crate) fn read(cursor: Option<Cursor<'_>>, path: &[String]) -> Vec<Param> {
    let Some(cursor) = cursor else { return Vec::new() };
    let fields = cursor.table("params");
    if fields.len() > PARAMS_MAX {
        cursor.wrong(format!("params: {PARAMS_MAX} at most"));
    }
    let mut params: Vec<Param> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let name = field.key;
        if !is_param_name(name) {
            field.wrong(format!("params: `{name}`: a name is made of letters, digits and _"));
        }
        let Some(kind) = field.value.read(&format!("params.{name}"), kind) else { continue };
        if let ParamKind::Given { default: Some(used), .. } | ParamKind::Computed(used) = &kind {
            used.each_param(&mut |used| {
                if used == name {
                    field.value.wrong(format!("params.{name} uses itself"));
                } else if fields.iter().skip(index).any(|later| later.key == used) {
                    field.value.wrong(format!("params.{name} uses ${used}, which stands after it"));
                }
            });
        }
        let is_plain = matches!(kind, ParamKind::Given { default: None, optional: false, .. });
        if path.iter().any(|path| path == name) && !is_plain {
            field.value.wrong(format!(
                "params.{name}: is in the route and so always given; only its type can be declared"
            ));
        }
        if path.iter().any(|path| path == name) && kind.is_array() {
            field.value.wrong(format!("params.{name}: is in the route, where no array can be"));
        }
        params.push(Param { name: name.to_owned(), kind, line: field.value.mistakes.line(field.at) });
    }
    params
}

/// Reads `type[?] [= default]`, or an expression.
fn kind(node: &Node) -> Result<ParamKind, Mistake> {
    let Data::Text(text) = &node.data else {
        return literal(node).map(|literal| ParamKind::Computed(Expr::Literal(literal)));
    };
    let trimmed = text.trim();
    let (word, _) = split_type(trimmed);
    let is_type = trimmed.starts_with("slug(") || word.ends_with(')') && Type::parse(word).is_some();
    if !is_type && (expr::is_expression(trimmed) || trimmed.contains('{')) {
        return expr::parse(text).map(ParamKind::Computed);
    }
    let (declaration, default) = match trimmed.split_once('=') {
        Some((declaration, default)) => (declaration.trim(), Some(default.trim())),
        None => (trimmed, None),
    };
    let (declaration, optional) = match declaration.strip_suffix('?') {
        Some(declaration) => (declaration.trim(), true),
        None => (declaration, false),
    };
    if optional && default.is_some() {
        return Err("`?` and a default: one of the two (with a default it is never null)".into());
    }
    let ty = match declaration {
        "" if optional || default.is_some() => None,
        declaration => Some(param_type(declaration)?),
    };
    if default.is_some() && ty.is_some_and(|ty| ty.is_array) {
        return Err("an array has no default; with `?` it is null when it is missing".into());
    }
    let default = default.map(|default| self::default(default, ty)).transpose()?;
    Ok(ParamKind::Given { ty, default, optional })
}

fn param_type(text: &str) -> Result<ParamType, Mistake> {
    let (word, range) = split_type(text);
    let (word, range, is_array) = match (word.strip_suffix("[]"), range.strip_prefix("[]")) {
        (Some(element), _) => (element, range, true),
        (_, Some(range)) => (word, range, true),
        _ => (word, range, false),
    };
    let range = Some(range.trim()).filter(|range| !range.is_empty());
    let slug = match word.strip_prefix("slug") {
        Some("") => Some(Type::TEXT),
        Some(_) => Type::parse(&word.replacen("slug", "text", 1)),
        None => None,
    };
    let (ty, constraint) = match (word, slug) {
        ("url", _) => (Type::TEXT, Constraint::Url),
        (_, Some(ty)) => (ty, Constraint::Slug),
        (word, None) => match Type::parse(word) {
            Some(ty) => (ty, Constraint::None),
            None => {
                let names = || type_names(OWN_TYPES);
                return Err(Mistake::from(format!(
                    "`{text}` is neither an expression nor a type{} (types: {}; a fixed text is written \"'{text}'\")",
                    did_you_mean(word, names()),
                    list(names())
                )));
            }
        },
    };
    let Some(range) = range else { return Ok(ParamType { ty, constraint, is_array }) };
    let Some((least, greatest)) = ty.range() else {
        return Err(format!("`{range}`: only a whole number (bigint, integer, smallint) has a range").into());
    };
    let bounds = range.split_once("..").and_then(|(low, high)| {
        let bound = |text: &str, open: i64| match text.trim().replace('_', "") {
            text if text.is_empty() => Some(open),
            text => text.parse::<i64>().ok(),
        };
        Some((bound(low, least)?, bound(high, greatest)?))
    });
    match bounds {
        Some((min, max)) if min <= max => {
            Ok(ParamType { ty, constraint: Constraint::Range { min, max }, is_array })
        }
        _ => Err(format!("`{range}` is not a range; write 1..100, 1.. or ..100").into()),
    }
}

/// Reads a default: an expression, or a literal value.
fn default(text: &str, ty: Option<ParamType>) -> Result<Expr, Mistake> {
    if text.is_empty() {
        return Err("a default is missing after `=`".into());
    }
    let parsed = expr::parse(text)?;
    let Expr::Literal(Literal::Text(plain)) = &parsed else { return Ok(parsed) };
    let literal = match ty.map(|ty| ty.ty) {
        Some(ty) if ty.range().is_some() => plain.replace('_', "").parse().map(Literal::Int).ok(),
        Some(Type::Double) => {
            plain.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Float)
        }
        Some(Type::Bool) => plain.parse().map(Literal::Bool).ok(),
        _ => None,
    };
    let literal = literal.unwrap_or_else(|| Literal::Text(plain.clone()));
    if let Some(ParamType { ty, constraint, is_array: _ }) = ty {
        literal_fits(&literal, ty).map_err(|what| format!("the default: {what}"))?;
        if let (Constraint::Range { min, max }, Literal::Int(number)) = (constraint, &literal)
            && !(min..=max).contains(number)
        {
            return Err(format!("the default {number} is not in {min}..{max}").into());
        }
    }
    Ok(Expr::Literal(literal))
}
