//! The sending queues of interfaces, as `tc -s qdisc` shows them: waiting bytes, dropped packets,
//! and packets held back.
//!
//! Queried from the kernel over a netlink socket (rtnetlink(7); needs no privilege). Request:
//! `nlmsghdr` (16 bytes: length u32, type u16, flags u16, sequence u32, port u32) and `tcmsg` (20
//! bytes: family u8 and padding, interface i32, handle u32, parent u32, info u32), all in the
//! machine's byte order. Answer: such messages with attributes (length u16, type u16, value, padded
//! to 4) until one of type 3. `TCA_STATS2` holds `TCA_STATS_QUEUE`: queued packets, queued bytes,
//! drops, requeues, over limits, u32 each. Only the root queue of an interface counts: its figures
//! include those of the queues below it.

use crate::InterfaceQueue;
use crate::limits::{NETLINK_BYTES, NETLINK_TIMEOUT_MS};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::HashMap;
use std::time::Duration;

const HEADER: usize = 16;
const TC_HEADER: usize = 20;
const GET_QDISC: u16 = 38;
const NEW_QDISC: u16 = 36;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x301;
const ROOT: u32 = 0xFFFF_FFFF;
const STATS2: u16 = 7;
const STATS_QUEUE: u16 = 3;

/// The root queues by interface number; empty when the kernel does not answer (a container may forbid
/// it).
pub(crate) fn queues() -> HashMap<u32, InterfaceQueue> {
    let mut found = HashMap::new();
    // Queues that were read before an error stay valid.
    let _ = read(&mut found);
    found
}

fn read(found: &mut HashMap<u32, InterfaceQueue>) -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // The protocol NETLINK_ROUTE is number 0.
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(NETLINK_TIMEOUT_MS)))?;
    rustix::net::send(&socket, &request(), SendFlags::empty())?;
    let mut buffer = vec![0; NETLINK_BYTES];
    loop {
        let (length, _) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if length == 0 || part(&buffer[..length], found) {
            return Ok(());
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + TC_HEADER);
    bytes.extend(((HEADER + TC_HEADER) as u32).to_ne_bytes());
    bytes.extend(GET_QDISC.to_ne_bytes());
    bytes.extend(REQUEST_ALL.to_ne_bytes());
    bytes.resize(HEADER + TC_HEADER, 0);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
}

/// Reads the messages of one part. Returns whether the list has ended.
fn part(mut bytes: &[u8], found: &mut HashMap<u32, InterfaceQueue>) -> bool {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        if matches!(kind, DONE | ERROR) || length < HEADER || length > bytes.len() {
            return true;
        }
        if kind == NEW_QDISC {
            queue(&bytes[HEADER..length], found);
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    false
}

fn queue(message: &[u8], found: &mut HashMap<u32, InterfaceQueue>) {
    let (Some(interface), Some(ROOT)) = (u32_at(message, 4), u32_at(message, 12)) else { return };
    let figures = message
        .get(TC_HEADER..)
        .and_then(|attributes| attribute(attributes, STATS2))
        .and_then(|statistics| attribute(statistics, STATS_QUEUE));
    let number = |at| figures.and_then(|figures| u32_at(figures, at)).map(u64::from);
    if let (Some(waiting_bytes), Some(dropped), Some(over_limit)) = (number(4), number(8), number(16)) {
        found.insert(interface, InterfaceQueue { waiting_bytes, dropped, over_limit });
    }
}

/// The value of the attribute `wanted`.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        if length < 4 || length > bytes.len() {
            return None;
        }
        // The two highest bits are flags (nested, byte order).
        if kind & 0x3FFF == wanted {
            return Some(&bytes[4..length]);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}
