//! Which web page made a browser send a request.
//!
//! Sources: the Fetch standard section 3.2 (Origin), Fetch Metadata section 2.4 (Sec-Fetch-Site). Browsers
//! write both fields, and no page can change them. Programs that are no browsers send neither.

/// Whether a page of another origin made a browser send a request to this host. Sec-Fetch-Site decides where
/// it is given: a proxy in front may have changed Host.
pub(crate) fn is_from_other_page<'a>(
    host: Option<&[u8]>,
    fields: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
) -> bool {
    match names_other_site(fields.clone()) {
        Some(is_other) => is_other,
        None => names_other_origin(host, fields),
    }
}

/// Whether Sec-Fetch-Site names another origin than the request's; `None`: it is not given.
pub(crate) fn names_other_site<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<bool> {
    let sites = fields.filter(|(name, _)| name.eq_ignore_ascii_case("Sec-Fetch-Site"));
    sites.fold(None, |is_other, (_, site)| {
        let is_own = site.eq_ignore_ascii_case(b"same-origin") || site.eq_ignore_ascii_case(b"none");
        Some(is_other.unwrap_or(false) || !is_own)
    })
}

/// Whether Origin names another origin than one of this host.
pub(crate) fn names_other_origin<'a>(
    host: Option<&[u8]>,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> bool {
    let mut origins = fields.filter(|(name, _)| name.eq_ignore_ascii_case("Origin"));
    origins.any(|(_, origin)| !host.is_some_and(|host| is_of_host(origin, host)))
}

/// Whether an origin is of this host. The schemes are not compared: TLS may end at a proxy in front.
fn is_of_host(origin: &[u8], host: &[u8]) -> bool {
    let split = |(scheme, port): (&str, &'static str)| {
        let rest = origin.get(..scheme.len()).filter(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes()));
        rest.map(|_| (&origin[scheme.len()..], port))
    };
    let Some((authority, port)) = [("https://", ":443"), ("http://", ":80")].into_iter().find_map(split)
    else {
        return false;
    };
    let without = |text: &[u8]| text.strip_suffix(port.as_bytes()).unwrap_or(text).to_ascii_lowercase();
    without(authority) == without(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_other(host: &str, fields: &[(&str, &str)]) -> bool {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        is_from_other_page(Some(host.as_bytes()), fields)
    }

    #[test]
    fn pages_are_told_apart_by_what_browsers_write() {
        for own in [
            &[][..],
            &[("Origin", "https://shop.example")],
            &[("origin", "http://SHOP.example:80")],
            &[("Sec-Fetch-Site", "same-origin")],
            &[("Sec-Fetch-Site", "none")],
            // A proxy in front changed Host.
            &[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://www.example")],
        ] {
            assert!(!is_other("shop.example", own), "{own:?}");
        }
        for other in [
            &[("Origin", "null")][..],
            &[("Origin", "")],
            &[("Origin", "https://shop.example.evil.example")],
            &[("Origin", "https://shop.example:8443")],
            &[("Origin", "http://shop.example:443")],
            &[("Origin", "ftp://shop.example")],
            &[("Origin", "shop.example")],
            &[("Origin", "https://shop.example"), ("Origin", "https://evil.example")],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-site"), ("Origin", "https://shop.example")],
            &[("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "")],
        ] {
            assert!(is_other("shop.example", other), "{other:?}");
        }
        assert!(!is_other("localhost:3000", &[("Origin", "http://localhost:3000")]));
        assert!(is_other("localhost:3000", &[("Origin", "http://localhost:5173")]));
        assert!(is_from_other_page(None, [("Origin", &b"https://a"[..])].into_iter()));
    }
}
