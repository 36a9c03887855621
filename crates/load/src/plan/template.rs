//! Texts with placeholders: `{uuid()}`, `{random_int(1,1000)}`, `{client_int(1,1000)}`,
//! `{pick(a,b)}`, `{row(file.csv,col)}`, `{env(NAME)}`.
//!
//! A brace that does not begin `{name(` is literal, so that JSON needs no escapes.

use super::rows::Rows;
use crate::mistyped::Mistyped;
use crate::units::nearest;
use rand::Rng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

const FUNCTIONS: [&str; 6] = ["uuid", "random_int", "client_int", "pick", "row", "env"];

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum TemplatePart {
    Text(Vec<u8>),
    Uuid,
    Integer {
        low: i64,
        span: u64,
    },
    /// The same for every request of a client.
    ClientInteger {
        low: i64,
        span: u64,
    },
    Pick(Vec<String>),
    /// A column of a file, by the indexes of both.
    Row {
        file: usize,
        column: usize,
    },
}

/// A text with placeholders.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Template {
    parts: Vec<TemplatePart>,
}

/// A uniform random number below `span`, with a bias of at most 1 in 2^64 (Lemire's
/// multiplication).
pub(super) fn below(random: &mut SmallRng, span: u64) -> u64 {
    scaled(random.next_u64(), span)
}

fn scaled(number: u64, span: u64) -> u64 {
    ((u128::from(number) * u128::from(span)) >> 64) as u64
}

impl Template {
    /// Parses a text; the files that it names are in `folder` and are read into `rows`.
    pub fn parse(text: &str, folder: &Path, rows: &mut Vec<Rows>) -> Result<Template, Mistyped> {
        let mut template = Template::default();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let Some((name, arguments, behind)) = call(&rest[at + 1..])? else {
                template.text(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            };
            template.text(&rest[..at]);
            template.parts.push(part(name, arguments, folder, rows)?);
            rest = behind;
        }
        template.text(rest);
        Ok(template)
    }

    fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(TemplatePart::Text(before)) => before.extend_from_slice(text.as_bytes()),
            _ => self.parts.push(TemplatePart::Text(text.as_bytes().to_vec())),
        }
    }

    /// Whether the text has no placeholders.
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TemplatePart::Text(_)))
    }

    /// Whether `rows` contains the files and columns that the template names.
    pub fn is_sound(&self, rows: &[Rows]) -> bool {
        self.parts.iter().all(|part| match part {
            TemplatePart::Pick(choices) => !choices.is_empty(),
            TemplatePart::Row { file, column } => {
                rows.get(*file).is_some_and(|rows| *column < rows.columns())
            }
            TemplatePart::Text(_)
            | TemplatePart::Uuid
            | TemplatePart::Integer { .. }
            | TemplatePart::ClientInteger { .. } => true,
        })
    }

    /// Whether every value that can be filled in is a single line, as URLs and fields require.
    pub fn is_one_line(&self, rows: &[Rows]) -> bool {
        let clean = |bytes: &[u8]| !bytes.iter().any(|byte| *byte < b' ' || *byte == 0x7f);
        self.parts.iter().all(|part| match part {
            TemplatePart::Text(text) => clean(text),
            TemplatePart::Pick(choices) => choices.iter().all(|choice| clean(choice.as_bytes())),
            TemplatePart::Row { file, column } => {
                rows[*file].column(*column).all(|value| clean(value.as_bytes()))
            }
            TemplatePart::Uuid | TemplatePart::Integer { .. } | TemplatePart::ClientInteger { .. } => true,
        })
    }

    /// Appends the text with its placeholders filled. `chosen` is the row of each file for this
    /// request; `client` is the number of its client.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        random: &mut SmallRng,
        rows: &[Rows],
        chosen: &[usize],
        client: u64,
    ) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Uuid => {
                    let bytes =
                        (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())).to_be_bytes();
                    let mut buffer = uuid::Uuid::encode_buffer();
                    let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
                    out.extend_from_slice(id.hyphenated().encode_lower(&mut buffer).as_bytes());
                }
                TemplatePart::Integer { low, span } => {
                    let value = low.wrapping_add_unsigned(below(random, *span));
                    // Writing into memory does not fail.
                    let _ = write!(out, "{value}");
                }
                TemplatePart::ClientInteger { low, span } => {
                    let value = low.wrapping_add_unsigned(scaled(client, *span));
                    // Writing into memory does not fail.
                    let _ = write!(out, "{value}");
                }
                TemplatePart::Pick(choices) => {
                    let place = below(random, choices.len() as u64) as usize;
                    out.extend_from_slice(choices[place].as_bytes());
                }
                TemplatePart::Row { file, column } => {
                    out.extend_from_slice(rows[*file].value(chosen[*file], *column).as_bytes());
                }
            }
        }
    }
}

/// Splits `name(arguments)}` at the start of `text` into name, arguments and the rest; `None` when
/// `text` begins otherwise.
fn call(text: &str) -> Result<Option<(&str, &str, &str)>, Mistyped> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(rest) = rest.strip_prefix('(').filter(|_| !name.is_empty()) else { return Ok(None) };
    match rest.split_once(")}") {
        Some((arguments, behind)) => Ok(Some((name, arguments, behind))),
        None => Err(format!("`{{{name}(` has no `)}}` behind it").into()),
    }
}

fn part(name: &str, arguments: &str, folder: &Path, rows: &mut Vec<Rows>) -> Result<TemplatePart, Mistyped> {
    let list: Vec<&str> = arguments.split(',').map(str::trim).collect();
    match (name, list.as_slice()) {
        ("uuid", [""]) => Ok(TemplatePart::Uuid),
        ("random_int" | "client_int", [low, high]) => {
            let parse =
                |text: &str| text.parse::<i64>().map_err(|_| format!("`{text}` is not a whole number"));
            let (low, high) = (parse(low)?, parse(high)?);
            if low > high {
                return Err(format!("{name}({low},{high}): the first must not be above the second").into());
            }
            let span = low.abs_diff(high).saturating_add(1);
            Ok(if name == "random_int" {
                TemplatePart::Integer { low, span }
            } else {
                TemplatePart::ClientInteger { low, span }
            })
        }
        ("pick", choices) if choices.iter().all(|choice| !choice.is_empty()) => {
            Ok(TemplatePart::Pick(choices.iter().map(ToString::to_string).collect()))
        }
        ("row", [file, column]) => {
            let path = folder.join(file);
            let place = match rows.iter().position(|known| known.path() == path) {
                Some(place) => place,
                None => {
                    rows.push(Rows::read(&path)?);
                    rows.len() - 1
                }
            };
            Ok(TemplatePart::Row { file: place, column: rows[place].find(column)? })
        }
        ("env", [variable, default @ ..]) if !variable.is_empty() && default.len() < 2 => {
            let value = std::env::var(variable).ok().or_else(|| default.first().map(ToString::to_string));
            let missing = || {
                format!(
                    "env({variable}): it is not set; write env({variable},DEFAULT) for one that may be missing"
                )
                .into()
            };
            value.map(|value| TemplatePart::Text(value.into_bytes())).ok_or_else(missing)
        }
        ("uuid" | "random_int" | "client_int" | "pick" | "row" | "env", _) => Err(format!(
            "{name}({arguments}): write uuid(), random_int(1,1000), client_int(1,1000), pick(a,b), row(file.csv,column) or env(NAME)"
        )
        .into()),
        _ => Err(match nearest(name, &FUNCTIONS) {
            Some(near) => format!("no function `{name}`; did you mean `{near}`?"),
            None => format!("no function `{name}`; there are {}", FUNCTIONS.join(", ")),
        }
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn render(text: &str) -> String {
        let template = Template::parse(text, Path::new("."), &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        template.write(&mut out, &mut SmallRng::seed_from_u64(7), &[], &[], 1 << 63);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn holes() {
        assert_eq!(render("{\"a\":{\"b\":1}}"), "{\"a\":{\"b\":1}}");
        assert_eq!(render("{pick(x)}{random_int(5,5)}!"), "x5!");
        assert_eq!(
            render("?home={env(CARGO_PKG_NAME)}&none={env(NOT_SET,)}&a={env(NOT_SET,b)}"),
            "?home=forebay-load&none=&a=b"
        );
        assert_eq!(render("{client_int(1,100)} {client_int(1,100)}"), "51 51");
        assert_eq!(render("/{uuid()}").len(), 37);
        for _ in 0..100 {
            let value: i64 = render("{random_int(-2,2)}").parse().unwrap();
            assert!((-2..=2).contains(&value));
        }
        for (text, why) in [
            ("{uid()}", "did you mean `uuid`?"),
            ("{uuid(1)}", "write uuid()"),
            ("{random_int(2,1)}", "must not be above"),
            ("{random_int(a,1)}", "not a whole number"),
            ("{uuid(", "no `)}`"),
            ("{row(nothing.csv,a)}", "nothing.csv"),
        ] {
            let error = Template::parse(text, Path::new("."), &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn every_choice_is_taken() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut seen = [0; 3];
        for _ in 0..3000 {
            seen[below(&mut random, 3) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
    }
}
