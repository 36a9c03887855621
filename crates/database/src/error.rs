//! Database errors: a kind to match on, a sentence for people, and the source.
//!
//! The same kinds serve every engine; each engine has one place that maps its own codes to them.

use std::fmt;
use std::sync::Arc;

/// The kind of failure, as far as a caller can act on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A unique value or a key exists already.
    Conflict {
        /// The column, when the store names one.
        column: Option<String>,
    },
    /// A column that must have a value got none.
    NotNull {
        /// The column, when the store names one.
        column: Option<String>,
    },
    /// A CHECK, a foreign key or a trigger refused the row.
    Check,
    /// The SQL is wrong, or names something that does not exist.
    Syntax,
    /// A value does not have the type of its column or function argument.
    Type,
    /// A stored value is beyond what can be held or shown here.
    Unfit,
    /// The table is not what this operation needs (no single key, no AUTOINCREMENT, an unknown column type).
    Schema,
    /// The statement ran longer than its timeout, or waited longer than that to be run. It changed nothing.
    Timeout,
    /// Too many requests are waiting already, this one waited too long for a connection, or another session
    /// holds a lock that it needs. Nothing was changed.
    Busy,
    /// The result is larger than the store's result limit.
    TooLarge,
    /// The database cannot be reached: its file does not exist, cannot be opened, or cannot be read; its
    /// server is unreachable, refuses the connection, or has none left. Nothing was changed.
    Unavailable,
    /// The connection or the disk failed while committing: whether the change was committed is unknown.
    UnknownOutcome,
    /// The drain position in the store is not the expected one: another drain has taken over. Nothing was
    /// changed.
    Fenced,
    /// A table has got or lost a trigger, a rule or a foreign key since the batch was prepared
    /// ([`Batch::basis`](crate::Batch::basis)). Nothing of the batch was applied.
    Altered,
    /// One change of a batch was refused. Nothing of the batch was applied.
    Row {
        /// The index of the change, counted from 0.
        index: usize,
        /// The reason, as it would be if the change were alone.
        reason: Box<Kind>,
    },
    /// These changes of a batch were refused ([`OnError::Sift`](crate::OnError::Sift)). Nothing of the batch
    /// was applied.
    Rows {
        /// The indexes of the changes, counted from 0.
        indexes: Vec<usize>,
    },
    /// The table is not as the batch needs it (dropped, a column dropped, no permission): this affects each
    /// of its rows. Nothing of the batch was applied.
    Table {
        /// The table's name.
        table: String,
        /// What is wrong.
        reason: Box<Kind>,
    },
    /// One change of a batch was refused, and not even its dead letter could be written. Nothing of the batch
    /// was applied.
    DeadLetter {
        /// The index of the change, counted from 0.
        index: usize,
        /// The table of the change.
        table: String,
    },
    /// `forebay_dead_letter` cannot be made, read or changed. Nothing of the batch was applied.
    NoLetters,
    /// A dead letter was not applied: its row was changed since.
    Newer,
    /// The server had an internal failure: neither the row nor the statement is at fault. Nothing was
    /// changed.
    Internal,
    /// A batch yielded to waiting direct writes. Nothing of the batch was applied.
    Yielded {
        /// How many of its changes were executed within the slice.
        done: usize,
    },
    /// The database file is damaged, or is not a database.
    Corrupt,
    /// The database or its folder may not be written.
    ReadOnly,
    /// No space is left where the database is, or no key in a sequence.
    Full,
    /// The store's URL cannot be used.
    Url,
}

/// A batch made no progress although the database answers: other batches may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The table whose change could not be made; `None`: the COMMIT failed, and any of them may be at fault.
    pub table: Option<String>,
    /// Why, without values of a row: the rest of a sentence about the table.
    pub why: String,
}

/// What a function or a trigger of the application raised: a sentence for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// The sentence.
    pub message: Box<str>,
    /// The HTTP status that it asks for.
    pub status: Option<u16>,
}

/// What refused the data.
#[derive(Debug, Clone, Default)]
struct Refusal {
    constraint: Option<Box<str>>,
    raised: Option<Raised>,
}

/// A failed operation on a database. Cheap to clone: one failure may answer many statements.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: Box<str>,
    column: Option<Box<str>>,
    refusal: Option<Box<Refusal>>,
    stuck: Option<Arc<Stuck>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error that has no source.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        let message = message.into().into();
        Error { kind, message, column: None, refusal: None, stuck: None, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }

    /// Adds the column at fault, for kinds that do not name it.
    #[must_use]
    pub(crate) fn with_column(mut self, column: Option<String>) -> Error {
        self.column = column.map(String::into);
        self
    }

    /// Adds the constraint that refused the data.
    #[must_use]
    pub(crate) fn with_constraint(mut self, constraint: Option<String>) -> Error {
        if let Some(constraint) = constraint {
            self.refusal.get_or_insert_default().constraint = Some(constraint.into());
        }
        self
    }

    /// Adds what the application raised.
    #[must_use]
    pub(crate) fn with_raised(mut self, raised: Option<Raised>) -> Error {
        if raised.is_some() {
            self.refusal.get_or_insert_default().raised = raised;
        }
        self
    }

    /// Adds where and why the batch made no progress.
    #[must_use]
    pub(crate) fn stuck_at(self, table: Option<&str>, why: String) -> Error {
        let stuck = Stuck { table: table.map(str::to_owned), why };
        Error { stuck: Some(Arc::new(stuck)), ..self }
    }

    /// The same failure with the session that holds the lock.
    #[must_use]
    pub(crate) fn blocked_by(self, who: &str) -> Error {
        let stuck = self.stuck.as_deref().map(|stuck| {
            Arc::new(Stuck { why: format!("{who} holds a lock that it needs"), ..stuck.clone() })
        });
        Error { stuck, message: format!("{}: {who} holds the lock", self.message).into(), ..self }
    }

    /// The same failure, as that of one change of a batch.
    #[must_use]
    pub(crate) fn at_row(self, index: usize) -> Error {
        let message = format!("change {index} of the batch: {}", self.message).into();
        Error { kind: Kind::Row { index, reason: Box::new(self.kind) }, message, ..self }
    }

    /// A change was refused, and writing its dead letter failed.
    pub(crate) fn no_letter(index: usize, table: &str, refused: &Error, failed: impl fmt::Display) -> Error {
        let message = format!(
            "has a change that the database refuses ({}), and its dead letter cannot be kept ({failed})",
            refused.message
        );
        Error::new(Kind::DeadLetter { index, table: table.to_owned() }, message).with_source(refused.clone())
    }

    /// The same failure, as that of a whole table.
    #[must_use]
    pub(crate) fn of_table(self, table: &str) -> Error {
        let message = format!("table {table}: {}", self.message).into();
        Error { kind: Kind::Table { table: table.to_owned(), reason: Box::new(self.kind) }, message, ..self }
    }

    /// The same failure with another kind.
    #[must_use]
    pub(crate) fn with_kind(self, kind: Kind) -> Error {
        Error { kind, ..self }
    }

    /// The same failure, with the row's index increased by `by`.
    #[must_use]
    pub(crate) fn moved(self, by: usize) -> Error {
        match self.kind {
            Kind::Row { index, reason } => Error { kind: Kind::Row { index: index + by, reason }, ..self },
            Kind::DeadLetter { index, table } => {
                Error { kind: Kind::DeadLetter { index: index + by, table }, ..self }
            }
            _ => self,
        }
    }

    /// The same failure with `what` after the message.
    #[must_use]
    pub(crate) fn append(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{}{what}", self.message).into();
        self
    }

    /// The same failure with `what`, the place of the failure, before the message.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message).into();
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The column or parameter at fault, as far as the database names it, whatever the kind.
    pub fn column(&self) -> Option<&str> {
        match &self.kind {
            Kind::Conflict { column } | Kind::NotNull { column } => column.as_deref(),
            _ => self.column.as_deref(),
        }
    }

    /// The name of the constraint that refused the data, as far as the database names it.
    pub fn constraint(&self) -> Option<&str> {
        self.refusal.as_ref()?.constraint.as_deref()
    }

    /// What a function or a trigger of the application raised.
    pub fn raised(&self) -> Option<&Raised> {
        self.refusal.as_ref()?.raised.as_ref()
    }

    /// Where a batch made no progress, if the database answers and does so only for this batch.
    pub fn stuck(&self) -> Option<&Stuck> {
        self.stuck.as_deref()
    }

    /// A sentence for people, without the source.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same operation may succeed later without any change by the caller.
    pub fn may_retry(&self) -> bool {
        matches!(
            self.kind,
            Kind::Timeout
                | Kind::Busy
                | Kind::Unavailable
                | Kind::UnknownOutcome
                | Kind::ReadOnly
                | Kind::Full
                | Kind::Internal
                | Kind::Yielded { .. }
                | Kind::Altered
        )
    }

    /// Whether the data is at fault (a constraint, a type), not the database: such a change is refused each
    /// time.
    pub fn is_data(&self) -> bool {
        matches!(
            self.kind,
            Kind::Row { .. }
                | Kind::Rows { .. }
                | Kind::Conflict { .. }
                | Kind::NotNull { .. }
                | Kind::Check
                | Kind::Type
                | Kind::Newer
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
