//! The result of an examination: one [`Finding`] for each subject.

/// One examined subject, and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The examined subject, such as `open files`.
    pub subject: &'static str,
    /// Whether the subject is well.
    pub state: State,
    /// What was found, with its figures.
    pub found: String,
    /// What a state other than [`State::Well`] costs; empty otherwise.
    pub cost: String,
    /// What fixes the finding.
    pub fix: Fix,
}

/// Whether a subject is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing to do.
    Well,
    /// This system does not report it.
    Unknown,
    /// It costs speed.
    Slow,
    /// It costs requests or acknowledged writes.
    Wrong,
}

/// What fixes a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Nothing needs fixing, or only other hardware fixes it.
    Nothing,
    /// A command or setting, for people.
    Command(String),
    /// A kernel setting, which can be written to a file of sysctl.d.
    Sysctl {
        /// Its name, such as `net.core.somaxconn`.
        key: &'static str,
        /// The value that fixes the finding.
        value: String,
    },
}

impl Finding {
    /// A subject that is well.
    pub fn well(subject: &'static str, found: impl Into<String>) -> Finding {
        let (found, cost, fix) = (found.into(), String::new(), Fix::Nothing);
        Finding { subject, state: State::Well, found, cost, fix }
    }

    /// A subject that this system does not report, and why.
    pub fn unknown(subject: &'static str, why: impl Into<String>) -> Finding {
        Finding { state: State::Unknown, ..Finding::well(subject, why) }
    }

    /// A subject that costs speed.
    pub fn slow(
        subject: &'static str,
        found: impl Into<String>,
        cost: impl Into<String>,
        fix: Fix,
    ) -> Finding {
        Finding { state: State::Slow, cost: cost.into(), fix, ..Finding::well(subject, found) }
    }

    /// A subject that costs requests or writes.
    pub fn wrong(
        subject: &'static str,
        found: impl Into<String>,
        cost: impl Into<String>,
        fix: Fix,
    ) -> Finding {
        Finding { state: State::Wrong, ..Finding::slow(subject, found, cost, fix) }
    }
}

impl Fix {
    /// A command or setting.
    pub fn command(text: impl Into<String>) -> Fix {
        Fix::Command(text.into())
    }
}
