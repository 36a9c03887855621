//! Slots: the 16,384 parts of a cluster's key space, and short hash tags that map to a given slot.
//!
//! Source: Redis Cluster specification, "Key distribution model" and "Hash tags" (CRC-16/XMODEM
//! modulo 16,384).

use std::sync::OnceLock;

/// Number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// A part of the key space. Outside a cluster the one primary owns every slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

const CRC16: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key: of the text between its first `{` and the next `}`, when that is not empty.
pub fn slot_of(key: &[u8]) -> Slot {
    let crc =
        hashed(key).iter().fold(0u16, |crc, &byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)]);
    Slot(crc % SLOTS)
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &inner[..length],
        _ => key,
    }
}

/// A hash tag (to be put between braces) of at most four characters whose slot is `slot`.
///
/// # Panics
/// When `slot` is not below [`SLOTS`].
pub fn tag_for_slot(slot: Slot) -> &'static str {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    &TAGS.get_or_init(search_tags)[usize::from(slot.0)]
}

/// The shortest tag of each slot in base 36: after 36 + 36² + 36³ tags about 5 % of the slots need tags of
/// four characters.
fn search_tags() -> Vec<String> {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut tags = vec![String::new(); usize::from(SLOTS)];
    let mut missing = tags.len();
    for length in 1..=4u32 {
        for mut number in 0..36usize.pow(length) {
            let mut tag = String::with_capacity(4);
            for _ in 0..length {
                tag.push(char::from(DIGITS[number % 36]));
                number /= 36;
            }
            let place = &mut tags[usize::from(slot_of(tag.as_bytes()).0)];
            if place.is_empty() {
                *place = tag;
                missing -= 1;
                if missing == 0 {
                    return tags;
                }
            }
        }
    }
    unreachable!("1.7 million tags reach every one of 16,384 slots")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_redis_gives_them() {
        let cases: &[(&str, u16)] = &[
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("user1000", 3_443),
            ("foo{}{bar}", 8_363),
            ("", 0),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key.as_bytes()), Slot(*slot), "{key}");
        }
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
    }

    #[test]
    fn every_slot_has_a_short_tag() {
        for slot in 0..SLOTS {
            let tag = tag_for_slot(Slot(slot));
            assert!((1..=4).contains(&tag.len()));
            assert_eq!(slot_of(format!("x:{{{tag}}}:y").as_bytes()), Slot(slot));
        }
    }
}
