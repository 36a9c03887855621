//! `[admin]`: the admin listener.

use crate::syntax::fields::{Cursor, name};
use crate::syntax::keys::{Section, keys};
use crate::syntax::units::address;
use std::net::SocketAddr;

pub(crate) const ADMIN: Section = Section {
    name: "[admin]",
    keys: keys! {
        "listen" | "loopback address" | "\"127.0.0.1:0\"" |
            "where the admin listener is; port 0 is any free one, printed at start"
    },
};

/// `[admin]`: the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admin {
    /// A loopback address; port 0: any free one, printed at start.
    pub listen: SocketAddr,
}

/// `[admin]`
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Admin {
    let mut admin = Admin { listen: SocketAddr::from(([127, 0, 0, 1], 0)) };
    if let Some(cursor) = cursor {
        cursor.section(&ADMIN).set("listen", &mut admin.listen, |node| {
            let address = address(&name(node)?)?;
            match address.ip().is_loopback() {
                true => Ok(address),
                false => Err(format!(
                    "{address} can be reached from outside; the admin listener has no password and must be on loopback"
                )),
            }
        });
    }
    admin
}
