//! API keys: the server knows only the SHA-256 of each, from a file or as the key of a hot table.
//!
//! A key is a secret with many random bits, so a single fast hash protects it as well as a slow one. The
//! lookup uses the hash of the presented key. A client cannot choose bits of the hash, so the duration of the
//! lookup reveals nothing.

use super::credentials::{CredentialVerdict, bearer, single_field};
use super::identity::{Identity, Refused};
use super::watched_file::WatchedFile;
use crate::endpoint::eval::write_text;
use crate::functions::sha256_hex;
use crate::start_error::StartError;
use forebay_http::Request;
use forebay_table::{Called, Counters, HotError, HotKind, HotTable};
use forebay_terminal::warn;
use forebay_value::{RowRef, ValueRef};
use std::collections::HashMap;
use std::sync::Arc;

/// The longest key that is accepted, in bytes.
const KEY_BYTES_MAX: usize = 512;

/// Verifies API keys.
pub struct ApiKeys {
    pub name: Arc<str>,
    pub header: String,
    pub keys: Keys,
}

/// Where the hashes are stored.
pub enum Keys {
    /// In a file, as lines `SHA-256 OWNER claim=value …`.
    File(Arc<WatchedFile<KeyFile>>),
    /// In a hot table; the index of its column of subjects.
    Table(HotTable, usize),
}

/// The owner of a key: subject and claims.
type Owner = (Box<str>, Vec<(Box<str>, Box<str>)>);
pub type KeyFile = HashMap<Box<str>, Owner>;

/// Reads a file of keys, one on each line as `SHA-256 OWNER claim=value …`; `#` begins a comment. The result
/// is indexed by the hash in lower-case hex.
pub fn read_file(text: &str) -> Result<KeyFile, StartError> {
    let mut keys = KeyFile::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(hash) = words.next() else { continue };
        let wrong = |what: &str| Err(format!("line {}: {what}", index + 1).into());
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return wrong("a key is given by its SHA-256, in 64 hex digits");
        }
        let Some(subject) = words.next() else { return wrong("the owner is missing: SHA-256 OWNER") };
        let mut claims = Vec::new();
        for word in words {
            let Some((name, value)) = word.split_once('=') else {
                return wrong("behind the owner stand claims, such as plan=pro");
            };
            claims.push((name.into(), value.into()));
        }
        if keys.insert(hash.to_ascii_lowercase().into(), (subject.into(), claims)).is_some() {
            return wrong("the key occurs twice");
        }
    }
    Ok(keys)
}

impl ApiKeys {
    /// Verifies the key that a request carries.
    pub fn verify(self: &Arc<Self>, request: &Request<'_>) -> CredentialVerdict {
        let given = if self.header.eq_ignore_ascii_case("Authorization") {
            bearer(request)
        } else {
            single_field(request, &self.header)
        };
        let given = match given {
            Ok(given) => given,
            Err(refused) => return CredentialVerdict::Refused(refused),
        };
        if given.is_empty() || given.len() > KEY_BYTES_MAX {
            return CredentialVerdict::Refused(UNKNOWN);
        }
        let hash = sha256_hex(given);
        match &self.keys {
            Keys::File(file) => match file.get().get(hash.as_str()) {
                Some((subject, claims)) => CredentialVerdict::Known(Arc::new(Identity {
                    auth: self.name.clone(),
                    subject: subject.clone(),
                    claims: claims.clone(),
                })),
                None => CredentialVerdict::Refused(UNKNOWN),
            },
            Keys::Table(table, subject) => self.look_up(table, *subject, hash),
        }
    }

    fn look_up(self: &Arc<Self>, table: &HotTable, subject: usize, hash: String) -> CredentialVerdict {
        let schema = table.schema().clone();
        let name = self.name.clone();
        let owner = move |row: RowRef<'_>| identity(&name, &schema, subject, row);
        match table.get(ValueRef::Text(&hash), Counters::Hidden, &owner) {
            Ok(Called::Now(found, _)) => {
                found.map_or(CredentialVerdict::Refused(UNKNOWN), CredentialVerdict::Known)
            }
            Ok(Called::First(needed)) => {
                let (me, table) = (self.clone(), table.clone());
                CredentialVerdict::Later(Box::pin(async move {
                    needed.await.map_err(|error| refused(&error))?;
                    match me.look_up(&table, subject, hash) {
                        CredentialVerdict::Known(identity) => Ok(identity),
                        CredentialVerdict::Refused(refused) => Err(refused),
                        CredentialVerdict::Later(later) => later.await,
                    }
                }))
            }
            Ok(Called::Later(row)) => CredentialVerdict::Later(Box::pin(async move {
                let row = row.await.map_err(|error| refused(&error))?;
                owner(row.as_ref()).ok_or(UNKNOWN)
            })),
            Err(error) => CredentialVerdict::Refused(refused(&error)),
        }
    }
}

const UNKNOWN: Refused = Refused::Invalid("the API key is not known");

fn refused(error: &HotError) -> Refused {
    match error.kind() {
        HotKind::Missing => UNKNOWN,
        _ => {
            warn!("forebay: API keys: {error}");
            Refused::Unavailable("API keys cannot be looked up now")
        }
    }
}

/// The owner from a row; the other columns are claims.
fn identity(
    auth: &Arc<str>,
    schema: &forebay_value::Schema,
    subject: usize,
    row: RowRef<'_>,
) -> Option<Arc<Identity>> {
    let text = |value: ValueRef<'_>| {
        let mut text = Vec::new();
        write_text(value, &mut text);
        String::from_utf8(text).ok()
    };
    let (mut found, mut claims) = (None, Vec::new());
    for (index, value) in row.values(schema).enumerate() {
        if index == schema.key || matches!(value, ValueRef::Null) {
            continue;
        }
        let value = text(value)?;
        if index == subject {
            found = Some(value);
        } else {
            claims.push((schema.columns[index].name.as_str().into(), value.into()));
        }
    }
    let subject = found.filter(|subject| !subject.is_empty())?.into();
    Some(Arc::new(Identity { auth: auth.clone(), subject, claims }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_keys() {
        let hash = sha256_hex(b"sesame");
        assert_eq!(hash, "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272");
        let file = format!("# keys\n\n{} ann plan=pro # hers\n", hash.to_uppercase());
        let (subject, claims) = &read_file(&file).expect("good")[hash.as_str()];
        assert_eq!((&**subject, &claims[..]), ("ann", &[("plan".into(), "pro".into())][..]));
        for (text, what) in [
            (format!("{hash}\n"), "line 1: the owner"),
            (format!("\n{hash} ann pro\n"), "line 2: behind the owner"),
            ("sesame ann".to_owned(), "64 hex digits"),
            (format!("{hash} ann\n{hash} bob"), "line 2: the key occurs twice"),
        ] {
            assert!(read_file(&text).is_err_and(|why| why.to_string().contains(what)), "{text}");
        }
    }
}
