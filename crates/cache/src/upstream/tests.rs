//! How the header fields of upstreams decide what is stored, case by case.

use super::*;

const CONFIGURED: (u64, u64) = (3_000, 4_000);

fn rules() -> Rules {
    let (stale_while_revalidate_ms, stale_if_error_ms) = CONFIGURED;
    Rules { missing_ms: 500, stale_while_revalidate_ms, stale_if_error_ms, ..Rules::default() }
}

fn judge(policy: &Policy, status: u16, lines: &str) -> Option<Storable> {
    let fields = lines.split('|').filter_map(|line| line.split_once(':'));
    policy.judge(&rules(), status, fields.map(|(name, value)| (name.trim(), value.trim().as_bytes())))
}

/// `None`: not stored; otherwise fresh, stale while revalidating, stale on errors, age.
#[track_caller]
fn check(policy: &Policy, status: u16, lines: &str, expected: Option<(u64, u64, u64, u64)>) {
    let kept = judge(policy, status, lines).map(|kept| match kept.keep {
        Keep::For { fresh_ms, revalidate_ms, error_ms } => (fresh_ms, revalidate_ms, error_ms, kept.age_ms),
        other => panic!("{lines}: {other:?}"),
    });
    assert_eq!(kept, expected, "{status} {lines}");
}

const AS_RULES: Option<(u64, u64, u64, u64)> = Some((u64::MAX, CONFIGURED.0, CONFIGURED.1, 0));

fn fresh(ms: u64) -> Option<(u64, u64, u64, u64)> {
    Some((ms, CONFIGURED.0, CONFIGURED.1, 0))
}

#[test]
fn times_are_what_the_upstream_says() {
    let policy = Policy::default();
    for (lines, expected) in [
        ("", AS_RULES),
        ("Cache-Control: public", AS_RULES),
        ("Cache-Control: max-age=10", fresh(10_000)),
        ("cache-control: public, MAX-AGE = 10", fresh(10_000)),
        ("Cache-Control: max-age=\"10\"", fresh(10_000)),
        ("Cache-Control: max-age=10, s-maxage=20", Some((20_000, 0, 0, 0))),
        ("Cache-Control: s-maxage=0, max-age=20", None),
        ("Cache-Control: max-age=10 | Cache-Control: max-age=5", fresh(5_000)),
        ("Cache-Control: max-age=99999999999999999999", fresh(UPSTREAM_LIFE_MS_MAX / 1000 * 1000)),
        ("Cache-Control: max-age=-1", None),
        ("Cache-Control: max-age=ten", None),
        ("Cache-Control: max-age", None),
        ("Cache-Control: max-age=0", None),
        ("Cache-Control: max-age=10 | Age: 4", Some((6_000, CONFIGURED.0, CONFIGURED.1, 4_000))),
        ("Cache-Control: max-age=10 | Age: 10", None),
        ("Cache-Control: max-age=10 | Age: nonsense", fresh(10_000)),
        ("Date: Sun, 06 Nov 1994 08:49:37 GMT | Expires: Sun, 06 Nov 1994 08:49:47 GMT", fresh(10_000)),
        ("Date: Sun, 06 Nov 1994 08:49:37 GMT | Expires: Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Expires: Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Expires: 0", None),
        ("Expires: 0 | Expires: Sun, 06 Nov 2094 08:49:37 GMT", None),
        ("Expires: 0 | Cache-Control: max-age=10", fresh(10_000)),
        ("Pragma: no-cache", None),
        ("Pragma: no-cache | Cache-Control: max-age=10", fresh(10_000)),
    ] {
        check(&policy, 200, lines, expected);
    }
}

#[test]
fn what_is_for_one_client_is_not_kept() {
    let policy = Policy::default();
    for lines in [
        "Cache-Control: no-store",
        "Cache-Control: max-age=10, No-Store",
        "Cache-Control: max-age=10 | Cache-Control: no-cache",
        "Cache-Control: private, max-age=10",
        "Cache-Control: private=\"X-A, X-B\", max-age=10",
        "Cache-Control: max-age=10, no-cache=\"Set-Cookie\"",
        "Cache-Control: max-age=10 | Set-Cookie: a=b",
        "Cache-Control: max-age=10 | Vary: *",
        "Cache-Control: max-age=10 | Vary: Accept-Encoding, Cookie",
        "Cache-Control: max-age=10 | Vary: Accept-Encoding | Vary: User-Agent",
        "Cache-Control: max-age=10 | Content-Encoding: gzip",
        "Content-Type: text/event-stream; charset=utf-8",
    ] {
        check(&policy, 200, lines, None);
    }
    // A comma in quotes does not separate, and quoted text is no directive.
    check(&policy, 200, "Cache-Control: x=\"no-store, private\", max-age=10", fresh(10_000));
    check(&policy, 200, "Vary: accept-encoding, Host", AS_RULES);
    check(&policy, 200, "Content-Encoding: identity", AS_RULES);
}

#[test]
fn what_was_allowed_is_kept() {
    let policy = Policy {
        keeps_private: true,
        known: vec!["X-User".into(), "Cookie".into()],
        keys_coding: true,
        strip: vec!["Set-Cookie".into()],
        ..Policy::default()
    };
    let lines =
        "Cache-Control: private, max-age=10 | Vary: cookie, x-user | Content-Encoding: br | Set-Cookie: a=b";
    check(&policy, 200, lines, fresh(10_000));
    check(&policy, 200, "Vary: Cookie, Origin", None);
    check(&policy, 200, "Cache-Control: no-store, private", None);
    assert!(!policy.replays("set-cookie") && !policy.replays("Age") && policy.replays("Cache-Control"));
    let policy = Policy { replaces_freshness: true, ..policy };
    assert!(!policy.replays("Cache-Control") && !policy.replays("expires") && policy.replays("ETag"));
    // Whatever `strip` contains, a cookie is never sent to another client.
    assert!(!Policy::default().replays("Set-Cookie"));
}

#[test]
fn statuses() {
    let policy = Policy::default();
    for status in [200, 203, 204, 300, 301, 308] {
        check(&policy, status, "", AS_RULES);
    }
    for status in [302, 307] {
        check(&policy, status, "", None);
        check(&policy, status, "Cache-Control: max-age=1", fresh(1_000));
    }
    for status in [404, 410] {
        check(&policy, status, "", Some((500, 0, 0, 0)));
        check(&policy, status, "Cache-Control: max-age=10, stale-if-error=5", Some((500, 0, 0, 0)));
    }
    for status in [201, 202, 205, 206, 303, 304, 400, 401, 403, 405, 429, 500, 501, 503] {
        check(&policy, status, "Cache-Control: max-age=10", None);
    }
}

#[test]
fn how_long_something_stale_may_be_shown() {
    let policy = Policy::default();
    for (control, revalidate_ms, error_ms) in [
        ("max-age=1", CONFIGURED.0, CONFIGURED.1),
        ("max-age=1, stale-while-revalidate=1, stale-if-error=2", 1_000, 2_000),
        ("max-age=1, stale-while-revalidate=100, stale-if-error=100", CONFIGURED.0, CONFIGURED.1),
        ("max-age=1, must-revalidate", 0, 0),
        ("max-age=1, proxy-revalidate, stale-if-error=2", 0, 2_000),
        ("max-age=1, stale-if-error=x", CONFIGURED.0, 0),
    ] {
        let expected = Some((1_000, revalidate_ms, error_ms, 0));
        check(&policy, 200, &format!("Cache-Control: {control}"), expected);
    }
    // Where the rules set nothing, the upstream's value counts.
    let fields = [("Cache-Control", &b"max-age=1, stale-if-error=99999999"[..])];
    let kept = policy.judge(&Rules::default(), 200, fields.into_iter()).expect("kept");
    let error_ms = UPSTREAM_STALE_MS_MAX;
    assert_eq!(kept.keep, Keep::For { fresh_ms: 1_000, revalidate_ms: 0, error_ms });
}

#[test]
fn heeding_more_and_less() {
    let explicit = Policy { heed: Heed::Explicit, ..Policy::default() };
    check(&explicit, 200, "", None);
    check(&explicit, 200, "Cache-Control: public", None);
    check(&explicit, 200, "Cache-Control: max-age=1", fresh(1_000));
    let never = Policy { heed: Heed::Never, ..Policy::default() };
    for lines in [
        "",
        "Cache-Control: no-store",
        "Cache-Control: no-cache, max-age=0",
        "Expires: 0",
        "Pragma: no-cache",
    ] {
        assert_eq!(judge(&never, 200, lines).map(|kept| kept.keep), Some(Keep::AsRules), "{lines}");
        assert_eq!(judge(&never, 302, lines).map(|kept| kept.keep), Some(Keep::AsRules), "{lines}");
        assert_eq!(judge(&never, 404, lines).map(|kept| kept.keep), Some(Keep::Missing), "{lines}");
    }
    for lines in ["Cache-Control: private", "Set-Cookie: a=b", "Vary: *", "Vary: Cookie"] {
        assert_eq!(judge(&never, 200, lines), None, "{lines}");
    }
    assert_eq!(judge(&never, 500, ""), None);
}
