//! What `guard = { … }` means: part of the model, in a file of its own.

/// Who may call an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Where the secret is to be found.
    pub place: Place,
    /// The secret; empty: nobody whom the guard stops gets in.
    pub secret: String,
    /// Whom the guard stops.
    pub from: From,
    /// What those see: 404, 401 or 403.
    pub status: u16,
    /// Its line.
    pub line: usize,
}

/// Where a secret is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `query = "name"`: a query parameter.
    Query(String),
    /// `header = "Name"`: a header field.
    Header(String),
}

/// Whom a guard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// `from = "anywhere"`: everybody.
    Anywhere,
    /// `from = "outside"`: everybody but clients on the loopback interface.
    Outside,
}
