//! Sizes of long tests, from the environment.

/// The number in this variable, or the default if it is not set.
#[track_caller]
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text} is no number")))
}
