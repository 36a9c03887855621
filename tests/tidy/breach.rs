//! Places where a rule is broken, and the failure that names them.

/// A place where a rule is broken.
pub struct Breach {
    /// The file, as seen from the root.
    pub file: String,
    /// Where and how, as the failure shows it.
    pub what: String,
}

/// Fails when there is any.
pub fn hold(rule: &str, breaches: &[Breach]) {
    let found: Vec<&str> = breaches.iter().map(|breach| breach.what.as_str()).collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}
