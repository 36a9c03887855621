//! `[auth.NAME]`: how clients authenticate. Guards refer to these sections by name.

use super::table::TableConfig;
use crate::syntax::fields::{
    Cursor, Field, Fields, check_header_name, choice, milliseconds_or_none, name, text,
};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};
use crate::syntax::words::{did_you_mean, is_param_name, list};
use std::path::PathBuf;

/// The shortest secret of HS256, in bytes: as long as its hash (RFC 7518 section 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// The default tolerance for the clocks of token issuers.
const LEEWAY_MS: u64 = 30_000;

pub(crate) const AUTH: Section = Section {
    name: "[auth.NAME]",
    keys: keys! {
        "kind" | "\"key\", \"jwt\" or \"basic\"" | "" |
            "what clients send: an API key, a signed token (`Authorization: Bearer`), or a name and a \
            password"
        "file" | "path" | "" |
            "`key`: a line `SHA-256 OWNER` for each key; `basic`: a line `NAME:BCRYPT` for each name; read again when \
            it changes"
        "table" | "table" | "" | "`key`: instead of a file, a hot table whose key is the SHA-256 of the API key in hex"
        "subject" | "column or claim" | "\"sub\"" |
            "the source of `$auth.sub`: with `key` and a table, a column; with `jwt`, a claim"
        "header" | "name" | "\"X-Api-Key\"" |
            "`key`: the header field that contains the API key; Authorization: as `Bearer KEY`"
        "algorithms" | "HS256, RS256, ES256, EdDSA, or an array of them" | "" |
            "`jwt`: the permitted signature algorithms"
        "secret" | "text" | "" | "`jwt`: the secret of HS256, usually \"${VARIABLE}\"; at least 32 bytes"
        "public_key" | "path" | "" | "`jwt`: instead of `secret`, a PEM file with a public key"
        "jwks" | "URL or path" | "" |
            "`jwt`: instead of `secret`, a key set (RFC 7517), read again when it changes; from a URL also \
            when a token names a key that the set does not contain"
        "issuer" | "text" | "(any)" | "`jwt`: the required value of `iss`"
        "audience" | "text" | "(tokens without one)" | "`jwt`: the value that `aud` must equal or contain"
        "leeway" | "time" | "\"30s\"" | "`jwt`: the tolerated clock difference for `exp` and `nbf`"
    },
};

/// `[auth.NAME]`: how clients authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The name that guards use.
    pub name: String,
    /// The kind of credential that clients send.
    pub kind: AuthKind,
    /// The line of the section's header.
    pub line: usize,
}

/// The kind of credential that clients send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthKind {
    /// An API key, in a header field.
    Key {
        /// The name of the field.
        header: String,
        /// The source of the key hashes.
        keys: KeySource,
    },
    /// A signed token.
    Jwt(Jwt),
    /// A name and a password, from this file of users.
    Basic(PathBuf),
}

/// The source of the hashes of API keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with lines `SHA-256 OWNER claim=value …`.
    File(PathBuf),
    /// A hot table, and the column with the owner of a key.
    Table {
        /// The name of the table.
        table: String,
        /// The column with the owner.
        subject: String,
    },
}

/// The requirements for a signed token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// The permitted algorithms; at least one.
    pub algorithms: Vec<Algorithm>,
    /// The keys that verify the signature.
    pub keys: JwtKeys,
    /// The claim that becomes `$auth.sub`.
    pub subject: String,
    /// The required value of `iss`.
    pub issuer: Option<String>,
    /// The value that `aud` must equal or contain; `None`: `aud` must be absent.
    pub audience: Option<String>,
    /// The tolerated clock difference, in milliseconds.
    pub leeway_ms: u64,
}

/// The signature algorithm of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    /// Every algorithm, with its name in tokens.
    pub const ALL: [(&'static str, Algorithm); 4] = [
        ("HS256", Algorithm::Hs256),
        ("RS256", Algorithm::Rs256),
        ("ES256", Algorithm::Es256),
        ("EdDSA", Algorithm::EdDsa),
    ];
}

/// The keys that verify tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// The secret of HS256.
    Secret(String),
    /// A file with a public key.
    Pem(PathBuf),
    /// A file with a key set.
    File(PathBuf),
    /// The URL of a key set.
    Url(String),
}

/// `[auth]`: reads all subsections.
pub(crate) fn read(cursor: Option<Cursor<'_>>, tables: &[TableConfig]) -> Vec<Auth> {
    let read = |field| read_auth(field, tables);
    cursor.map_or_else(Vec::new, |cursor| cursor.table("[auth]").iter().filter_map(read).collect())
}

fn read_auth(field: Field<'_>, tables: &[TableConfig]) -> Option<Auth> {
    let name = field.key.to_owned();
    if !is_param_name(&name) {
        field.wrong(format!("auth: `{name}`: a name is made of letters, digits and _"));
    }
    let fields = field.value.section(&AUTH);
    let owner = format!("[auth.{name}]");
    let kind = fields.required(&owner, "kind")?.node;
    let kind = match text(kind).as_deref() {
        Ok("key") => {
            of_kind(fields, "key", &["file", "table", "subject", "header"]);
            key(fields, &owner, tables)?
        }
        Ok("jwt") => {
            let of_jwt =
                ["algorithms", "secret", "public_key", "jwks", "subject", "issuer", "audience", "leeway"];
            of_kind(fields, "jwt", &of_jwt);
            AuthKind::Jwt(jwt(fields, &owner)?)
        }
        Ok("basic") => {
            of_kind(fields, "basic", &["file"]);
            AuthKind::Basic(fields.required(&owner, "file")?.read("file", path)?)
        }
        _ => {
            fields.wrong_at("kind", "kind: must be \"key\" or \"jwt\" or \"basic\"");
            return None;
        }
    };
    Some(Auth { name, kind, line: field.value.line() })
}

/// Records the keys that do not belong to a kind.
fn of_kind(fields: Fields<'_>, kind: &str, keys: &[&str]) {
    for field in fields.iter().filter(|field| field.key != "kind" && !keys.contains(&field.key)) {
        if AUTH.keys.iter().any(|known| known.name == field.key) {
            field.wrong(format!("{} does not go with kind = \"{kind}\"", field.key));
        }
    }
}

fn key(fields: Fields<'_>, owner: &str, tables: &[TableConfig]) -> Option<AuthKind> {
    let header = fields.read("header", header);
    let keys = match (fields.get("file"), fields.get("table")) {
        (Some(file), None) => KeySource::File(file.read("file", path)?),
        (None, Some(table)) => {
            let name = table.read("table", name)?;
            let found = tables.iter().find(|known| known.name == name);
            let subject = fields.read("subject", text).unwrap_or_else(|| "sub".to_owned());
            match found {
                None => table.wrong(format!("table: there is no [table.{name}]")),
                Some(found) if !found.hot => {
                    table.wrong(format!("table: {name} is not kept in memory (hot = false)"))
                }
                Some(TableConfig { columns: Some(schema), .. }) if schema.position(&subject).is_none() => {
                    let names = list(schema.columns.iter().map(|column| column.name.as_str()));
                    fields.wrong_at(
                        "subject",
                        format!("subject: table {name} has no column `{subject}` (it has {names})"),
                    );
                }
                Some(_) => {}
            }
            KeySource::Table { table: name, subject }
        }
        _ => {
            fields.wrong(format!("{owner}: where are the keys? one of file = \"PATH\" and table = \"NAME\""));
            return None;
        }
    };
    Some(AuthKind::Key { header: header.unwrap_or_else(|| "X-Api-Key".to_owned()), keys })
}

fn header(node: &Node) -> Result<String, Mistake> {
    let name = name(node)?;
    check_header_name(&name).map(|()| name)
}

fn path(node: &Node) -> Result<PathBuf, Mistake> {
    name(node).map(PathBuf::from)
}

fn jwt(fields: Fields<'_>, owner: &str) -> Option<Jwt> {
    let algorithms = fields.required(owner, "algorithms")?.read("algorithms", algorithms);
    let secret = fields.read("secret", |node| match text(node)? {
        secret if secret.len() < SECRET_BYTES_MIN => Err(Mistake::from(format!(
            "must have at least {SECRET_BYTES_MIN} bytes (RFC 7518 section 3.2), not {}",
            secret.len()
        ))),
        secret => Ok(JwtKeys::Secret(secret)),
    });
    let pem = fields.read("public_key", path).map(JwtKeys::Pem);
    let set = fields.read("jwks", |node| {
        let at = name(node)?;
        Ok(if at.starts_with("https://") || at.starts_with("http://") {
            JwtKeys::Url(at)
        } else {
            JwtKeys::File(at.into())
        })
    });
    if ["secret", "public_key", "jwks"].iter().filter(|key| fields.has(key)).count() != 1 {
        fields.wrong(format!("{owner}: with which key? one of secret, public_key and jwks"));
    }
    let algorithms = algorithms?;
    let is_symmetric = |algorithm: &Algorithm| *algorithm == Algorithm::Hs256;
    let keys = secret.or(pem).or(set)?;
    if algorithms.iter().any(|algorithm| is_symmetric(algorithm) != matches!(keys, JwtKeys::Secret(_))) {
        fields
            .wrong_at("algorithms", "algorithms: HS256 goes with secret, the others with public_key or jwks");
    }
    Some(Jwt {
        algorithms,
        keys,
        subject: fields.read("subject", name).unwrap_or_else(|| "sub".to_owned()),
        issuer: fields.read("issuer", name),
        audience: fields.read("audience", name),
        leeway_ms: fields.read("leeway", milliseconds_or_none).unwrap_or(LEEWAY_MS),
    })
}

/// Reads one algorithm or several.
fn algorithms(node: &Node) -> Result<Vec<Algorithm>, Mistake> {
    match &node.data {
        Data::Array(items) if !items.is_empty() => {
            items.iter().map(|item| choice(&Algorithm::ALL)(item)).collect()
        }
        _ => choice(&Algorithm::ALL)(node).map(|algorithm| vec![algorithm]),
    }
}

/// The section with this name, or the error that it does not exist.
pub(crate) fn find<'a>(auths: &'a [Auth], wanted: &str) -> Result<&'a Auth, Mistake> {
    let names = || auths.iter().map(|auth| auth.name.as_str());
    auths.iter().find(|auth| auth.name == wanted).ok_or_else(|| match auths {
        [] => format!("there is no [auth.{wanted}]").into(),
        _ => Mistake::from(format!(
            "there is no [auth.{wanted}]{} (there are {})",
            did_you_mean(wanted, names()),
            list(names())
        )),
    })
}
