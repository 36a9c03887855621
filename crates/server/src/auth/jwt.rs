//! Signed tokens: JSON Web Tokens (RFC 7519) in the compact form of JWS (RFC 7515), with the rules of RFC
//! 8725.
//!
//! Promises that a token is accepted only when one of the configured keys signed it with that key's own
//! algorithm. Keys that a token contains or points to (`jwk`, `jku`, `x5c`, `x5u`) are ignored; `kid` only
//! selects among the configured keys. Duplicate members, non-canonical encodings, and extensions that must be
//! understood (`crit`) are refused.

use super::credentials::{CredentialVerdict, bearer};
use super::identity::{Identity, Refused};
use super::jwks::Jwks;
use super::key_set::VerifyKey;
use super::watched_file::WatchedFile;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use forebay_config::model::Algorithm;
use forebay_http::Request;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest token that is accepted, in bytes.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Verifies tokens.
pub struct Jwt {
    pub name: Arc<str>,
    pub algorithms: Vec<Algorithm>,
    pub keys: KeySource,
    pub subject: String,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    pub leeway_s: f64,
}

/// Where the keys come from.
pub enum KeySource {
    /// The config.
    Fixed(Arc<Vec<VerifyKey>>),
    /// A file, read again when it changes.
    File(Arc<WatchedFile<Vec<VerifyKey>>>),
    /// A key set at a URL.
    Url(Arc<Jwks>),
}

impl KeySource {
    /// The present keys; `None`: none have been fetched yet.
    pub fn keys(&self) -> Option<Arc<Vec<VerifyKey>>> {
        match self {
            KeySource::Fixed(keys) => Some(keys.clone()),
            KeySource::File(file) => Some(file.get()),
            KeySource::Url(jwks) => jwks.keys(),
        }
    }
}

/// Why a token is not accepted.
enum TokenRejection {
    /// It names an unknown key, or there are no keys yet.
    UnknownKey,
    Wrong(&'static str),
}

impl Jwt {
    /// Verifies the token that a request carries.
    pub fn verify(self: &Arc<Self>, request: &Request<'_>) -> CredentialVerdict {
        let token = match bearer(request) {
            Ok(token) => token,
            Err(refused) => return CredentialVerdict::Refused(refused),
        };
        match self.judge(token, now_s()) {
            Ok(identity) => CredentialVerdict::Known(Arc::new(identity)),
            Err(TokenRejection::Wrong(why)) => CredentialVerdict::Refused(Refused::Invalid(why)),
            Err(TokenRejection::UnknownKey) => self.judge_later(token),
        }
    }

    /// Verifies the token again after the keys are fetched, if a fetch may bring the unknown key.
    fn judge_later(self: &Arc<Self>, token: &[u8]) -> CredentialVerdict {
        let KeySource::Url(jwks) = &self.keys else {
            return CredentialVerdict::Refused(self.refused(&TokenRejection::UnknownKey));
        };
        let Some(place) = jwks.place() else {
            return CredentialVerdict::Refused(self.refused(&TokenRejection::UnknownKey));
        };
        let (me, jwks, token) = (self.clone(), jwks.clone(), token.to_owned());
        CredentialVerdict::Later(Box::pin(async move {
            let _place = place;
            jwks.refresh().await;
            me.judge(&token, now_s()).map(Arc::new).map_err(|rejection| me.refused(&rejection))
        }))
    }

    fn refused(&self, rejection: &TokenRejection) -> Refused {
        match rejection {
            TokenRejection::Wrong(why) => Refused::Invalid(why),
            TokenRejection::UnknownKey if self.keys.keys().is_none() => {
                Refused::Unavailable("the keys of tokens are not there yet")
            }
            TokenRejection::UnknownKey => {
                Refused::Invalid("the token is signed with a key that is not known")
            }
        }
    }

    fn judge(&self, token: &[u8], now_s: f64) -> Result<Identity, TokenRejection> {
        let (signed, signature) = self.open(token)?;
        let mut parts = signed.split(|byte| *byte == b'.');
        let (head, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.check_signature(&members(head)?, signed, &signature)?;
        // From here on the content is what one of our keys signed.
        self.check_claims(members(claims)?, now_s)
    }

    /// Splits a token into its signed part and its signature.
    fn open<'t>(&self, token: &'t [u8]) -> Result<(&'t [u8], Vec<u8>), TokenRejection> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRejection::Wrong("the token is too long"));
        }
        if token.iter().filter(|byte| **byte == b'.').count() != 2 {
            return Err(MALFORMED);
        }
        let dot = token.iter().rposition(|byte| *byte == b'.').ok_or(MALFORMED)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(&token[dot + 1..]).map_err(|_| MALFORMED)?;
        if signature.is_empty() { Err(MALFORMED) } else { Ok((&token[..dot], signature)) }
    }

    fn check_signature(&self, head: &Members, signed: &[u8], signature: &[u8]) -> Result<(), TokenRejection> {
        let named = head.get("alg").and_then(Value::as_str);
        let known =
            Algorithm::ALL.iter().find(|(name, _)| Some(*name) == named).map(|(_, algorithm)| *algorithm);
        let algorithm = known.filter(|algorithm| self.algorithms.contains(algorithm));
        let algorithm = algorithm
            .ok_or(TokenRejection::Wrong("the token is signed with another algorithm than is taken here"))?;
        if head.get("crit").is_some() {
            return Err(TokenRejection::Wrong("the token has extensions that are not known"));
        }
        let id = match head.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id),
            Some(_) => return Err(MALFORMED),
        };
        let keys = self.keys.keys().ok_or(TokenRejection::UnknownKey)?;
        let mut candidates = keys
            .iter()
            .filter(|key| key.algorithm() == algorithm)
            .filter(|key| id.is_none() || key.id.is_none() || key.id.as_ref() == id)
            .peekable();
        if candidates.peek().is_none() {
            return Err(TokenRejection::UnknownKey);
        }
        match candidates.any(|key| key.signed(signed, signature)) {
            true => Ok(()),
            false => Err(TokenRejection::Wrong("the token's signature is wrong")),
        }
    }

    fn check_claims(&self, claims: Members, now_s: f64) -> Result<Identity, TokenRejection> {
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().filter(|time| time.is_finite()).map(Some).ok_or(MALFORMED),
        };
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        match time("exp")? {
            None => return Err(TokenRejection::Wrong("the token has no end (exp)")),
            Some(end) if now_s >= end + self.leeway_s => {
                return Err(TokenRejection::Wrong("the token has expired"));
            }
            Some(_) => {}
        }
        if time("nbf")?.is_some_and(|begin| now_s + self.leeway_s < begin) {
            return Err(TokenRejection::Wrong("the token is not good yet"));
        }
        if self.issuer.as_deref().is_some_and(|issuer| text("iss") != Some(issuer)) {
            return Err(TokenRejection::Wrong("the token is from another issuer"));
        }
        let is_for_us = match (&self.audience, claims.get("aud")) {
            (None, None) => true,
            (Some(wanted), Some(Value::String(found))) => found == wanted,
            (Some(wanted), Some(Value::Array(found))) => found.iter().any(|one| one.as_str() == Some(wanted)),
            // A server that is not in the audience refuses the token (RFC 7519 section 4.1.3).
            _ => false,
        };
        if !is_for_us {
            return Err(TokenRejection::Wrong("the token is for another audience"));
        }
        let shown = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.as_str().into()),
            other => Some(other.to_string().into_boxed_str()),
        };
        let subject: Option<Box<str>> = claims.get(&self.subject).and_then(shown);
        let subject = subject.filter(|subject| !subject.is_empty());
        let claims = claims.0.iter().filter_map(|(name, value)| Some((name.as_str().into(), shown(value)?)));
        Ok(Identity {
            auth: self.name.clone(),
            subject: subject.ok_or(TokenRejection::Wrong("the token does not say whose it is"))?,
            claims: claims.collect(),
        })
    }
}

const MALFORMED: TokenRejection = TokenRejection::Wrong("the token is malformed");

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The JSON object in a part of a token.
fn members(part: &[u8]) -> Result<Members, TokenRejection> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| MALFORMED)?;
    serde_json::from_slice(&json).map_err(|_| MALFORMED)
}

/// The members of a JSON object, without duplicate names.
struct Members(Vec<(String, Value)>);

impl Members {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members(Vec::new());
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if members.get(&name).is_some() {
                        return Err(A::Error::custom("a member occurs twice"));
                    }
                    members.0.push((name, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
