//! The file format: round trips, and the exact layout that the top of the module describes.

use super::*;

const IDENTITY: Identity =
    Identity { id: LogId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10), salt: 0x1112_1314_1516_1718 };

fn group(records: &[&[u8]], start: Position) -> Vec<u8> {
    let mut group = vec![0xAA; GROUP_HEADER_BYTES];
    for record in records {
        group.extend_from_slice(&(record.len() as u32).to_le_bytes());
        group.extend_from_slice(record);
    }
    seal_group(&mut group, IDENTITY, start, records.len() as u32);
    group
}

fn is_valid(bytes: &[u8]) -> bool {
    decode_group_header(bytes, IDENTITY.id)
        .filter(|header| header.bytes as usize == bytes.len())
        .is_some_and(|header| check_group(bytes, &header, IDENTITY.salt))
}

#[test]
fn groups_round_trip() {
    let big = vec![7; 5000];
    let cases: [&[&[u8]]; 5] = [&[b""], &[b"a"], &[b"one", b"", b"three"], &[&big], &[&[0; 460]]];
    for records in cases {
        let bytes = group(records, Position(1024));
        assert_eq!(bytes.len() % 512, 0);
        let header = decode_group_header(&bytes, IDENTITY.id).expect("a header");
        assert_eq!(header.start, Position(1024));
        assert_eq!(header.records as usize, records.len());
        assert!(is_valid(&bytes));
        assert_eq!(group_lengths(&bytes), (bytes.len(), header.content as usize));
        let mut at = GROUP_HEADER_BYTES;
        for record in records {
            let (found, end) = next_record(&bytes, at);
            assert_eq!(found, *record);
            at = end;
        }
        assert_eq!(at, header.content as usize);
    }
}

#[test]
fn every_changed_bit_of_a_group_is_noticed() {
    let good = group(&[b"first", b"second"], Position(512));
    for at in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        assert!(!is_valid(&bytes), "bit {at}");
    }
}

#[test]
fn another_log_or_salt_is_not_valid() {
    let bytes = group(&[b"record"], Position(0));
    assert_eq!(decode_group_header(&bytes, LogId(1)), None);
    let header = decode_group_header(&bytes, IDENTITY.id).expect("a header");
    assert!(!check_group(&bytes, &header, IDENTITY.salt + 1));
}

#[test]
fn records_that_do_not_fill_the_content_are_not_valid() {
    // The checksum is right but the structure is not: lengths too long, too short, a wrong count, a part of a
    // length.
    for (length, count, content) in [(7_u32, 1_u32, 58), (5, 1, 58), (6, 2, 58), (6, 0, 58), (6, 1, 59)] {
        let mut bytes = vec![0; GROUP_HEADER_BYTES];
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.resize(content, 0);
        seal_group(&mut bytes, IDENTITY, Position(0), count);
        assert!(!is_valid(&bytes), "{length} {count} {content}");
    }
    assert!(is_valid(&group(&[b"abcdef"], Position(0))));
}

#[test]
fn headers_round_trip_and_notice_every_changed_bit() {
    let manifest = encode_manifest(IDENTITY, Position(77));
    let segment = encode_segment(IDENTITY, Position(88));
    assert_eq!(decode_manifest(&manifest), Ok((IDENTITY, Position(77))));
    assert_eq!(decode_segment(&segment), Ok((IDENTITY, Position(88))));
    for at in 0..manifest.len() * 8 {
        let mut bytes = manifest;
        bytes[at / 8] ^= 1 << (at % 8);
        assert_eq!(decode_manifest(&bytes), Err(Invalid::Damaged));
    }
    for at in 0..segment.len() * 8 {
        let mut bytes = segment;
        bytes[at / 8] ^= 1 << (at % 8);
        assert_eq!(decode_segment(&bytes), Err(Invalid::Damaged));
    }
    assert_eq!(decode_manifest(&segment[..MANIFEST_BYTES]), Err(Invalid::Damaged));
    assert_eq!(decode_segment(&manifest), Err(Invalid::Damaged));
}

#[test]
fn the_layout_is_what_is_written_down() {
    let bytes = group(&[b"xyz"], Position(0x2000));
    assert_eq!(&bytes[0..8], b"FBGROUP1");
    assert_eq!(bytes[8..24], IDENTITY.id.0.to_le_bytes());
    assert_eq!(bytes[24..32], 0x2000_u64.to_le_bytes());
    assert_eq!(bytes[32..36], 512_u32.to_le_bytes());
    assert_eq!(bytes[36..40], 55_u32.to_le_bytes());
    assert_eq!(bytes[40..44], 1_u32.to_le_bytes());
    assert_eq!(&bytes[48..55], b"\x03\0\0\0xyz");
    assert!(bytes[55..].iter().all(|byte| *byte == 0));
    let segment = encode_segment(IDENTITY, Position(5));
    assert_eq!((&segment[0..8], segment[8]), (&b"FBSEGMT1"[..], 1));
    assert_eq!(segment[40..48], 5_u64.to_le_bytes());
    let manifest = encode_manifest(IDENTITY, Position(6));
    assert_eq!((&manifest[0..8], manifest[8]), (&b"FBMANIF1"[..], 1));
    assert_eq!(manifest[32..40], IDENTITY.salt.to_le_bytes());
}
