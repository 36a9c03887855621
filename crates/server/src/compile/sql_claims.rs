//! `$auth.sub` in SQL: databases do not accept dots in names, so a claim gets a name that no parameter can
//! have.

/// Stands for the dot. PostgreSQL's and SQLite's lexers accept it as a letter; the config's lexer does not.
const DOT: char = '\u{1c0}';

/// Rewrites a statement so that claims have names that databases accept. Quoted text stays unchanged.
pub fn plain(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut quote = None;
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if rest.starts_with("$auth.")
                && !out.ends_with(|c: char| c == '_' || c.is_alphanumeric()) =>
            {
                out.push_str("$auth");
                out.push(DOT);
                rest = &rest["$auth.".len()..];
                continue;
            }
            _ => {}
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Turns a parameter name of such a statement back into the name that the config uses.
pub fn name(param: &str) -> String {
    param.replacen(DOT, ".", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_in_statements() {
        for (sql, params) in [
            ("UPDATE a SET b = $b WHERE owner = $auth.sub", 1),
            ("SELECT $auth.sub, $auth.role", 2),
            ("SELECT '$auth.sub', \"$auth.sub\", 'it''s $auth.sub', x$auth.sub, $author.x", 0),
        ] {
            let plain = plain(sql);
            assert_eq!(plain.matches(DOT).count(), params, "{sql}");
            assert_eq!(plain.replace(DOT, "."), sql);
        }
        assert_eq!((name(&plain("auth.x")), name("auth\u{1c0}sub")), ("auth.x".into(), "auth.sub".into()));
    }
}
