//! `route = "METHOD /path"`. A path declares parameters: `{name}`, and `{name...}` for the rest of the path.

use crate::syntax::fields::text;
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::Node;
use crate::syntax::words::{is_param_name, list};

/// The method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET, which also serves HEAD.
    Get,
    /// `POST /path`, only this method.
    Post,
    /// `PUT /path`, only this method.
    Put,
    /// `PATCH /path`, only this method.
    Patch,
    /// `DELETE /path`, only this method.
    Delete,
    /// `*`: all methods, permitted only for a proxy.
    Any,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 6] =
        [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Any];

    /// The name as the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Any => "*",
        }
    }
}

/// A route as the file writes it.
pub(crate) struct Route {
    pub method: Method,
    pub path: String,
}

/// The names of the parameters in a path, in order; a tail parameter without its dots.
pub(crate) fn params(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.strip_suffix("...").unwrap_or(name))
    })
}

/// Reads `METHOD /path`.
pub(crate) fn read(node: &Node) -> Result<Route, Mistake> {
    let text = text(node)?;
    let Some((method, path)) = text.trim().split_once(char::is_whitespace) else {
        return Err(format!("`{text}` must be a method and a path, such as \"GET /codes/{{id}}\"").into());
    };
    let path = path.trim();
    let Some(method) = Method::ALL.iter().find(|known| known.name() == method) else {
        return Err(match method {
            "HEAD" => "HEAD is served where GET is; write GET".into(),
            method => Mistake::from(format!(
                "{method} is not a method that a route can have ({})",
                list(Method::ALL.iter().map(|method| method.name()))
            )),
        });
    };
    let Some(segments) = path.strip_prefix('/') else {
        return Err(format!("the path `{path}` must start with /").into());
    };
    let segments = segments.split('/').collect::<Vec<_>>();
    for (index, segment) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        check_segment(segment, last).map_err(|what| format!("the path `{path}`: {what}"))?;
    }
    let mut names = params(path).collect::<Vec<_>>();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the path `{path}` has two parameters named {}", pair[0]).into());
    }
    Ok(Route { method: *method, path: path.to_owned() })
}

fn check_segment(segment: &str, last: bool) -> Result<(), Mistake> {
    let Some(inside) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        if segment.contains(['{', '}']) {
            return Err(Mistake::from(format!(
                "a parameter is a whole part between slashes, as in /{{id}}, not `{segment}`"
            )));
        }
        if segment.contains(['?', '#']) {
            return Err("the query is no part of a route; its parameters are used by name".into());
        }
        if segment.is_empty() && !last {
            return Err("two slashes in a row".into());
        }
        if segment == "." || segment == ".." {
            return Err(format!("a part `{segment}` never reaches a server").into());
        }
        return match segment.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(()),
            false => Err(format!("`{segment}` must be percent-encoded").into()),
        };
    };
    let (name, tail) = match inside.strip_suffix("...") {
        Some(name) => (name, true),
        None => (inside, false),
    };
    if !is_param_name(name) {
        return Err(
            format!("`{{{inside}}}`: a parameter is named with letters, digits and _, as in {{id}}").into()
        );
    }
    if tail && !last {
        return Err(format!("`{{{inside}}}` takes the rest of the path and must be its end").into());
    }
    Ok(())
}
