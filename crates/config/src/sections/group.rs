//! `[group.NAME]` and `[upstream.NAME]`: keys that several endpoints share, copied into each of them before
//! they are read.
//!
//! Promises that a key from a group is read as if it were in the endpoint: a mistake in it is reported at
//! the group's line and names the group and the route.

use super::action::ACTIONS;
use crate::syntax::fields::Cursor;
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::{At, Mistakes};
use crate::syntax::tree::{Data, KeyValue, Node};
use crate::syntax::words::{did_you_mean, list};

pub(crate) const GROUP: Section = Section {
    name: "[group.NAME]",
    keys: keys! {
        "prefix" | "path" | "(nothing)" | "the part before the path of each route, such as `/api`"
        "upstream" | "name" | "" | "the `[upstream.NAME]` of endpoints without an action"
        "guard" | "guard" | "(that of [server])" | "as in [[endpoint]], like the keys below"
        "csrf" | "true or false" | "false" | ""
        "rate" | "text" | "(no limit)" | "each endpoint counts separately"
        "cache" | "table" | "(none)" | "only for endpoints of GET and `*`"
        "cors" | "table, or false" | "(that of [server])" | ""
        "answer_headers" | "table: header = text" | "{}" | "in addition to those of [server]"
        "security_headers" | "true or false" | "(that of [server])" | ""
        "encoded_slash" | "\"refuse\" or \"pass\"" | "\"refuse\"" | ""
        "timeout" | "time" | "\"30s\"" | ""
        "concurrency" | "number" | "1000" | ""
        "compress" | "true or false" | "false" | ""
    },
};

pub(crate) const UPSTREAM: Section = Section {
    name: "[upstream.NAME]",
    keys: keys! {
        "url" | "URL, or array of URLs" | "" |
            "as `proxy` of an endpoint; the keys below are those beside `proxy`"
        "connect_timeout" | "time" | "\"60s\"" | ""
        "ca" | "path" | "(those of the system)" | ""
        "silence_timeout" | "time" | "(none)" | ""
        "tunnel_timeout" | "time" | "\"10m\"" | ""
        "retries" | "number" | "1" | ""
        "health" | "path" | "(no checks)" | ""
        "host" | "\"client\" or \"upstream\"" | "\"client\"" | ""
        "forwarded" | "\"replace\" or \"append\"" | "\"replace\"" | ""
        "keep_headers" | "array of header names" | "[]" | ""
        "pass_credentials" | "true or false" | "false" | ""
        "request_headers" | "table: header = text" | "{}" | ""
        "strip_prefix" | "path" | "(nothing)" | ""
        "body" | "size" | "\"1GiB\"" | ""
        "timeout" | "time" | "\"2m\"" | ""
    },
};

/// A `[group.NAME]` or `[upstream.NAME]`, as typed.
struct NamedGroup<'a> {
    name: &'a str,
    node: &'a Node,
}

/// The places of the group values in an endpoint, each with the name of the group for messages.
pub(crate) type GroupPlaces = Vec<(At, String)>;

/// Copies the groups and upstreams that endpoints name into the endpoints. Returns the copied places for
/// each endpoint.
pub(crate) fn expand(root: &mut Node, mistakes: &Mistakes<'_>) -> Vec<GroupPlaces> {
    let (groups, upstreams) = (root.get("group").cloned(), root.get("upstream").cloned());
    let groups = named("group", groups.as_ref(), &GROUP, mistakes);
    let upstreams = named("upstream", upstreams.as_ref(), &UPSTREAM, mistakes);
    for upstream in upstreams.iter().filter(|upstream| upstream.node.get("url").is_none()) {
        mistakes.add(upstream.node.at, format!("[upstream.{}] needs `url`", upstream.name));
    }
    let Data::Table(top) = &mut root.data else { return Vec::new() };
    top.retain(|entry| !["group", "upstream"].contains(&entry.key.as_str()));
    let endpoints = top.iter_mut().find(|entry| entry.key == "endpoint").map(|entry| &mut entry.node.data);
    let Some(Data::Array(endpoints)) = endpoints else { return Vec::new() };
    let expand = |endpoint: &mut Node| {
        let mut shared = GroupPlaces::new();
        if let Data::Table(entries) = &mut endpoint.data {
            if let Some((_, group)) = taken("group", entries, &groups, mistakes) {
                take_group(entries, group, &mut shared, mistakes);
            }
            if let Some((at, upstream)) = taken("upstream", entries, &upstreams, mistakes) {
                take_upstream(entries, upstream, at, &mut shared, mistakes);
            }
        }
        shared
    };
    endpoints.iter_mut().map(expand).collect()
}

/// The tables below `[kind.NAME]`.
fn named<'a>(
    kind: &str,
    node: Option<&'a Node>,
    section: &'static Section,
    mistakes: &Mistakes<'_>,
) -> Vec<NamedGroup<'a>> {
    let Some(node) = node else { return Vec::new() };
    let Data::Table(entries) = &node.data else {
        mistakes.add(node.at, format!("{kind}: write [{kind}.NAME], a table for each"));
        return Vec::new();
    };
    for KeyValue { node, .. } in entries {
        Cursor { node, mistakes }.section(section);
    }
    entries.iter().map(|KeyValue { key, node, .. }| NamedGroup { name: key, node }).collect()
}

/// Removes a key from an endpoint; returns the place of the key and the group or upstream that it names.
fn taken<'n, 'a>(
    kind: &str,
    entries: &mut Vec<KeyValue>,
    known: &'n [NamedGroup<'a>],
    mistakes: &Mistakes<'_>,
) -> Option<(At, &'n NamedGroup<'a>)> {
    let index = entries.iter().position(|entry| entry.key == kind)?;
    let KeyValue { node, at, .. } = entries.remove(index);
    let Data::Text(name) = &node.data else {
        mistakes.add(node.at, format!("{kind}: must be the name of a [{kind}.NAME]"));
        return None;
    };
    let found = known.iter().find(|known| known.name == name);
    if found.is_none() {
        let names = || known.iter().map(|known| known.name);
        let near = did_you_mean(name, names());
        let there = if known.is_empty() { "none".to_owned() } else { list(names()) };
        mistakes.add(node.at, format!("{kind}: there is no [{kind}.{name}]{near} (there are: {there})"));
    }
    found.map(|found| (at, found))
}

/// Copies every key of the group that the endpoint lacks, and puts the group's prefix before the route.
fn take_group(
    entries: &mut Vec<KeyValue>,
    group: &NamedGroup<'_>,
    shared: &mut GroupPlaces,
    mistakes: &Mistakes<'_>,
) {
    let Data::Table(common) = &group.node.data else { return };
    let mut is_get = true;
    if let Some(Data::Text(route)) =
        entries.iter_mut().find(|entry| entry.key == "route").map(|e| &mut e.node.data)
    {
        is_get = route.starts_with("GET ") || route.starts_with("* ");
        if let Some(prefix) = group.node.get("prefix") {
            match &prefix.data {
                Data::Text(prefix) if prefix.starts_with('/') && !prefix.ends_with('/') => {
                    put_before(prefix, route)
                }
                _ => mistakes.add(
                    prefix.at,
                    "prefix: must be a path such as \"/api\": with / in front and none at its end",
                ),
            }
        }
    }
    let is_common =
        |entry: &&KeyValue| entry.key != "prefix" && GROUP.keys.iter().any(|key| key.name == entry.key);
    for entry in common.iter().filter(is_common) {
        let is_own = entries.iter().any(|own| own.key == entry.key)
            || (entry.key == "cache" && !is_get)
            || (entry.key == "upstream" && has_action(entries));
        if !is_own {
            mark(&entry.node, &format!("[group.{}]", group.name), shared);
            entries.push(entry.clone());
        }
    }
}

/// Whether an endpoint has its own action.
fn has_action(entries: &[KeyValue]) -> bool {
    ACTIONS.iter().any(|known| entries.iter().any(|entry| entry.key == known.action.name))
}

/// `GET /me` and `/api` become `GET /api/me`. The group's own path is `GET /`.
fn put_before(prefix: &str, route: &mut String) {
    if let Some((method, path)) = route.trim().split_once(char::is_whitespace) {
        let path = path.trim();
        *route = format!("{method} {prefix}{}", if path == "/" { "" } else { path });
    }
}

/// Copies the keys of an upstream: `proxy`, time-outs and retries.
fn take_upstream(
    entries: &mut Vec<KeyValue>,
    upstream: &NamedGroup<'_>,
    at: At,
    shared: &mut GroupPlaces,
    mistakes: &Mistakes<'_>,
) {
    let Data::Table(common) = &upstream.node.data else { return };
    if has_action(entries) {
        mistakes.add(at, "upstream: the endpoint has an action of its own");
        return;
    }
    for entry in common.iter().filter(|entry| UPSTREAM.keys.iter().any(|key| key.name == entry.key)) {
        if entries.iter().any(|own| own.key == entry.key) {
            continue;
        }
        mark(&entry.node, &format!("[upstream.{}]", upstream.name), shared);
        let key = if entry.key == "url" { "proxy" } else { &entry.key };
        entries.push(KeyValue { key: key.to_owned(), ..entry.clone() });
    }
}

/// Records the places of a value that comes from a group.
fn mark(node: &Node, name: &str, shared: &mut GroupPlaces) {
    shared.push((node.at, name.to_owned()));
    match &node.data {
        Data::Array(items) => items.iter().for_each(|item| mark(item, name, shared)),
        Data::Table(entries) => {
            for entry in entries {
                shared.push((entry.at, name.to_owned()));
                mark(&entry.node, name, shared);
            }
        }
        _ => {}
    }
}
