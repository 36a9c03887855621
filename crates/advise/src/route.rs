//! The route of a path: parts that identify a row become parameters.

/// When more paths than this differ only in one part, they are one route.
const SIBLINGS_MAX: usize = 20;

/// A placeholder for any part, until it is named.
const ANY: &str = "{}";

/// The parts of a path, without its query; those that look like an id are parameters.
pub fn parts(target: &str) -> Vec<String> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let parts = path.split('/').skip(1);
    parts.map(|part| if is_id(part) { ANY.to_owned() } else { part.to_owned() }).collect()
}

/// A number, a UUID, or a long token with a digit in it.
fn is_id(part: &str) -> bool {
    let has_digit = part.bytes().any(|byte| byte.is_ascii_digit());
    let is_number = has_digit && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_token = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte));
    // A file name contains a point, so it is no token and no id.
    is_number || has_digit && is_token && part.len() >= 16
}

/// The index of the part that is a parameter in these routes, which have the same number of parts: more
/// than [`SIBLINGS_MAX`] of them differ only in that part.
pub fn varying(routes: &[&[String]]) -> Option<usize> {
    let length = routes.first()?.len();
    (0..length).find(|at| {
        let mut without: Vec<Vec<&str>> = routes
            .iter()
            .filter(|parts| parts[*at] != ANY)
            .map(|parts| {
                parts.iter().enumerate().map(|(index, part)| if index == *at { ANY } else { part }).collect()
            })
            .collect();
        without.sort_unstable();
        without.chunk_by(|a, b| a == b).any(|same| same.len() > SIBLINGS_MAX)
    })
}

/// The placeholder for any part.
pub fn any() -> String {
    ANY.to_owned()
}

/// A route as a config has it: `/items/{id}/parts/{id2}`. `None` if a config cannot express it.
pub fn shown(parts: &[String]) -> Option<String> {
    let (mut out, mut count) = (String::new(), 0);
    for part in parts {
        out.push('/');
        if part == ANY {
            count += 1;
            out.push_str(&if count == 1 { "{id}".to_owned() } else { format!("{{id{count}}}") });
        } else {
            let is_plain = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
            if !is_plain || part == "." || part == ".." {
                return None;
            }
            out.push_str(part);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_name_a_row_are_parameters() {
        for (target, expected) in [
            ("/", Some("/")),
            ("/items/7", Some("/items/{id}")),
            ("/items/7?a=1", Some("/items/{id}")),
            ("/items/01934f2e-7c4b-7d6e-8a1b-000000000001/parts/12", Some("/items/{id}/parts/{id2}")),
            ("/v2/items", Some("/v2/items")),
            ("/assets/app-4f2e7c4b7d6e8a1b.js", Some("/assets/app-4f2e7c4b7d6e8a1b.js")),
            ("/a%20b", None),
            ("/../etc", None),
        ] {
            assert_eq!(shown(&parts(target)).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn many_names_in_one_place_are_a_parameter() {
        let shop = |names: usize| -> Vec<Vec<String>> {
            (0..names).map(|index| parts(&format!("/shop/shoe-{}/pictures", "x".repeat(index + 1)))).collect()
        };
        let varying = |all: &[Vec<String>]| varying(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(varying(&shop(21)), Some(1));
        assert_eq!(varying(&shop(20)), None);
        assert_eq!(varying(&[]), None);
    }
}
