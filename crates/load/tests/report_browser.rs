//! The page in a real browser: headless Chromium opens it and reports its layout, its requests and
//! its errors.
//!
//! `FOREBAY_SCREENSHOTS=folder` writes screenshots there.

mod report_support;

use forebay_load::report::{Comparison, Extras, Threshold, page};
use forebay_load::results::Model;
use report_support::run;
use std::path::Path;
use std::process::Command;

/// Runs Chromium with its own profile. Returns its standard output and standard error.
fn chromium(profile: &Path, arguments: &[String]) -> (String, String) {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output()
        .expect("chromium (scripts/install-tools installs it)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn full_page() -> String {
    let now = run(Model::Open, 60, 20_000.0, 1.2, 7);
    let before = run(Model::Open, 60, 18_000.0, 1.6, 8);
    let comparison = Comparison::of(&before, &now);
    let thresholds = Threshold::parse_all("p99<10ms, rate>=19k, error_rate<0.1%").expect("conditions");
    let checked: Vec<_> = thresholds.iter().map(|threshold| threshold.check(&now)).collect();
    page(&now, &Extras { comparison: Some(&comparison), thresholds: &checked })
}

/// The report in a frame of `width` pixels, with a script outside of the frame (the page itself
/// runs none) that measures it and writes the result.
fn measured(html: &str, width: u32) -> String {
    let escaped = html.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        r#"<!doctype html><body style="margin:0"><iframe id="f" style="width:{width}px;height:4000px;border:0" srcdoc="{escaped}"></iframe>
<pre id="found"></pre><script>
document.getElementById('f').addEventListener('load', event => {{
  const page = event.target.contentDocument, root = page.documentElement;
  const shown = [...page.querySelectorAll('svg.chart')].filter(chart => chart.getBoundingClientRect().width > 0);
  const out = shown.filter(chart => chart.getBoundingClientRect().right > root.clientWidth);
  const texts = shown.flatMap(chart => [...chart.querySelectorAll('text')]);
  const smallest = Math.min(...texts.map(text => text.getBoundingClientRect().height));
  const drawn = shown.filter(chart => [...chart.querySelectorAll('path.line')].some(line => line.getTotalLength() > 100));
  document.getElementById('found').textContent = JSON.stringify({{
    client: root.clientWidth, scroll: root.scrollWidth, charts: shown.length, drawn: drawn.length, out: out.length,
    smallest: Math.round(smallest), requests: page.defaultView.performance.getEntriesByType('resource').length,
    background: page.defaultView.getComputedStyle(page.body).backgroundColor,
  }});
}});
</script></body>"#
    )
}

#[test]
fn the_page_fits_draws_and_asks_for_nothing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let html = full_page();
    for (width, text_min) in [(390, 12), (1440, 12)] {
        let file = folder.path().join("measured.html");
        std::fs::write(&file, measured(&html, width)).expect("a file");
        let arguments =
            ["--window-size=1500,4200".into(), "--dump-dom".into(), format!("file://{}", file.display())];
        let (dom, log) = chromium(&folder.path().join("profile"), &arguments);
        assert!(!log.contains("CONSOLE"), "{log}");
        let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
        let found: serde_json::Value =
            serde_json::from_str(found.expect("what the script found")).expect("JSON");
        let number = |name: &str| found[name].as_i64().unwrap_or(-1);
        assert_eq!(number("client"), i64::from(width), "{found}");
        assert!(number("scroll") <= number("client"), "it scrolls sideways: {found}");
        // Rate, latency, percentiles, and for each of two hosts CPU and network.
        assert_eq!((number("charts"), number("drawn"), number("out")), (7, 7, 0), "{found}");
        assert!(number("smallest") >= text_min, "text that nobody can read: {found}");
        assert_eq!(number("requests"), 0, "{found}");
    }
}

/// Anything that the page requested, from styles to pictures, would be named in its text.
#[test]
fn the_page_names_no_other_file() {
    let html = full_page();
    for attribute in ["src=", "@import", "url(", "<script", "<iframe", "<object", "<base"] {
        assert!(!html.contains(attribute), "{attribute}");
    }
    assert_eq!(html.matches("href=").count(), 1, "only the empty icon");
    assert!(html.contains("href=\"data:,\"") && html.contains("default-src 'none'"));
}

/// The browser's own record of the network: opened as a file, the page causes no request but itself.
#[test]
fn the_network_log_is_empty() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("report.html");
    std::fs::write(&file, full_page()).expect("a file");
    let log = folder.path().join("net.json");
    let arguments = [
        "--window-size=390,3000".into(),
        format!("--log-net-log={}", log.display()),
        "--dump-dom".into(),
        format!("file://{}", file.display()),
    ];
    let (dom, console) = chromium(&folder.path().join("profile"), &arguments);
    assert!(dom.contains("id=\"verdict\"") && !console.contains("CONSOLE"), "{console}");
    let text = std::fs::read_to_string(&log).expect("the browser's log of the network");
    let log: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = log["events"].as_array().expect("events").iter();
    // Requests of the browser itself do not count. Requests of the page have a file as initiator,
    // whose origin is "null".
    let asked: Vec<_> = events
        .filter(|event| {
            event["params"]["initiator"].as_str().is_some_and(|who| who == "null" || who.starts_with("file"))
        })
        .filter_map(|event| event["params"]["url"].as_str())
        .filter(|url| url.starts_with("http"))
        .collect();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn pictures() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("report.html");
    std::fs::write(&file, full_page()).expect("a file");
    let target = std::env::var_os("FOREBAY_SCREENSHOTS").map_or(folder.path().to_owned(), Into::into);
    for (name, width, height, more) in [
        ("desk", 1440, 3900, ""),
        ("dark", 1440, 3900, "--blink-settings=preferredColorScheme=0"),
        ("phone", 500, 5200, "framed"),
    ] {
        let picture = target.join(format!("{name}.png"));
        let mut arguments = vec![
            format!("--window-size={width},{height}"),
            format!("--screenshot={}", picture.display()),
            format!("file://{}", file.display()),
        ];
        if more == "framed" {
            // The browser's window cannot be as narrow as a phone.
            std::fs::write(&file, measured(&full_page(), 390).replace("height:4000px", "height:5200px"))
                .expect("a file");
        } else if !more.is_empty() {
            arguments.insert(0, more.into());
        }
        chromium(&folder.path().join("profile"), &arguments);
        assert!(std::fs::metadata(&picture).expect("a picture").len() > 20_000);
    }
}
