//! The keys that tokens are verified with: from a secret, a public key in PEM, or a key set (RFC 7517).
//!
//! The algorithm belongs to the key; a token cannot change it. So a public key is never used as the secret of
//! HS256. Entries of a set that are not keys for one of the supported algorithms are ignored.

use crate::start_error::StartError;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use forebay_config::model::Algorithm;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use spki::SubjectPublicKeyInfoRef;
use spki::der::Decode;
use spki::der::pem::decode_vec;

/// The longest key set, in bytes.
pub const KEY_SET_BYTES_MAX: usize = 1 << 20;
/// The most keys of a set.
const KEYS_MAX: usize = 32;

/// A key that verifies tokens.
pub struct VerifyKey {
    /// The key id that tokens refer to; `None`: the key has no id, and any token may be signed with it.
    pub id: Option<String>,
    key: Key,
}

enum Key {
    Secret(ring::hmac::Key),
    /// In the PKCS #1 encoding.
    Rsa(Vec<u8>),
    RsaParts(RsaPublicKeyComponents<Vec<u8>>),
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl VerifyKey {
    /// The secret of HS256.
    pub fn secret(secret: &str) -> VerifyKey {
        VerifyKey {
            id: None,
            key: Key::Secret(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes())),
        }
    }

    /// The algorithm of the key.
    pub fn algorithm(&self) -> Algorithm {
        match self.key {
            Key::Secret(_) => Algorithm::Hs256,
            Key::Rsa(_) | Key::RsaParts(_) => Algorithm::Rs256,
            Key::P256(_) => Algorithm::Es256,
            Key::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether this key signed a message. Secrets are compared in constant time.
    pub fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let by = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match &self.key {
            Key::Secret(key) => ring::hmac::verify(key, message, signature).is_ok(),
            Key::Rsa(key) => by(&signature::RSA_PKCS1_2048_8192_SHA256, key),
            Key::RsaParts(parts) => {
                parts.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Key::P256(point) => by(&signature::ECDSA_P256_SHA256_FIXED, point),
            Key::Ed25519(key) => by(&signature::ED25519, key),
        }
    }
}

/// Reads a public key in PEM: `BEGIN PUBLIC KEY` (RFC 7468 section 13).
pub fn read_pem(text: &str) -> Result<Vec<VerifyKey>, StartError> {
    let (label, der) =
        decode_vec(text.trim().as_bytes()).map_err(|error| format!("this is not PEM: {error}"))?;
    if label != "PUBLIC KEY" {
        return Err(format!("must hold a PUBLIC KEY, not a {label}").into());
    }
    let info =
        SubjectPublicKeyInfoRef::from_der(&der).map_err(|error| format!("this is no public key: {error}"))?;
    let bytes = info.subject_public_key.as_bytes().ok_or("this is no public key")?.to_vec();
    let parameters = info.algorithm.parameters_oid().map(|oid| oid.to_string()).ok();
    let key = match (info.algorithm.oid.to_string().as_str(), parameters.as_deref()) {
        ("1.2.840.113549.1.1.1", _) => Key::Rsa(bytes),
        ("1.2.840.10045.2.1", Some("1.2.840.10045.3.1.7")) => Key::P256(bytes),
        ("1.3.101.112", _) => Key::Ed25519(bytes),
        (other, _) => {
            return Err(format!("must be an RSA, P-256 or Ed25519 key, not one of the kind {other}").into());
        }
    };
    Ok(vec![VerifyKey { id: None, key }])
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Jwk>,
}

/// The members of a JWK that are used.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Reads a key set. Keys of other kinds and uses are left out.
pub fn read_set(text: &str) -> Result<Vec<VerifyKey>, StartError> {
    if text.len() > KEY_SET_BYTES_MAX {
        return Err("the key set is too long".into());
    }
    let set: Set = serde_json::from_str(text).map_err(|error| format!("this is no key set: {error}"))?;
    if set.keys.len() > KEYS_MAX {
        return Err(format!("the key set has more than {KEYS_MAX} keys").into());
    }
    let keys: Vec<_> = set.keys.into_iter().filter_map(read_jwk).collect();
    if keys.is_empty() {
        Err("the key set has no RSA, P-256 or Ed25519 key for signatures".into())
    } else {
        Ok(keys)
    }
}

fn read_jwk(jwk: Jwk) -> Option<VerifyKey> {
    let bytes = |text: &Option<String>| BASE64_URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
    if jwk.usage.as_ref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", None) => {
            let without_zeros = |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            let (n, e) = (without_zeros(bytes(&jwk.n)?), without_zeros(bytes(&jwk.e)?));
            Key::RsaParts(RsaPublicKeyComponents { n, e })
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            (x.len() == 32 && y.len() == 32).then(|| Key::P256([vec![4], x, y].concat()))?
        }
        ("OKP", Some("Ed25519")) => Key::Ed25519(bytes(&jwk.x).filter(|key| key.len() == 32)?),
        _ => return None,
    };
    let key = VerifyKey { id: jwk.kid, key };
    let is_for = |alg: &String| Algorithm::ALL.iter().any(|(name, of)| name == alg && *of == key.algorithm());
    jwk.alg.as_ref().is_none_or(is_for).then_some(key)
}
