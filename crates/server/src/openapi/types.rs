//! Types of parameters and columns as JSON Schema.

use crate::endpoint::params::{Check, ParamPlan};
use forebay_value::Type;
use serde_json::{Value, json};

/// The longest URL that a parameter accepts, in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The schema of what a request may give for a parameter.
pub fn given_as(plan: &ParamPlan) -> Value {
    let schema = given(plan.ty, plan.check);
    if plan.is_array { json!({ "type": "array", "items": schema }) } else { schema }
}

/// The schema of one given value.
fn given(ty: Type, check: Check) -> Value {
    match (ty, check) {
        (_, Check::Url) => {
            json!({ "type": "string", "format": "uri", "pattern": "^https?://", "maxLength": URL_BYTES_MAX })
        }
        (Type::Text { max_chars }, Check::Slug) => {
            let mut schema = json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]+$" });
            bound(&mut schema, max_chars);
            schema
        }
        (ty, Check::Range(min, max)) => {
            let mut schema = answered(ty);
            (schema["minimum"], schema["maximum"]) = (min.into(), max.into());
            schema
        }
        // A string keeps every digit.
        (Type::Decimal { precision, scale }, _) => {
            let whole = precision - scale;
            let fraction = if scale > 0 { format!("(\\.[0-9]{{1,{scale}}})?") } else { String::new() };
            let whole = if whole > 0 { format!("[0-9]{{1,{whole}}}") } else { "0".to_owned() };
            json!({ "type": "string", "pattern": format!("^-?{whole}{fraction}$") })
        }
        (Type::Text { max_chars }, _) => {
            let mut schema = json!({ "type": "string", "pattern": "^[^\\u0000]*$" });
            bound(&mut schema, max_chars);
            schema
        }
        (ty, _) => answered(ty),
    }
}

/// The schema of a column's values in answers.
pub fn answered(ty: Type) -> Value {
    match ty {
        Type::Bool => json!({ "type": "boolean" }),
        Type::Smallint | Type::Integer | Type::Bigint => {
            let (min, max) = ty.range().expect("a type of whole numbers");
            let mut schema = json!({ "type": "integer", "minimum": min, "maximum": max });
            if ty == Type::Bigint {
                schema["format"] = "int64".into();
            }
            schema
        }
        Type::Double => json!({ "type": "number", "format": "double" }),
        Type::Numeric | Type::Decimal { .. } => json!({ "type": "number" }),
        Type::Text { max_chars } => {
            let mut schema = json!({ "type": "string" });
            bound(&mut schema, max_chars);
            schema
        }
        // A form of the database's own.
        Type::LocalTimestamp | Type::AsText => json!({ "type": "string" }),
        Type::Uuid => json!({ "type": "string", "format": "uuid" }),
        Type::Timestamp => json!({ "type": "string", "format": "date-time" }),
        Type::Json => json!({}),
        Type::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
    }
}

/// The schema, or null.
pub fn or_null(mut schema: Value) -> Value {
    if let Some(ty) = schema.get("type").and_then(Value::as_str) {
        schema["type"] = json!([ty, "null"]);
    }
    schema
}

fn bound(schema: &mut Value, max_chars: Option<u32>) {
    if let Some(max_chars) = max_chars {
        schema["maxLength"] = max_chars.into();
    }
}
