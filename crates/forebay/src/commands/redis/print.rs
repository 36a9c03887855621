//! A topology's status as a table and as JSON.

use crate::failure::Failure;
use comfy_table::{Cell, CellAlignment, Table, presets};
use forebay_terminal::answer;
use forebay_topology::{NodeStatus, Role, Running, Status};

/// One line, for scripts.
pub fn json(status: &Status) -> Result<String, Failure> {
    serde_json::to_string(status).map_err(Failure::from)
}

pub fn status(status: &Status) {
    answer!("{} of {}\n{}", status.topology, status.server, status.url);
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["node", "port", "pid", "state", "role", "slots", "keys", "lag bytes"]);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    for node in &status.nodes {
        let holds_data = node.role.is_some_and(|role| role != Role::Sentinel);
        let number = |value: String| right(if holds_data { value } else { String::new() });
        table.add_row([
            Cell::new(&node.name),
            right(node.port.to_string()),
            right(node.pid.map_or(String::new(), |pid| pid.to_string())),
            Cell::new(state(node)),
            Cell::new(role(node)),
            number(node.slots.to_string()),
            number(node.keys.to_string()),
            right(lag(status, node)),
        ]);
    }
    answer!("{table}");
}

fn state(node: &NodeStatus) -> &'static str {
    match node.running {
        Running::Up if node.role == Some(Role::Replica) && !node.in_step => "behind",
        Running::Up => "up",
        Running::Silent => "silent",
        Running::Stopped => "stopped",
        Running::Dead => "dead",
    }
}

fn role(node: &NodeStatus) -> String {
    match (node.role, &node.primary) {
        (None, _) => String::new(),
        (Some(Role::Primary), _) => "primary".into(),
        (Some(Role::Sentinel), _) => "sentinel".into(),
        (Some(Role::Replica), Some(primary)) => format!("replica of {primary}"),
        (Some(Role::Replica), None) => "replica".into(),
    }
}

/// How many bytes of its primary's stream a replica has not read.
fn lag(status: &Status, node: &NodeStatus) -> String {
    let primary = status.nodes.iter().find(|other| Some(&other.name) == node.primary.as_ref());
    primary
        .map_or(String::new(), |primary| primary.offset_bytes.saturating_sub(node.offset_bytes).to_string())
}
