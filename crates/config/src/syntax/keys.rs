//! Keys that the file may have, each with what the documentation says of it. Files are checked against them.

/// A key and its documentation.
#[derive(Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    /// What its value is, with its unit.
    pub value: &'static str,
    /// What it is when it is not given, as it would be written; "" for none, or words in parentheses.
    pub default: &'static str,
    /// What it says.
    pub what: &'static str,
}

/// A table of keys.
#[derive(Debug)]
pub(crate) struct Section {
    /// As messages name it.
    pub name: &'static str,
    pub keys: &'static [Key],
}

/// An action: its key, and the keys that go with it.
#[derive(Debug)]
pub(crate) struct ActionKeys {
    pub action: Key,
    pub with: &'static [Key],
}

/// Keys, one a row: name, value, default, what it says.
macro_rules! keys {
    ($($name:literal | $value:literal | $default:literal | $what:literal)*) => {
        &[$($crate::syntax::keys::Key { name: $name, value: $value, default: $default, what: $what }),*]
    };
}

/// An action (its key, the value, what it does) and the keys that go with it.
macro_rules! action {
    ($name:literal | $value:literal | $what:literal => { $($with:tt)* }) => {
        $crate::syntax::keys::ActionKeys {
            action: $crate::syntax::keys::Key { name: $name, value: $value, default: "", what: $what },
            with: $crate::syntax::keys::keys! { $($with)* },
        }
    };
}

pub(crate) use {action, keys};
