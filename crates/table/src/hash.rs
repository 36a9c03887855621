//! Hashes of keys and fingerprints of values, keyed with a secret that is drawn for a data folder.
//!
//! A fingerprint stands for its value: 128 bits of XXH3 under 192 secret bytes. Two of 100,000,000 values
//! have the same one by chance with a probability of 10^-23, and who does not know the secret cannot aim
//! for it. If it did happen, an insert would be refused with a conflict that is none: nothing would be lost
//! or overwritten. Fingerprints leave the process for its checkpoint alone, and the secret with them, in a
//! file that no other user may read; those of a tier on Redis or Valkey never leave the tier, whose random
//! id takes the place of the secret.

use crate::key::KeyRef;
use crate::limits::SHARDS;
use forebay_value::{ValueRef, decimal};
use smallvec::SmallVec;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_128_with_secret, xxh3_128_with_seed};

pub(crate) const SECRET_BYTES: usize = 192;

/// A fingerprint of a value in a column; [`NO_VALUE`] for NULL.
pub(crate) type Fingerprint = u128;

/// The fingerprint of NULL: equal to no value's.
pub(crate) const NO_VALUE: Fingerprint = 0;

/// The hash of a key. The low half finds the place in a shard, bits of the high half the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    pub fn shard(self) -> usize {
        (self.0 >> 32) as usize % SHARDS
    }

    /// The shard of a tier that has so many.
    pub fn shard_of(self, shards: u16) -> u16 {
        ((self.0 >> 32) % u64::from(shards)) as u16
    }

    /// What the shard's index keeps.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// Its low half, spread over the ends of the word that a hash table looks at.
    pub fn spread(self) -> u64 {
        KeyHash::spread_low(self.low())
    }

    /// The same of a low half that was kept.
    pub fn spread_low(low: u32) -> u64 {
        u64::from(low) << 32 | u64::from(low)
    }
}

/// The secret. Clones have the same.
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

    /// One with this secret.
    pub fn of(secret: [u8; SECRET_BYTES]) -> Hasher {
        Hasher { secret: Arc::new(secret) }
    }

    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// The secret that all servers of one tier share: it follows from the tier's id, which was drawn when
    /// the tier was made.
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
            // Adding zero makes -0 what it is equal to.
            ValueRef::Double(v) => of(&(v + 0.0).to_le_bytes()),
            ValueRef::Timestamp(v) => of(&v.0.to_le_bytes()),
            ValueRef::Uuid(v) => of(v.as_bytes()),
            // 1.0 and 1.00 are one number.
            ValueRef::Numeric(v) => of(decimal::canonical(v).as_bytes()),
            ValueRef::Text(v) | ValueRef::Json(v) => of(v.as_bytes()),
            ValueRef::Bytes(v) => of(v),
        };
        let column = (column as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (hash ^ column).max(NO_VALUE + 1)
    }

    /// The fingerprint of several values of a row for a rule; [`NO_VALUE`] where one of them is NULL.
    pub fn joint(&self, rule: usize, values: &[Fingerprint]) -> Fingerprint {
        if values.contains(&NO_VALUE) {
            return NO_VALUE;
        }
        let bytes: SmallVec<[u8; 64]> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.fingerprint(rule, ValueRef::Bytes(&bytes))
    }
}
