//! An identity: what a client has proved about itself.

use std::sync::Arc;

/// The identity that a client has proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the `[auth.NAME]` that verified it.
    pub auth: Arc<str>,
    /// The name of the client, unique within that auth: `$auth.sub`.
    pub subject: Box<str>,
    /// Further claims: names and values; a text is stored as it is, any other value as JSON.
    pub claims: Vec<(Box<str>, Box<str>)>,
}

impl Identity {
    /// The value of a claim; `sub` is the subject.
    pub fn claim(&self, name: &str) -> Option<&str> {
        match name {
            "sub" => Some(&self.subject),
            _ => self.claims.iter().find(|(found, _)| **found == *name).map(|(_, value)| &**value),
        }
    }

    /// Whether a claim is one of these texts, or a list that contains one of them. A scope is a
    /// space-separated list (RFC 8693 section 4.2).
    pub fn is_one_of(&self, name: &str, wanted: &[String]) -> bool {
        let Some(value) = self.claim(name) else { return false };
        let is_wanted = |text: &str| wanted.iter().any(|wanted| wanted == text);
        let items = || serde_json::from_str::<Vec<serde_json::Value>>(value).unwrap_or_default();
        is_wanted(value)
            || (name == "scope" && value.split(' ').any(is_wanted))
            || (value.starts_with('[') && items().iter().any(|item| item.as_str().is_some_and(is_wanted)))
    }
}

/// Why a client has no identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The request carries no credentials of this kind.
    Missing,
    /// The credentials are wrong; the sentence helps the client to correct them and reveals no more.
    Invalid(&'static str),
    /// The credentials cannot be verified now.
    Unavailable(&'static str),
    /// The client has sent too many wrong credentials; it may try again after this many seconds.
    TooOften {
        /// The time, rounded up.
        wait_s: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_are_asked_for() {
        let claims =
            [("role", "admin"), ("plans", "[\"pro\",\"team\"]"), ("scope", "read write"), ("n", "5")];
        let claims = claims.map(|(name, value)| (name.into(), value.into())).to_vec();
        let identity = Identity { auth: "users".into(), subject: "ann".into(), claims };
        let check = |name: &str, wanted: &str| identity.is_one_of(name, &[wanted.to_owned()]);
        for (name, wanted) in
            [("role", "admin"), ("plans", "team"), ("scope", "write"), ("n", "5"), ("sub", "ann")]
        {
            assert!(check(name, wanted), "{name} {wanted}");
        }
        for (name, wanted) in [
            ("role", "adm"),
            ("role", ""),
            ("plans", "tea"),
            ("scope", "read writ"),
            ("none", ""),
            ("sub", "role"),
        ] {
            assert!(!check(name, wanted), "{name} {wanted}");
        }
    }
}
