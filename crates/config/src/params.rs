//! `params = { name = "bigint 1..100 = 10" }`: types, defaults, computed parameters.

use super::endpoint::is_param_name;
use super::errors::{did_you_mean, list};
use super::expr::{self, each_param};
use super::fields::Fields;
use super::model::{Constraint, Expr, Literal, Param, ParamKind, ParamType};
use super::read::{Data, Mistakes, Node};
use super::values::{literal, literal_fits};
use forebay_value::Type;

/// The most parameters that an endpoint may declare.
const PARAMS_MAX: usize = 48;
/// Types of parameters that are not types of columns.
const OWN_TYPES: &[&str] = &["url", "slug", "slug(n)"];

/// The declared parameters. `path` are those of the route.
pub(super) fn params(node: Option<&Node>, path: &[String], mistakes: &Mistakes<'_>) -> Vec<Param> {
    let Some(node) = node else { return Vec::new() };
    let entries = Fields::of(node, "params", mistakes).entries();
    if entries.len() > PARAMS_MAX {
        mistakes.add(node.at, format!("params: {PARAMS_MAX} at most"));
    }
    let mut params: Vec<Param> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let name = &entry.key;
        if !is_param_name(name) {
            mistakes.add(entry.at, format!("params: `{name}`: a name is made of letters, digits and _"));
        }
        if entry.node.data == Data::Broken {
            continue;
        }
        let kind = match kind(&entry.node) {
            Ok(kind) => kind,
            Err(what) => {
                mistakes.add(entry.node.at, format!("params.{name}: {what}"));
                continue;
            }
        };
        if let ParamKind::Given { default: Some(used), .. } | ParamKind::Computed(used) = &kind {
            each_param(used, &mut |used| {
                if entries[index..].iter().any(|later| later.key == used) {
                    let what = if used == name {
                        "itself".to_owned()
                    } else {
                        format!("${used}, which stands after it")
                    };
                    mistakes.add(entry.node.at, format!("params.{name} uses {what}"));
                }
            });
        }
        if path.contains(name) && !matches!(kind, ParamKind::Given { default: None, optional: false, .. }) {
            mistakes.add(
                entry.node.at,
                format!("params.{name}: is in the route and so always given; only its type can be declared"),
            );
        }
        params.push(Param { name: name.clone(), kind, line: mistakes.line(entry.at) });
    }
    params
}

/// `type[?] [= default]`, or an expression.
fn kind(node: &Node) -> Result<ParamKind, String> {
    let Data::Text(text) = &node.data else {
        return literal(node).map(|literal| ParamKind::Computed(Expr::Literal(literal)));
    };
    let trimmed = text.trim();
    let is_type = ["text(", "slug("].iter().any(|start| trimmed.starts_with(start));
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
    let default = default.map(|default| self::default(default, ty)).transpose()?;
    Ok(ParamKind::Given { ty, default, optional })
}

fn param_type(text: &str) -> Result<ParamType, String> {
    let (word, range) = match text.split_once(char::is_whitespace) {
        Some((word, range)) => (word, Some(range.trim())),
        None => (text, None),
    };
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
                let names = || Type::NAMES.iter().chain(OWN_TYPES).copied();
                return Err(format!(
                    "`{text}` is neither an expression nor a type{} (types: {}; a fixed text is written \"'{text}'\")",
                    did_you_mean(word, names()),
                    list(names())
                ));
            }
        },
    };
    let Some(range) = range else { return Ok(ParamType { ty, constraint }) };
    if ty != Type::Bigint {
        return Err(format!("`{range}`: only a bigint has a range"));
    }
    let bounds = range.split_once("..").and_then(|(low, high)| {
        let bound = |text: &str, open: i64| match text.trim().replace('_', "") {
            text if text.is_empty() => Some(open),
            text => text.parse::<i64>().ok(),
        };
        Some((bound(low, i64::MIN)?, bound(high, i64::MAX)?))
    });
    match bounds {
        Some((min, max)) if min <= max => Ok(ParamType { ty, constraint: Constraint::Range { min, max } }),
        _ => Err(format!("`{range}` is not a range; write 1..100, 1.. or ..100")),
    }
}

/// A default: an expression, or a value as it stands.
fn default(text: &str, ty: Option<ParamType>) -> Result<Expr, String> {
    if text.is_empty() {
        return Err("a default is missing after `=`".into());
    }
    let parsed = expr::parse(text)?;
    let Expr::Literal(Literal::Text(plain)) = &parsed else { return Ok(parsed) };
    let literal = match ty.map(|ty| ty.ty) {
        Some(Type::Bigint) => plain.replace('_', "").parse().map(Literal::Int).ok(),
        Some(Type::Double) => {
            plain.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Float)
        }
        Some(Type::Bool) => plain.parse().map(Literal::Bool).ok(),
        _ => None,
    };
    let literal = literal.unwrap_or_else(|| Literal::Text(plain.clone()));
    if let Some(ParamType { ty, constraint }) = ty {
        literal_fits(&literal, ty).map_err(|what| format!("the default: {what}"))?;
        if let (Constraint::Range { min, max }, Literal::Int(number)) = (constraint, &literal)
            && !(min..=max).contains(number)
        {
            return Err(format!("the default {number} is not in {min}..{max}"));
        }
    }
    Ok(Expr::Literal(literal))
}
