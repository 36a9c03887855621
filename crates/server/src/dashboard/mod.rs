//! The dashboard: one page on the admin listener, built from the files in this folder.
//!
//! Promises that the page contacts no other server, which the browser enforces (Content-Security-Policy). Its
//! numbers are those of `GET /metrics`: the page reads that text and computes rates and percentiles from two
//! scrapes. Access control is in [`crate::admin_access`].

use forebay_http::{Answer, Head, Method, Request};

/// The page may load from and connect to this listener only. No other page may embed it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and content.
const FILES: [(&str, &str, &str); 8] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/dashboard/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/dashboard/icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("/dashboard/page.js", SCRIPT, include_str!("page.js")),
    ("/dashboard/metrics.js", SCRIPT, include_str!("metrics.js")),
    ("/dashboard/chart.js", SCRIPT, include_str!("chart.js")),
    ("/dashboard/format.js", SCRIPT, include_str!("format.js")),
    ("/dashboard/show.js", SCRIPT, include_str!("show.js")),
];

/// Answers a request for a file of the page; returns false for any other request.
pub(crate) fn answer(request: &Request<'_>, answer: &mut Answer<'_>) -> bool {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return false;
    }
    let Some((_, kind, content)) = FILES.iter().find(|(path, ..)| *path == request.path()) else {
        return false;
    };
    let head = Head::new(200)
        .content_type(kind)
        .header("Content-Security-Policy", POLICY)
        .header("X-Content-Type-Options", "nosniff")
        .header("Referrer-Policy", "no-referrer")
        // Another version of the binary has another page.
        .header("Cache-Control", "no-cache");
    answer.respond(&head, content.as_bytes());
    true
}
