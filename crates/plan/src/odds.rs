//! Users, identifiers and rows: the simple formulas of a plan.

use std::f64::consts::LN_2;

const SECONDS_A_YEAR: f64 = 365.2425 * 86_400.0;

/// Requests a second of `users` users that each send one request every `every_s` seconds.
pub fn requests_per_s(users: f64, every_s: f64) -> f64 {
    users / every_s
}

/// How many random identifiers of `bits` bits give even odds of one collision (the birthday bound,
/// √(2 · 2ᵇ · ln 2), which is exact to many digits when there are many bits).
pub fn ids_at_even_odds(bits: u32) -> f64 {
    (2.0 * 2f64.powi(i32::try_from(bits).unwrap_or(i32::MAX)) * LN_2).sqrt()
}

/// The odds of a collision among `count` identifiers.
pub fn collision_odds(count: f64, bits: u32) -> f64 {
    let pairs = count * (count - 1.0) / 2.0;
    -(-pairs / 2f64.powi(i32::try_from(bits).unwrap_or(i32::MAX))).exp_m1()
}

/// Years until even odds of a collision at this rate.
pub fn years_to_even_odds(bits: u32, rate_per_s: f64) -> f64 {
    ids_at_even_odds(bits) / rate_per_s / SECONDS_A_YEAR
}

/// Bytes of memory of `rows` rows.
pub fn memory_bytes(rows: f64, row_bytes: f64) -> f64 {
    rows * row_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(requests_per_s(10_000.0, 15.0).round(), 667.0);
        let years = years_to_even_odds(122, 1e6);
        assert!((85_900.0..86_150.0).contains(&years), "{years}");
        assert!((collision_odds(ids_at_even_odds(122), 122) - 0.5).abs() < 1e-9);
        // 23 people and 365 birthdays give a little more than even odds; here 2^9 birthdays give
        // less.
        assert!((collision_odds(23.0, 9) - 0.390).abs() < 0.01);
        assert_eq!(memory_bytes(10_000_000.0, 516.0), 5.16e9);
    }
}
