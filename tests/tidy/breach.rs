//! Violations of a rule, and the failure that names them.

/// A violation of a rule.
pub struct Breach {
    /// The file, relative to the root.
    pub file: String,
    /// The place and the violation, as the failure shows them.
    pub what: String,
}

/// Panics when there is any violation.
pub fn hold(rule: &str, breaches: &[Breach]) {
    let found: Vec<&str> = breaches.iter().map(|breach| breach.what.as_str()).collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}
