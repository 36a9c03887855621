//! Hashes of keys and fingerprints of values, keyed with a secret that is drawn for a data folder.
//!
//! A fingerprint stands for its value: 128 bits of XXH3 under 192 secret bytes. Among 100,000,000 values two
//! have the same fingerprint with a probability of 10^-23, and a client that does not know the secret cannot
//! provoke that. If it did happen, an insert would be refused with a false conflict: nothing would be lost or
//! overwritten. Fingerprints leave the process only in its checkpoint, together with the secret, in a file
//! that no other user may read; those of a tier on Redis or Valkey never leave the tier, whose random id
//! replaces the secret.

use crate::key::KeyRef;
use crate::limits::SHARDS;
use forebay_value::{LocalTimestamp, ValueRef, decimal};
use smallvec::SmallVec;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_128_with_secret, xxh3_128_with_seed};

pub(crate) const SECRET_BYTES: usize = 192;

/// A fingerprint of a value in a column; [`NO_VALUE`] for NULL.
pub(crate) type Fingerprint = u128;

/// The fingerprint of NULL, which no other value has.
pub(crate) const NO_VALUE: Fingerprint = 0;

/// The hash of a key. The low half selects the place in a shard, the high half the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub fn shard(self) -> usize {
        (self.0 >> 32) as usize % SHARDS
    }

    /// The shard of a key in a tier with `shards` shards.
    pub fn shard_of(self, shards: u16) -> u16 {
        ((self.0 >> 32) % u64::from(shards)) as u16
    }

    /// The low half, which the shard's index stores.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// The low half, copied to both ends of the word, because a hash table uses the bits of both ends.
    pub fn spread(self) -> u64 {
        KeyHash::spread_low(self.low())
    }

    /// [`KeyHash::spread`] of a stored low half.
    pub fn spread_low(low: u32) -> u64 {
        u64::from(low) << 32 | u64::from(low)
    }
}

/// Hashes with a secret. Clones share the same secret.
#[derive(Clone)]
pub(crate) struct Hasher {
    secret: Arc<[u8; SECRET_BYTES]>,
}

impl Hasher {
    pub fn new() -> Hasher {
        let mut secret = [0; SECRET_BYTES];
        for part in secret.as_chunks_mut::<8>().0 {
            *part = rand::random();
        }
        Hasher::of(secret)
    }

    /// A hasher with this secret.
    pub fn of(secret: [u8; SECRET_BYTES]) -> Hasher {
        Hasher { secret: Arc::new(secret) }
    }

    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// A hasher with the secret that all servers of one tier share: it is derived from the tier's id, which
    /// was drawn at random when the tier was created.
    pub fn shared(tier: u128) -> Hasher {
        let mut secret = [0; SECRET_BYTES];
        for (index, part) in secret.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            *part = xxh3_128_with_seed(&tier.to_le_bytes(), index as u64).to_le_bytes();
        }
        Hasher::of(secret)
    }

    pub fn key(&self, key: KeyRef<'_>) -> KeyHash {
        KeyHash(match key {
            KeyRef::Bigint(number) => xxh3_64_with_secret(&number.to_le_bytes(), &self.secret[..]),
            KeyRef::Uuid(id) => xxh3_64_with_secret(id.as_bytes(), &self.secret[..]),
            KeyRef::Text(text) => xxh3_64_with_secret(text.as_bytes(), &self.secret[..]),
        })
    }

    /// The fingerprint of a value of column number `column`: the same value in another column has another
    /// one.
    pub fn fingerprint(&self, column: usize, value: ValueRef<'_>) -> Fingerprint {
        let of = |bytes: &[u8]| xxh3_128_with_secret(bytes, &self.secret[..]);
        let hash = match value {
            ValueRef::Null => return NO_VALUE,
            ValueRef::Bool(v) => of(&[u8::from(v)]),
            ValueRef::Bigint(v) => of(&v.to_le_bytes()),
            ValueRef::Double(v) if v.is_nan() => of(&f64::NAN.to_le_bytes()),
            // Adding zero turns -0 into 0, to which it is equal.
            ValueRef::Double(v) => of(&(v + 0.0).to_le_bytes()),
            ValueRef::Timestamp(v) | ValueRef::Local(LocalTimestamp(v)) => of(&v.0.to_le_bytes()),
            ValueRef::Uuid(v) => of(v.as_bytes()),
            // 1.0 and 1.00 are the same number.
            ValueRef::Numeric(v) => of(decimal::canonical(v).as_bytes()),
            ValueRef::Text(v) | ValueRef::Json(v) => of(v.as_bytes()),
            ValueRef::Bytes(v) => of(v),
        };
        let column = (column as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (hash ^ column).max(NO_VALUE + 1)
    }

    /// The joint fingerprint of several values of a row under a rule; [`NO_VALUE`] if one of them is NULL.
    pub fn joint(&self, rule: usize, values: &[Fingerprint]) -> Fingerprint {
        if values.contains(&NO_VALUE) {
            return NO_VALUE;
        }
        let bytes: SmallVec<[u8; 64]> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.fingerprint(rule, ValueRef::Bytes(&bytes))
    }
}
