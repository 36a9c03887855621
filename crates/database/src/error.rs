//! What can go wrong with a database: a kind to match on, a sentence for people, the source kept.
//!
//! The same kinds serve every engine; each engine has one place that maps its own codes to them.

use std::fmt;
use std::sync::Arc;

/// What went wrong, as far as a caller can act on it.
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
    /// The SQL is wrong, or names what does not exist.
    Syntax,
    /// A value is not of the type that its column or function wants.
    Type,
    /// The table is not what this operation needs (no single key, no AUTOINCREMENT, an unknown column type).
    Schema,
    /// The statement ran longer than its time-out, or waited longer than that to be run. It changed nothing.
    Timeout,
    /// Too much is waiting already, it waited too long for a connection, or another session holds a lock that
    /// it needs. Nothing was changed.
    Busy,
    /// The result is larger than the store's result limit.
    TooLarge,
    /// The store cannot be reached: its file is gone, cannot be opened, or cannot be read; its server is
    /// away, refuses the connection, or has none left. Nothing was changed.
    Unavailable,
    /// The connection or the disk failed while committing: the change may be there or not.
    UnknownOutcome,
    /// The drain position in the store is not the expected one: another drain has taken over. Nothing was
    /// changed.
    Fenced,
    /// One change of a batch was refused. Nothing of the batch was applied.
    Row {
        /// Which change, counted from 0.
        index: usize,
        /// Why, as it would have been had it stood alone.
        reason: Box<Kind>,
    },
    /// These changes of a batch were refused ([`OnError::Sift`](crate::OnError::Sift)). Nothing of the batch
    /// was applied.
    Rows {
        /// Which changes, counted from 0.
        indexes: Vec<usize>,
    },
    /// The table is not as the batch needs it (gone, a column dropped, no permission): that concerns each of
    /// its rows. Nothing of the batch was applied.
    Table {
        /// The table's name.
        table: String,
        /// What is wrong.
        reason: Box<Kind>,
    },
    /// One change of a batch was refused, and not even its dead letter could be written. Nothing of the batch
    /// was applied.
    DeadLetter {
        /// Which change, counted from 0.
        index: usize,
        /// The table that the change is of.
        table: String,
    },
    /// `forebay_dead_letter` cannot be made, read or changed. Nothing of the batch was applied.
    NoLetters,
    /// A dead letter is not applied: its row was changed since.
    Newer,
    /// The server failed in itself: neither the row nor the statement is at fault. Nothing was changed.
    Internal,
    /// A batch gave way to direct writes that had waited. Nothing of it was applied.
    Yielded {
        /// How many of its changes the slice had had time for.
        done: usize,
    },
    /// The database file is damaged, or no database.
    Corrupt,
    /// The database or its folder may not be written.
    ReadOnly,
    /// No space is left where the database is.
    Full,
    /// The store's URL cannot be used.
    Url,
}

/// A failed operation on a database. Cheap to clone: one failure may answer many statements.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: String,
    column: Option<Box<str>>,
    constraint: Option<Box<str>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error that has no source.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), column: None, constraint: None, source: None }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }

    /// Says which column it is about, beside what the kind says.
    #[must_use]
    pub(crate) fn with_column(mut self, column: Option<String>) -> Error {
        self.column = column.map(String::into);
        self
    }

    /// Says which constraint refused the data.
    #[must_use]
    pub(crate) fn with_constraint(mut self, constraint: Option<String>) -> Error {
        self.constraint = constraint.map(String::into);
        self
    }

    /// The same failure, told as that of one change of a batch.
    #[must_use]
    pub(crate) fn at_row(self, index: usize) -> Error {
        let message = format!("change {index} of the batch: {}", self.message);
        Error { kind: Kind::Row { index, reason: Box::new(self.kind) }, message, ..self }
    }

    /// A change was refused, and writing its letter failed.
    pub(crate) fn no_letter(index: usize, table: &str, refused: &Error, failed: impl fmt::Display) -> Error {
        let message = format!(
            "has a change that the database refuses ({}), and its dead letter cannot be kept ({failed})",
            refused.message
        );
        Error::new(Kind::DeadLetter { index, table: table.to_owned() }, message).with_source(refused.clone())
    }

    /// The same failure, told as that of a whole table.
    #[must_use]
    pub(crate) fn of_table(self, table: &str) -> Error {
        let message = format!("table {table}: {}", self.message);
        Error { kind: Kind::Table { table: table.to_owned(), reason: Box::new(self.kind) }, message, ..self }
    }

    /// The same failure as one of another kind.
    #[must_use]
    pub(crate) fn with_kind(self, kind: Kind) -> Error {
        Error { kind, ..self }
    }

    /// The same failure of a row that is so many further along.
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

    /// The same failure with more behind it.
    #[must_use]
    pub(crate) fn append(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{}{what}", self.message);
        self
    }

    /// The same failure with where it happened in front.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The column or parameter that the data is at fault in, as far as the store names it, whatever the kind.
    pub fn column(&self) -> Option<&str> {
        match &self.kind {
            Kind::Conflict { column } | Kind::NotNull { column } => column.as_deref(),
            _ => self.column.as_deref(),
        }
    }

    /// The name of the constraint that refused the data, as far as the store names it.
    pub fn constraint(&self) -> Option<&str> {
        self.constraint.as_deref()
    }

    /// A sentence for people, without the source.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same operation may succeed later without anybody changing it.
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
        )
    }

    /// Whether the data is at fault (a constraint, a type), not the store: such a change is refused each
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
