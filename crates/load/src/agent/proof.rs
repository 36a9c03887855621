//! Proofs of the token: each side answers the other's random bytes with a keyed hash over both. The
//! token is never sent.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;

/// Random bytes, used once.
pub(super) type Nonce = [u8; 32];
/// HMAC-SHA256 (RFC 2104).
pub(super) type Proof = [u8; 32];

/// Which side a proof is of. A proof cannot be sent back as that of the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Controller,
    Agent,
}

/// Both sides' random bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonces {
    pub agent: Nonce,
    pub controller: Nonce,
}

/// New random bytes from the operating system.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| io::Error::other("this machine gives no random bytes"))?;
    Ok(nonce)
}

impl Nonces {
    fn said_by(&self, side: Side) -> Vec<u8> {
        let label: &[u8] = match side {
            Side::Controller => b"forebay-load controller",
            Side::Agent => b"forebay-load agent",
        };
        [label, &self.agent, &self.controller].concat()
    }

    /// The proof of a side.
    pub fn prove(&self, token: &str, side: Side) -> Proof {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&key, &self.said_by(side)).as_ref());
        proof
    }

    /// Whether that side knows the token. Takes the same time whichever byte is wrong.
    pub fn check(&self, token: &str, side: Side, proof: &Proof) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        hmac::verify(&key, &self.said_by(side), proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_side_and_nonces() {
        let nonces = Nonces { agent: nonce().unwrap(), controller: nonce().unwrap() };
        let proof = nonces.prove("secret", Side::Controller);
        assert!(nonces.check("secret", Side::Controller, &proof));
        assert!(!nonces.check("Secret", Side::Controller, &proof));
        assert!(!nonces.check("secret", Side::Agent, &proof), "a proof sent back");
        let later = Nonces { agent: nonce().unwrap(), ..nonces };
        assert!(!later.check("secret", Side::Controller, &proof), "a proof of another connection");
    }
}
