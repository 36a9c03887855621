//! Names and passwords (RFC 7617), hashed with bcrypt as `htpasswd -B` does.
//!
//! A bcrypt hash is slow on purpose. Passwords are compared on separate threads, few at a time, and a correct
//! one is remembered for a while as a hash keyed with a secret of this process. An unknown name takes as much
//! time as a wrong password.

use super::credentials::{CredentialVerdict, authorization};
use super::identity::{Identity, Refused};
use super::watched_file::WatchedFile;
use crate::endpoint::places::{Multiple, Places};
use crate::start_error::StartError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use forebay_http::Request;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// How long a correct password is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);
/// The most passwords that are remembered.
const REMEMBERED_MAX: usize = 4096;
/// The number of comparisons at one time.
const COMPARED_AT_ONCE: usize = 2;
/// The number of requests waiting for a comparison: any further one gets 503, and takes no place of its
/// endpoint.
const WAITING_MAX: usize = 64;
/// One client has at most an eighth of these places: whoever comes next waits for few others.
const PER_FREE: Multiple = Multiple { times: 1, of: 8 };
/// The longest password, in bytes: bcrypt ignores any further bytes.
const PASSWORD_BYTES_MAX: usize = 72;
/// The most expensive hash that is accepted, as the binary logarithm of its rounds.
const COST_MAX: u32 = 14;
/// The hash of a password of no user; compared for unknown names.
const NOBODY: &str = "$2y$10$92IXUNpkjO0rOQ5byMi.Ye4oKoEa3Ro9llC/.og/at2.uheWG/igi";

/// Hashes by name.
pub type Passwords = HashMap<Box<str>, Arc<str>>;

/// Verifies names and passwords.
pub struct Basic {
    name: Arc<str>,
    passwords: Arc<WatchedFile<Passwords>>,
    key: ring::hmac::Key,
    remembered: Mutex<HashMap<[u8; 32], Instant>>,
    comparing: Semaphore,
    waiting: Arc<Places>,
    runtime: Handle,
}

/// Reads a file of passwords, one on each line as `NAME:HASH`; `#` begins a comment.
pub fn read_file(text: &str) -> Result<Passwords, StartError> {
    let mut passwords = Passwords::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| Err(format!("line {}: {what}", index + 1).into());
        let Some((name, hash)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else {
            return wrong("write NAME:HASH, as htpasswd -nB NAME prints it");
        };
        let cost = hash.parse::<bcrypt::HashParts>().ok().map(|parts| parts.get_cost());
        if cost.is_none_or(|cost| cost > COST_MAX) {
            return wrong("the hash is none of bcrypt ($2y$), or of more than 2^14 rounds");
        }
        if passwords.insert(name.into(), hash.into()).is_some() {
            return wrong("the name occurs twice");
        }
    }
    Ok(passwords)
}

impl Basic {
    /// Verifies against this file; passwords are compared on threads of `runtime`.
    pub fn new(name: Arc<str>, passwords: Arc<WatchedFile<Passwords>>, runtime: Handle) -> Basic {
        let key: [u8; 32] = rand::random();
        Basic {
            name,
            passwords,
            key: ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key),
            remembered: Mutex::default(),
            comparing: Semaphore::new(COMPARED_AT_ONCE),
            waiting: Places::new(WAITING_MAX, PER_FREE),
            runtime,
        }
    }

    /// Verifies the name and password that a request carries.
    pub fn verify(self: &Arc<Self>, request: &Request<'_>) -> CredentialVerdict {
        let given = match authorization(request, b"Basic") {
            Ok(given) => given,
            Err(refused) => return CredentialVerdict::Refused(refused),
        };
        let decoded = BASE64_STANDARD.decode(given).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((name, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) else {
            return CredentialVerdict::Refused(Refused::Invalid("the name and password are malformed"));
        };
        if password.len() > PASSWORD_BYTES_MAX || password.contains('\0') {
            return CredentialVerdict::Refused(WRONG);
        }
        let passwords = self.passwords.get();
        let known = passwords.get(name).cloned();
        // An unknown name is compared with some hash too, so that it takes the same time as a known one.
        let hash = known.as_ref().or_else(|| passwords.values().next()).map_or(NOBODY.into(), Arc::clone);
        let network = request.client().network();
        let digest = self.digest(network, name, password, &hash);
        let identity =
            Arc::new(Identity { auth: self.name.clone(), subject: name.into(), claims: Vec::new() });
        if known.is_some() && self.remembers(&digest) {
            return CredentialVerdict::Known(identity);
        }
        let Some(waiting) = self.waiting.take(network) else {
            return CredentialVerdict::Refused(BUSY);
        };
        let (me, password, is_known) = (self.clone(), password.to_owned(), known.is_some());
        CredentialVerdict::Later(Box::pin(async move {
            let _waiting = waiting;
            let _permit = me.comparing.acquire().await.map_err(|_| BUSY)?;
            let comparing =
                me.runtime.spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
            if !comparing.await.map_err(|_| BUSY)? || !is_known {
                return Err(WRONG);
            }
            me.remember(digest);
            Ok(identity)
        }))
    }

    /// The keyed hash of a client's network, a name, a password and its bcrypt hash. A changed bcrypt hash
    /// invalidates it, and who guesses from elsewhere learns nothing without a comparison.
    fn digest(&self, network: u64, name: &str, password: &str, hash: &str) -> [u8; 32] {
        let mut context = ring::hmac::Context::with_key(&self.key);
        context.update(&network.to_le_bytes());
        for part in [name, password, hash] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn remembers(&self, digest: &[u8; 32]) -> bool {
        self.remembered.lock().get(digest).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn remember(&self, digest: [u8; 32]) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(digest, Instant::now());
    }
}

const BUSY: Refused = Refused::Unavailable("too many passwords wait to be compared");
const WRONG: Refused = Refused::Invalid("the name or the password is wrong");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_passwords() {
        let file = format!("# staff\n\nann:{NOBODY}\n");
        assert_eq!(read_file(&file).expect("good").len(), 1);
        for (text, what) in [
            ("ann".to_owned(), "line 1: write NAME:HASH"),
            ("ann:secret".to_owned(), "line 1: the hash"),
            ("ann:$apr1$x$y".to_owned(), "the hash"),
            (format!("ann:{}", NOBODY.replace("$10$", "$15$")), "2^14 rounds"),
            (format!("{file}ann:{NOBODY}"), "line 4: the name occurs twice"),
        ] {
            assert!(read_file(&text).is_err_and(|why| why.to_string().contains(what)), "{text}");
        }
    }
}
