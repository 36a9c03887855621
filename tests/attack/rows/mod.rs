//! The table of attacks.

mod answers;
mod behind;
mod bodies;
mod connections;

use crate::crowd::Hold;
use crate::sizes::Sizes;
use crate::target::{Reader, Target};
use crate::upstream::{Behaviour, Upstream};
use forebay_tests::Folder;

/// What an attack is set up with.
pub struct Scene<'a> {
    pub sizes: &'a Sizes,
    pub folder: &'a Folder,
    pub upstream: Option<&'a Upstream>,
}

impl Scene<'_> {
    /// The URL of the upstream.
    pub fn behind(&self) -> String {
        format!("http://{}", self.upstream.expect("the row has an upstream").address)
    }
}

/// One row.
pub struct Attack {
    pub name: &'static str,
    /// What the config has besides limits, log, and the endpoint of the normal client.
    pub config: fn(&Scene<'_>) -> String,
    pub upstream: Option<fn(&Sizes) -> Behaviour>,
    pub open: fn(&Scene<'_>, &Target) -> Box<dyn Hold>,
    /// The most memory that it may reach, in bytes, and the same in words.
    pub bound: fn(&Sizes) -> u64,
    pub formula: &'static str,
    /// Whether the access log is on, once for each measurement.
    pub logs: &'static [bool],
    pub reader: Reader,
}

/// What most rows have.
const ROW: Attack = Attack {
    name: "",
    config: |_| String::new(),
    upstream: None,
    open: |_, _| unreachable!("each row opens its attack"),
    bound: |_| 0,
    formula: "",
    logs: &[true, false],
    reader: Reader::Reads,
};

pub fn all() -> impl Iterator<Item = &'static Attack> {
    [connections::ROWS, bodies::ROWS, answers::ROWS, behind::ROWS].into_iter().flatten()
}
