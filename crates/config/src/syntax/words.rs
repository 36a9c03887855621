//! Names and lists in messages: the nearest known word, a URL without its secrets, the names that are
//! permitted.

/// `; did you mean X?` when one of the candidates is similar, else nothing.
pub(crate) fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let given = given.to_lowercase();
    let near = |candidate: &&str| {
        let candidate = candidate.to_lowercase();
        candidate.starts_with(&given) && given.len() > 2
            || strsim::damerau_levenshtein(&candidate, &given) <= 1 + given.len() / 4
    };
    let distance = |candidate: &&str| strsim::damerau_levenshtein(&candidate.to_lowercase(), &given);
    match candidates.into_iter().filter(near).min_by_key(distance) {
        Some(candidate) => format!("; did you mean {candidate}?"),
        None => String::new(),
    }
}

/// `a, b, c`
pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

/// A URL, or a line that contains one, without its password: `postgres://user:***@host/db`.
pub(crate) fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, host) = rest.rsplit_once('@')?;
        let (user, _) = user.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{host}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

/// Whether `$name` can refer to this name.
pub(crate) fn is_param_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
