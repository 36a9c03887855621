//! Arrays: PostgreSQL's binary form as JSON and back.
//!
//! ```text
//! array   := dimensions: i32, has_nulls: i32, element type: u32, (length: i32, lower bound: i32)*, element*
//! element := length: i32 (-1: NULL), bytes
//! ```
//! Elements are in row-major order (`array_send` in PostgreSQL's `src/backend/utils/adt/arrayfuncs.c`). Lower
//! bounds other than 1 are lost: JSON cannot express them.

use super::encoded::{EncodeError, Encoded};
use forebay_value::{Value, array};

/// PostgreSQL's own limit (MAXDIM).
const DIMENSIONS_MAX: usize = 6;

/// Reads an array as JSON; `None` when the bytes are not an array. `element` appends an element that is not
/// NULL as JSON.
pub(super) fn decode(bytes: &[u8], element: &impl Fn(&[u8], &mut Vec<u8>) -> Option<()>) -> Option<Value> {
    let mut rest = bytes;
    let dimensions = usize::try_from(take(&mut rest)?).ok().filter(|&count| count <= DIMENSIONS_MAX)?;
    take(&mut rest)?;
    take(&mut rest)?;
    let mut lengths = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        lengths.push(usize::try_from(take(&mut rest)?).ok()?);
        take(&mut rest)?;
    }
    // Each element has a length of four bytes: this bounds the output for a damaged array.
    let count = lengths.iter().try_fold(1usize, |count, length| count.checked_mul(*length))?;
    if count > rest.len() / size_of::<i32>() && !lengths.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    if lengths.is_empty() || count == 0 {
        out.extend_from_slice(b"[]");
    } else {
        write(&lengths, &mut rest, &mut out, element)?;
    }
    Some(Value::Json(String::from_utf8(out).ok()?.into()))
}

fn take(rest: &mut &[u8]) -> Option<i32> {
    let (four, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(i32::from_be_bytes(*four))
}

fn write(
    lengths: &[usize],
    rest: &mut &[u8],
    out: &mut Vec<u8>,
    element: &impl Fn(&[u8], &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    out.push(b'[');
    for index in 0..lengths[0] {
        if index > 0 {
            out.push(b',');
        }
        if lengths.len() > 1 {
            write(&lengths[1..], rest, out, element)?;
            continue;
        }
        let length = take(rest)?;
        if length < 0 {
            out.extend_from_slice(b"null");
        } else {
            let (bytes, after) = rest.split_at_checked(length as usize)?;
            *rest = after;
            element(bytes, out)?;
        }
    }
    out.push(b']');
    Some(())
}

/// Appends a JSON array as a PostgreSQL array with elements of the type `oid`. `element` appends an element
/// given as JSON; it returns false for null.
pub(super) fn encode(
    oid: u32,
    json: &str,
    out: &mut impl Encoded,
    element: impl Fn(&str, &mut Vec<u8>) -> Result<bool, EncodeError>,
) -> Result<(), EncodeError> {
    let mut elements = Vec::new();
    let mut has_nulls = false;
    let lengths = array::flatten(json, |raw| -> Result<(), EncodeError> {
        let start = elements.len();
        elements.extend_from_slice(&[0; 4]);
        let is_value = element(raw, &mut elements).map_err(|what| format!("each element {what}"))?;
        has_nulls |= !is_value;
        let length = if is_value { (elements.len() - start - 4) as i32 } else { -1 };
        elements[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    })?;
    out.put(&(lengths.len() as i32).to_be_bytes());
    out.put(&i32::from(has_nulls).to_be_bytes());
    out.put(&oid.to_be_bytes());
    for length in &lengths {
        out.put(&(*length as i32).to_be_bytes());
        out.put(&1i32.to_be_bytes());
    }
    out.put(&elements);
    Ok(())
}
