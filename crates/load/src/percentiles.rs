//! Latencies: a histogram that never reports more than the longest recorded latency, and its
//! serialised form.
//!
//! In JSON it is an object of milliseconds (`count`, `min`, `mean`, `stdev`, `max`, `percentiles`),
//! for people, and `histogram`, the HdrHistogram V2 compressed form in base64 (nanoseconds), from
//! which it is read back: every HdrHistogram port can merge it.

use crate::limits::{LATENCY_DIGITS, LATENCY_NS_MAX, SECOND_DIGITS};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as FromV2, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The percentiles that JSON names.
pub const PERCENTILES: [f64; 13] =
    [2.5, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.9, 99.99, 99.999, 100.0];

/// Latencies in nanoseconds: a histogram of three significant digits, and the exact extremes.
#[derive(Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
}

impl Latency {
    /// Empty, three significant digits (0.1 %).
    pub fn new() -> Latency {
        Latency::with_digits(LATENCY_DIGITS)
    }

    /// Empty, two significant digits (1 %), a tenth of the size.
    pub fn coarse() -> Latency {
        Latency::with_digits(SECOND_DIGITS)
    }

    fn with_digits(digits: u8) -> Latency {
        let histogram =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits).expect("constants are in bounds");
        Latency { histogram, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds a latency. One above a day falls into the last bucket, but [`Latency::max_ns`] is
    /// exact.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        let latency_ns = latency_ns.max(1);
        self.histogram.saturating_record(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds a latency, and one for each request that a waiting sender could not send meanwhile:
    /// each is one interval shorter, down to the interval (Tene's correction for coordinated
    /// omission, for samples of a closed model).
    pub fn record_corrected(&mut self, latency_ns: u64, expected_interval_ns: u64) {
        self.record(latency_ns);
        let mut missing = latency_ns;
        while expected_interval_ns > 0 && missing >= 2 * expected_interval_ns {
            missing -= expected_interval_ns;
            self.record(missing);
        }
    }

    /// Adds every sample of another one. Buckets stay exact between histograms of the same digits.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Removes all samples but keeps the allocation.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.min_ns, self.max_ns) = (u64::MAX, 0);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The exact shortest; 0 when empty.
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    /// The exact longest; 0 when empty.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value at a percentile (0 to 100), never above the longest; 0 when empty.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.histogram.value_at_percentile(percentile).min(self.max_ns)
    }

    /// As [`Latency::percentile_ns`], in milliseconds.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        ms(self.percentile_ns(percentile))
    }

    /// In milliseconds.
    pub fn min_ms(&self) -> f64 {
        ms(self.min_ns())
    }

    /// In milliseconds.
    pub fn max_ms(&self) -> f64 {
        ms(self.max_ns)
    }

    /// Mean in milliseconds; 0 when empty.
    pub fn mean_ms(&self) -> f64 {
        self.histogram.mean() / 1e6
    }

    /// Standard deviation in milliseconds; 0 when empty.
    pub fn stdev_ms(&self) -> f64 {
        self.histogram.stdev() / 1e6
    }

    /// The number of samples from `low_ns` to `high_ns`, to the precision of the buckets.
    pub fn count_between(&self, low_ns: u64, high_ns: u64) -> u64 {
        self.histogram.count_between(low_ns, high_ns)
    }

    /// The buckets (nanoseconds).
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The V2 compressed form.
    pub fn pack(&self) -> Packed {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.histogram, &mut bytes)
            .expect("writing into memory does not fail");
        Packed { bytes, min_ns: self.min_ns(), max_ns: self.max_ns }
    }
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = (self.percentile_ms(50.0), self.percentile_ms(99.0));
        write!(f, "{} × (p50 {p50} ms, p99 {p99} ms, max {} ms)", self.count(), self.max_ms())
    }
}

impl PartialEq for Latency {
    fn eq(&self, other: &Latency) -> bool {
        self.histogram == other.histogram && self.min_ns() == other.min_ns() && self.max_ns == other.max_ns
    }
}

/// Latencies in compressed form: a few hundred bytes instead of tens of thousands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Packed {
    bytes: Vec<u8>,
    min_ns: u64,
    max_ns: u64,
}

impl Packed {
    /// Decompresses; `None` when the bytes are no histogram within this program's bounds.
    pub fn unpack(&self) -> Option<Latency> {
        if self.bytes.is_empty() {
            return Some(Latency::coarse());
        }
        let histogram: Histogram<u64> = FromV2::new().deserialize(&mut self.bytes.as_slice()).ok()?;
        // Copied into a histogram with this program's bounds, so that any input can be merged and
        // recorded into.
        let mut latency = Latency::with_digits(histogram.sigfig().clamp(SECOND_DIGITS, LATENCY_DIGITS));
        latency.histogram.add(&histogram).ok()?;
        latency.min_ns = if latency.count() == 0 { u64::MAX } else { self.min_ns };
        latency.max_ns = self.max_ns;
        Some(latency)
    }

    /// Adds every sample of another one. Returns false, and adds nothing, if the bytes cannot be
    /// read.
    pub fn merge(&mut self, other: &Packed) -> bool {
        let (Some(mut own), Some(others)) = (self.unpack(), other.unpack()) else { return false };
        own.merge(&others);
        *self = own.pack();
        true
    }

    fn to_base64(&self) -> String {
        BASE64.encode(&self.bytes)
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Packed", 3)?;
        object.serialize_field("min_ns", &self.min_ns)?;
        object.serialize_field("max_ns", &self.max_ns)?;
        object.serialize_field("histogram", &self.to_base64())?;
        object.end()
    }
}

/// Only this field is read back; the other figures are computed from it.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    min_ns: u64,
    #[serde(default)]
    max_ns: u64,
    histogram: String,
}

impl Written {
    fn packed<E: serde::de::Error>(self) -> Result<Packed, E> {
        let bytes = BASE64.decode(self.histogram).map_err(E::custom)?;
        let packed = Packed { bytes, min_ns: self.min_ns, max_ns: self.max_ns };
        match packed.unpack() {
            Some(_) => Ok(packed),
            None => Err(E::custom("not a histogram in HdrHistogram's V2 compressed form")),
        }
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Packed, D::Error> {
        Written::deserialize(deserializer)?.packed()
    }
}

/// Percentiles in their order: a map would sort "10" before "2.5".
struct Percentiles<'a>(&'a Latency);

impl Serialize for Percentiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            PERCENTILES.map(|percentile| (percentile.to_string(), self.0.percentile_ms(percentile))),
        )
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let packed = self.pack();
        let mut object = serializer.serialize_struct("Latency", 9)?;
        object.serialize_field("count", &self.count())?;
        object.serialize_field("min", &self.min_ms())?;
        object.serialize_field("mean", &self.mean_ms())?;
        object.serialize_field("stdev", &self.stdev_ms())?;
        object.serialize_field("max", &self.max_ms())?;
        object.serialize_field("percentiles", &Percentiles(self))?;
        object.serialize_field("min_ns", &packed.min_ns)?;
        object.serialize_field("max_ns", &packed.max_ns)?;
        object.serialize_field("histogram", &packed.to_base64())?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latency, D::Error> {
        let packed: Packed = Written::deserialize(deserializer)?.packed()?;
        packed.unpack().ok_or_else(|| D::Error::custom("not a histogram"))
    }
}

/// Values at the percentiles of a list that is not a histogram, such as rates by the second: nearest rank.
pub fn percentile_of(sorted: &[f64], percentile: f64) -> f64 {
    let rank = (percentile / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Counts by name or number.
pub(crate) fn add_counts<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        *into.entry(key.clone()).or_insert(0) += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut latency = Latency::new();
        for ns in [1, 999, 1_000_000, 90_000_000_001] {
            latency.record(ns);
        }
        let text = serde_json::to_string(&latency).unwrap();
        assert!(text.contains("\"histogram\":\"HISTFA"), "{text}");
        let back: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(back, latency);
        assert_eq!(
            (back.min_ns(), back.max_ns(), back.percentile_ns(100.0)),
            (1, 90_000_000_001, 90_000_000_001)
        );
        let packed: Packed = serde_json::from_str(&serde_json::to_string(&latency.pack()).unwrap()).unwrap();
        assert_eq!(packed.unpack().unwrap(), latency);
    }

    #[test]
    fn empty_ones() {
        let empty = Latency::new();
        assert_eq!((empty.min_ns(), empty.max_ns(), empty.percentile_ns(99.0)), (0, 0, 0));
        let back: Latency = serde_json::from_str(&serde_json::to_string(&empty).unwrap()).unwrap();
        assert_eq!(back, empty);
        let mut packed = Packed::default();
        let mut one = Latency::coarse();
        one.record(5);
        assert!(packed.merge(&one.pack()));
        assert_eq!(packed.unpack().unwrap().count(), 1);
    }

    #[test]
    fn garbage_is_refused() {
        for text in ["{\"histogram\":\"HISTFA\"}", "{\"histogram\":\"!\"}", "{}"] {
            assert!(serde_json::from_str::<Latency>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentiles_of_lists() {
        let list = [1.0, 2.0, 3.0, 4.0];
        for (percentile, expected) in
            [(0.0, 1.0), (1.0, 1.0), (50.0, 2.0), (75.0, 3.0), (97.5, 4.0), (100.0, 4.0)]
        {
            assert_eq!(percentile_of(&list, percentile), expected, "{percentile}");
        }
        assert_eq!(percentile_of(&[], 50.0), 0.0);
    }
}
