//! `constant`: a TOML table or a text with JSON; both become JSON text.

use crate::syntax::fields::text;
use crate::syntax::keys::{ActionKeys, action};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};
use forebay_value::json::{write_integer, write_string};

pub(crate) const CONSTANT: ActionKeys = action! {
    "constant" | "table, or JSON text" | "always gives the same answer" => {}
};

/// The JSON text of a constant: from a TOML table or from a text with JSON.
pub(crate) fn json(node: &Node) -> Result<String, Mistake> {
    if let Ok(text) = text(node) {
        return match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(format!("a text here must be JSON: {error}").into()),
        };
    }
    let mut out = Vec::new();
    write_json(node, &mut out);
    Ok(String::from_utf8(out).expect("JSON is UTF-8"))
}

fn write_json(node: &Node, out: &mut Vec<u8>) {
    match &node.data {
        Data::Text(text) => write_string(text, out),
        Data::Int(number) => write_integer(*number, out),
        Data::Float(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Data::Bool(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
        Data::Broken => out.extend_from_slice(b"null"),
        Data::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Data::Table(entries) => {
            out.push(b'{');
            for (index, entry) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(&entry.key, out);
                out.push(b':');
                write_json(&entry.node, out);
            }
            out.push(b'}');
        }
    }
}
