//! A script with its name and its digest for EVALSHA.

use sha1::{Digest, Sha1};
use std::sync::OnceLock;

/// A Lua script in a `static`. The link sets `ARGV[1]` to the epoch of the connection; the caller's
/// arguments begin at `ARGV[2]`.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    /// A script with its name for messages.
    pub const fn new(name: &'static str, source: &'static str) -> Script {
        Script { name, source, sha: OnceLock::new() }
    }

    /// The name in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The source in Lua.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// SHA-1 of the source in hexadecimal, computed once.
    pub fn sha(&self) -> &str {
        self.sha.get_or_init(|| {
            Sha1::digest(self.source.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_sha1() {
        static ONE: Script = Script::new("one", "return 1");
        assert_eq!(ONE.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
