//! `[admin]`: the admin listener and the status listener.

use crate::syntax::fields::{Cursor, Fields, name, text};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::units::address;
use std::net::SocketAddr;

pub(crate) const ADMIN: Section = Section {
    name: "[admin]",
    keys: keys! {
        "listen" | "loopback address" | "\"127.0.0.1:0\"" |
            "the address of the admin listener; port 0: any free port, printed at start"
        "status" | "address" | "(nowhere)" |
            "the address of the status listener: `/health`, `/ready` and `/metrics` for probes and \
            Prometheus on other machines"
        "status_token" | "text" | "" |
            "the token that requests to the status listener must send (`Authorization: Bearer TOKEN`), \
            usually \"${VARIABLE}\"; required unless `status` is loopback"
    },
};

/// `[admin]`: the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// A loopback address; port 0: any free port, printed at start.
    pub listen: SocketAddr,
    /// The status listener; `None`: there is none.
    pub status: Option<Status>,
}

/// The listener on which programs on other machines ask for the server's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// An address on any network.
    pub listen: SocketAddr,
    /// The token that a request must contain; `None` only on loopback.
    pub token: Option<String>,
}

/// `[admin]`
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Admin {
    let mut admin = Admin { listen: SocketAddr::from(([127, 0, 0, 1], 0)), status: None };
    if let Some(cursor) = cursor {
        let fields = cursor.section(&ADMIN);
        fields.set("listen", &mut admin.listen, |node| {
            let address = address(&name(node)?)?;
            match address.ip().is_loopback() {
                true => Ok(address),
                false => Err(Mistake::from(format!(
                    "{address} can be reached from outside; the admin listener has no password and must be on loopback"
                ))),
            }
        });
        admin.status = status(&fields);
    }
    admin
}

fn status(fields: &Fields<'_>) -> Option<Status> {
    let listen = fields.read("status", |node| address(&name(node)?));
    let token = fields.read("status_token", |node| match text(node)? {
        token if token.is_empty() => Err("is empty: is the variable set?".into()),
        token => Ok(token),
    });
    if fields.has("status_token") && !fields.has("status") {
        fields
            .wrong_at("status_token", "status_token goes with `status`, the address of the status listener");
    }
    let listen = listen?;
    if !listen.ip().is_loopback() && !fields.has("status_token") {
        fields.wrong_at(
            "status",
            format!("status: {listen} can be reached from outside, and needs `status_token`"),
        );
    }
    Some(Status { listen, token })
}
