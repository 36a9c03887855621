//! Authentication: the credentials that clients send (API keys, signed tokens, names and passwords), and the
//! identity that they prove.
//!
//! Each kind has its own file. Each promises that credentials it cannot verify give no identity, that it
//! never blocks the worker (a verdict that takes time is a future), and that a refusal reveals no more than
//! its client needs. What an identity may do is decided by guards (`endpoint/guard`).

mod api_key;
mod basic;
mod credentials;
mod identity;
mod jwks;
mod jwt;
mod key_set;
mod watched_file;
mod wrong;

use crate::problem::Problem;
use crate::start_error::StartError;
use api_key::{ApiKeys, Keys};
use basic::Basic;
use forebay_config::model::{self, AuthKind, JwtKeys};
use forebay_http::Request;
use forebay_table::HotTables;
use jwks::Jwks;
use jwt::{Jwt, KeySource};
use key_set::VerifyKey;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use watched_file::WatchedFile;
use wrong::WrongCredentials;

pub use credentials::{CredentialVerdict, Judging};
pub use identity::{Identity, Refused};

/// One way of proving an identity: an `[auth.NAME]` of the config.
pub struct Auth {
    /// Its name in the config.
    pub name: Arc<str>,
    /// The value of its WWW-Authenticate field.
    challenge: String,
    kind: Kind,
    wrong: Arc<WrongCredentials>,
}

enum Kind {
    Key(Arc<ApiKeys>),
    Jwt(Arc<Jwt>),
    Basic(Arc<Basic>),
}

impl Auth {
    /// Opens it from the config. Tasks that watch files and URLs run on `runtime`.
    ///
    /// # Errors
    /// A sentence for the config's author.
    pub fn open(auth: &model::Auth, tables: &HotTables, runtime: &Handle) -> Result<Auth, StartError> {
        let name: Arc<str> = auth.name.as_str().into();
        let (challenge, kind) = match &auth.kind {
            AuthKind::Key { header, keys } => {
                let challenge = match header.eq_ignore_ascii_case("Authorization") {
                    true => format!("Bearer realm=\"{name}\""),
                    false => format!("ApiKey realm=\"{name}\", header=\"{header}\""),
                };
                let keys = api_keys(keys, tables, runtime)?;
                let keys = ApiKeys { name: name.clone(), header: header.clone(), keys };
                (challenge, Kind::Key(Arc::new(keys)))
            }
            AuthKind::Jwt(jwt) => {
                let jwt = Jwt {
                    name: name.clone(),
                    algorithms: jwt.algorithms.clone(),
                    keys: token_keys(jwt, runtime)?,
                    subject: jwt.subject.clone(),
                    issuer: jwt.issuer.clone(),
                    audience: jwt.audience.clone(),
                    leeway_s: jwt.leeway_ms as f64 / 1000.0,
                };
                (format!("Bearer realm=\"{name}\""), Kind::Jwt(Arc::new(jwt)))
            }
            AuthKind::Basic(path) => {
                let passwords = watched(path, basic::read_file, runtime)?;
                let basic = Basic::new(name.clone(), passwords, runtime.clone());
                (format!("Basic realm=\"{name}\", charset=\"UTF-8\""), Kind::Basic(Arc::new(basic)))
            }
        };
        Ok(Auth { name, challenge, kind, wrong: Arc::new(WrongCredentials::new()) })
    }

    /// The header field that carries the credentials.
    pub fn header(&self) -> &str {
        match &self.kind {
            Kind::Key(keys) => &keys.header,
            Kind::Jwt(_) | Kind::Basic(_) => "Authorization",
        }
    }

    /// Whether browsers add the credentials by themselves.
    pub fn travels_by_itself(&self) -> bool {
        matches!(self.kind, Kind::Basic(_))
    }

    /// Whether a request has credentials of this kind.
    pub fn is_given(&self, request: &Request<'_>) -> bool {
        let given = match &self.kind {
            Kind::Key(keys) => credentials::single_field(request, &keys.header),
            Kind::Jwt(_) => credentials::bearer(request),
            Kind::Basic(_) => credentials::authorization(request, b"Basic"),
        };
        given != Err(Refused::Missing)
    }

    /// Verifies the credentials of a request. Of a client that has sent too many wrong ones, only those are
    /// verified that need no time; others are not told to be wrong, but to come too often.
    pub fn verify(&self, request: &Request<'_>) -> CredentialVerdict {
        let verdict = match &self.kind {
            Kind::Key(keys) => keys.verify(request),
            // Nobody guesses a signature, and a client learns from 401 that its token has expired.
            Kind::Jwt(jwt) => return jwt.verify(request),
            Kind::Basic(basic) => basic.verify(request),
        };
        match verdict {
            CredentialVerdict::Known(identity) => CredentialVerdict::Known(identity),
            CredentialVerdict::Refused(Refused::Missing) => CredentialVerdict::Refused(Refused::Missing),
            CredentialVerdict::Refused(refused) => {
                let sender = self.wrong.sender(request);
                let checked = self.wrong.check(sender);
                self.wrong.count(sender, &refused);
                CredentialVerdict::Refused(checked.err().unwrap_or(refused))
            }
            CredentialVerdict::Later(judging) => {
                let (wrong, sender) = (self.wrong.clone(), self.wrong.sender(request));
                if let Err(refused) = wrong.check(sender) {
                    return CredentialVerdict::Refused(refused);
                }
                // A task of its own: a client that goes away has been served, and counts.
                let judging = async move {
                    let judged = judging.await;
                    if let Err(refused) = &judged {
                        wrong.count(sender, refused);
                    }
                    judged
                };
                CredentialVerdict::Later(Box::pin(async move {
                    let judged = tokio::spawn(judging).await;
                    judged.unwrap_or(Err(Refused::Unavailable("the credentials could not be verified")))
                }))
            }
        }
    }

    /// The value of WWW-Authenticate for a client without credentials.
    pub fn challenge(&self) -> &str {
        &self.challenge
    }

    /// The problem for a client without an identity.
    pub fn problem(&self, refused: &Refused) -> Problem {
        let (detail, error) = match refused {
            Refused::Missing => ("credentials are required", ""),
            // RFC 6750 section 3.1.
            Refused::Invalid(why) if matches!(self.kind, Kind::Jwt(_)) => (*why, ", error=\"invalid_token\""),
            Refused::Invalid(why) => (*why, ""),
            Refused::Unavailable(why) => return Problem::unavailable(*why),
            Refused::TooOften { wait_s } => {
                let headers = vec![("Retry-After", wait_s.to_string())];
                return Problem {
                    headers,
                    ..Problem::new(429, "too many wrong credentials; try again later")
                };
            }
        };
        let challenge = format!("{}{error}", self.challenge);
        Problem { headers: vec![("WWW-Authenticate", challenge)], ..Problem::new(401, detail) }
    }
}

fn watched<T: Send + Sync + 'static>(
    path: &Path,
    read: fn(&str) -> Result<T, StartError>,
    runtime: &Handle,
) -> Result<Arc<WatchedFile<T>>, StartError> {
    let file = WatchedFile::open(path, read)?;
    runtime.spawn(file.clone().watch());
    Ok(file)
}

fn api_keys(keys: &model::KeySource, tables: &HotTables, runtime: &Handle) -> Result<Keys, StartError> {
    match keys {
        model::KeySource::File(path) => watched(path, api_key::read_file, runtime).map(Keys::File),
        model::KeySource::Table { table, subject } => {
            let found = tables.get(table).ok_or_else(|| format!("there is no hot table {table}"))?;
            let schema = found.schema();
            let subject_at = schema.position(subject);
            let subject_at = subject_at.ok_or_else(|| format!("table {table} has no column `{subject}`"))?;
            if !matches!(schema.key_column().ty, forebay_value::Type::Text { .. }) {
                return Err(format!(
                    "the key of table {table} must be a text: the SHA-256 of an API key in hex"
                )
                .into());
            }
            Ok(Keys::Table(found, subject_at))
        }
    }
}

fn token_keys(jwt: &model::Jwt, runtime: &Handle) -> Result<KeySource, StartError> {
    let keys = match &jwt.keys {
        JwtKeys::Secret(secret) => KeySource::Fixed(Arc::new(vec![VerifyKey::secret(secret)])),
        JwtKeys::Pem(path) => KeySource::File(watched(path, key_set::read_pem, runtime)?),
        JwtKeys::File(path) => KeySource::File(watched(path, key_set::read_set, runtime)?),
        JwtKeys::Url(url) => {
            let jwks = Jwks::new(url, runtime.clone());
            runtime.spawn(jwks.clone().watch());
            KeySource::Url(jwks)
        }
    };
    let is_usable = |key: &VerifyKey| jwt.algorithms.contains(&key.algorithm());
    match keys.keys() {
        Some(found) if !found.iter().any(is_usable) => {
            Err("none of the keys is for one of the algorithms".into())
        }
        _ => Ok(keys),
    }
}
