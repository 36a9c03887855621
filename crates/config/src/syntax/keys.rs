//! The keys that the file may contain, each with its documentation. Files are checked against them.

/// A key and its documentation.
#[derive(Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    /// The kind of its value, with the unit.
    pub value: &'static str,
    /// The default, as the file would write it; "" for none, or words in parentheses.
    pub default: &'static str,
    /// The description.
    pub what: &'static str,
}

/// A table of keys.
#[derive(Debug)]
pub(crate) struct Section {
    /// The name in messages.
    pub name: &'static str,
    pub keys: &'static [Key],
}

/// An action: its own key, and the keys that belong to it.
#[derive(Debug)]
pub(crate) struct ActionKeys {
    pub action: Key,
    pub with: &'static [Key],
}

/// Keys, one per row: name, value, default, description.
macro_rules! keys {
    ($($name:literal | $value:literal | $default:literal | $what:literal)*) => {
        &[$($crate::syntax::keys::Key { name: $name, value: $value, default: $default, what: $what }),*]
    };
}

/// An action (its key, the value, a description) and the keys that belong to it.
macro_rules! action {
    ($name:literal | $value:literal | $what:literal => { $($with:tt)* }) => {
        $crate::syntax::keys::ActionKeys {
            action: $crate::syntax::keys::Key { name: $name, value: $value, default: "", what: $what },
            with: $crate::syntax::keys::keys! { $($with)* },
        }
    };
}

pub(crate) use {action, keys};
