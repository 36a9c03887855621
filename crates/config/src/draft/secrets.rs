//! Tells by its names what of a table is nobody's business: a draft shows no such column, and gives the
//! routes of such a table to nobody before an operator decides.
//!
//! Names are all that there is to go by. A wrong guess costs a line in the draft; a missed one is for the
//! reader of the draft, whose first lines say so.

use forebay_value::{Column, Schema};

/// What the name of a secret column contains, in lower case and without separators.
const IN_COLUMNS: [&str; 14] = [
    "passw",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "salt",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "sessionkey",
    "sessionid",
    "recoverycode",
    "onetimecode",
];

/// What a secret column is called as a whole, or with a prefix or suffix of another word.
const WORDS_OF_COLUMNS: [&str; 7] = ["pwd", "pin", "otp", "totp", "cvv", "cvc", "ssn"];

/// The words of the names of tables about people and their access.
const WORDS_OF_TABLES: [&str; 12] = [
    "user",
    "account",
    "session",
    "token",
    "credential",
    "password",
    "secret",
    "superuser",
    "login",
    "admin",
    "identity",
    "apikey",
];

/// Whether a column is named like a secret.
pub(super) fn is_secret(column: &Column) -> bool {
    let joined: String = words(&column.name).concat();
    IN_COLUMNS.iter().any(|part| joined.contains(part))
        || words(&column.name).iter().any(|word| WORDS_OF_COLUMNS.contains(&word.as_str()))
}

/// Whether a table is about people or their access.
pub(super) fn is_private(schema: &Schema) -> bool {
    let is_of_people = |word: &String| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        WORDS_OF_TABLES.iter().any(|name| *name == word || *name == singular)
    };
    schema.columns.iter().any(is_secret) || words(&schema.name).iter().any(is_of_people)
}

/// The words of a name such as `api_key`, `apiKey` or `app.users`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && was_lower {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_value::{KeyKind, Type};

    fn column(name: &str) -> Column {
        Column {
            name: name.into(),
            ty: Type::TEXT,
            nullable: true,
            unique: false,
            indexed: false,
            fill: None,
        }
    }

    #[test]
    fn columns_that_are_named_like_secrets() {
        for name in [
            "password",
            "passwd",
            "password_hash",
            "encrypted_password",
            "tfa_secret",
            "tokenKey",
            "api_key",
            "apiKey",
            "APIKEY",
            "private_key",
            "salt",
            "otp",
            "login_pin",
            "session_key",
            "accessToken",
        ] {
            assert!(is_secret(&column(name)), "{name}");
        }
        for name in ["id", "name", "email", "key", "hash", "pinned", "spinner", "code", "total", "options"] {
            assert!(!is_secret(&column(name)), "{name}");
        }
    }

    #[test]
    fn tables_about_people() {
        let table = |name: &str| {
            Schema::new(name, vec![Column { nullable: false, ..column("id") }], 0, KeyKind::Text)
                .expect("a schema")
        };
        for name in ["users", "auth_user", "directus_users", "access_tokens", "userSessions", "_superusers"] {
            assert!(is_private(&table(name)), "{name}");
        }
        for name in ["orders", "products", "visits", "usage", "tokenizer", "codes"] {
            assert!(!is_private(&table(name)), "{name}");
        }
    }
}
