//! What servers may take a path for: each decodes, splits, cuts and merges in its own way and order.
//!
//! Sources: Servlet 6.0 section 3.5.2 (a part ends at `;`), the Win32 file names (trailing dots and spaces
//! are not part of a name), the routers of Express, Flask and Go (a slash at the end may not matter),
//! RFC 3875 section 4.1.5 (PATH_INFO: `/index.php/a` is `/a` for the script `/index.php`).
//!
//! What is left out: an application's own suffixes, as `/a.json` for `/a`.

use crate::path::without_dots;
use crate::target::hex_digit;

/// A path that has more readings, or longer ones together, is refused: nobody writes one by accident.
const READINGS_MAX: usize = 64;
const READINGS_BYTES_MAX: usize = 64 * 1024;

/// Whether any server may read this canonical path as another one. The case of letters does not count.
pub fn has_readings(path: &str) -> bool {
    let bytes = path.as_bytes();
    let ends_part = |at: usize| matches!(bytes.get(at + 1), None | Some(b'/'));
    bytes.iter().enumerate().any(|(at, byte)| match byte {
        b'%' | b';' | b'\\' | b'?' | b'#' => true,
        b'.' | b'/' | b' ' => ends_part(at),
        b'p' => bytes[..=at].ends_with(b".php") && ends_part(at),
        _ => false,
    })
}

/// All readings of a canonical path, itself included; `None`: there are too many. `is_open_ended`: its route
/// does not say whether the path ends in a slash.
pub fn readings(path: &str, is_open_ended: bool) -> Option<Vec<String>> {
    let mut found = vec![path.to_owned()];
    let mut at = 0;
    while let Some(form) = found.get(at) {
        let ways = [
            decoded,
            without_params,
            before_params,
            without_ends,
            before_query,
            with_other_end,
            script,
            behind_script,
        ];
        let of_path = |reading: &String| is_open_ended || *reading != with_other_end(path);
        for reading in ways.map(|way| without_dots(&way(form).replace('\\', "/"), true)) {
            if of_path(&reading) && !found.contains(&reading) {
                found.push(reading);
            }
        }
        if found.len() > READINGS_MAX || found.iter().map(String::len).sum::<usize>() > READINGS_BYTES_MAX {
            return None;
        }
        at += 1;
    }
    Some(found)
}

/// `%3b` is `;`. What is no escape stays.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digit = |place: usize| bytes.get(place).and_then(|digit| hex_digit(*digit));
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `/a;b=c/d` is `/a/d`.
fn without_params(path: &str) -> String {
    by_part(path, |part| part.split(';').next().unwrap_or_default())
}

/// `/a;b=c/d` is `/a`.
fn before_params(path: &str) -> String {
    path.split(';').next().unwrap_or_default().to_owned()
}

/// `/index.php/a` is `/index.php`.
fn script(path: &str) -> String {
    path.find(".php/").map_or(path, |at| &path[..at + ".php".len()]).to_owned()
}

/// `/index.php/a` is `/a`.
fn behind_script(path: &str) -> String {
    path.find(".php/").map_or(path, |at| &path[at + ".php".len()..]).to_owned()
}

/// `/a./b ` is `/a/b`.
fn without_ends(path: &str) -> String {
    by_part(path, |part| part.trim_end_matches(['.', ' ']))
}

fn by_part(path: &str, keep: impl Fn(&str) -> &str) -> String {
    path.split('/').map(keep).collect::<Vec<_>>().join("/")
}

/// Behind a decoded `?` or `#` is no path.
fn before_query(path: &str) -> String {
    path.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// `/a` and `/a/` are one.
fn with_other_end(path: &str) -> String {
    match path.strip_suffix('/') {
        Some("") => "/".to_owned(),
        Some(shorter) => shorter.to_owned(),
        None => format!("{path}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_finds_its_reading() {
        for path in [
            "/app/admin;a=b/x",
            "/app/;/admin/x",
            "/app/admin%3B/x",
            "/app/admin%253b/x",
            "/app/admin./x",
            "/app/admin%20/x",
            "/app/admin%20.%20/x",
            "/app/admin%2E/x",
            "/app//admin/x",
            "/app%2Fadmin%5Cx",
            "/app/b%252F..%252Fadmin/x",
            "/app/%2561dmin/x",
            "/app/admin/x/",
            "/app/admin/x%3Fa",
            "/app/admin/x%23",
            "/app;a%2Fb=c/admin/x",
            "/index.php/app/admin/x",
            "/app/admin/x;/y",
        ] {
            assert!(has_readings(path), "{path}");
            let found = readings(path, true).expect(path);
            assert!(found.iter().any(|reading| reading == "/app/admin/x"), "{path}: {found:?}");
        }
    }

    #[test]
    fn an_ordinary_path_has_one_reading() {
        for path in ["/", "/app", "/app/main.js", "/a.b/c-d_e~f/.well-known", "/users/@me:1,2+3"] {
            assert_eq!(has_readings(path), path == "/", "{path}");
        }
    }

    #[test]
    fn a_path_of_too_many_readings_has_none() {
        assert!(readings(&format!("/a%{}41", "25".repeat(100)), true).is_none());
        assert!(readings(&format!("/a;{}/%253b./x", "a".repeat(30_000)), true).is_none());
        assert!(readings("/caf%C3%A9/100%25%20sure;v=1./x.", true).is_some());
    }

    #[test]
    fn a_route_that_says_how_its_path_ends_is_believed() {
        assert_eq!(readings("/docs/", false).unwrap(), ["/docs/"]);
        assert_eq!(readings("/docs/", true).unwrap(), ["/docs/", "/docs"]);
        assert!(readings("/docs;a/", false).unwrap().contains(&"/docs".to_owned()));
    }
}
