//! Tables, thresholds, comparisons, files and the live view.

mod report_support;

use forebay_load::report::{Comparison, Kind, Screen, Threshold, page, read_json, tables, write_json};
use forebay_load::results::{HostSecond, Limit, Live, Model, Results, Role, Verdict};
use report_support::run;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// 1000 answers of 1 to 1000 ms, 10 time-outs, 30 with status 500; 100/s.
fn known() -> Results {
    let mut results = Results { duration_s: 10.0, ..Results::default() };
    (1..=1000u64).for_each(|ms| results.latency_ms.record(ms * 1_000_000));
    results.requests.completed = 1_000;
    results.requests.completed_in_time = 1_000;
    results.requests.sent = 1_010;
    results.requests.timeouts = 10;
    results.requests.unexpected = 30;
    results.statuses = [(200, 970), (500, 30)].into();
    results.settle();
    results
}

#[test]
fn thresholds_hold_or_not() {
    let results = known();
    for (condition, held, actual) in [
        ("p50<=0.51s", true, "500 ms"),
        ("p99 < 900ms", false, "990 ms"),
        ("p97.5<980ms", true, "975 ms"),
        ("max<=1s", true, "1 s"),
        ("min>=1000us", true, "1 ms"),
        ("mean<501ms", true, "50"),
        ("rate>=0.1k", true, "100/s"),
        ("rate>100/s", false, "100/s"),
        ("rate>=99%", true, "100 %"),
        ("errors==40", true, "40"),
        ("timeouts!=10", false, "10"),
        ("error_rate<4%", true, "3.96 %"),
        ("error_rate<0.01", false, "3.96 %"),
        ("5xx<=30", true, "30"),
        ("500<3%", false, "3 %"),
        ("2xx>=97%", true, "97 %"),
        ("404=0", true, "0"),
    ] {
        let threshold: Threshold = condition.parse().expect(condition);
        let checked = threshold.check(&results);
        assert_eq!(checked.held, held, "{checked:?}");
        assert!(checked.actual.starts_with(actual), "{checked:?}");
    }
    let two = Threshold::parse_all("p50<1s, rate>1").expect("two");
    assert_eq!(two.len(), 2);
    let nothing = Threshold::parse_all("p99<10s,error_rate<1%").expect("two");
    assert!(
        nothing.iter().all(|threshold| !threshold.check(&Results::default()).held),
        "no answers hold nothing"
    );
}

#[test]
fn thresholds_that_make_no_sense_are_named() {
    for (condition, said) in [
        ("p99", "no condition"),
        ("", "no condition"),
        ("p99<10", "add a unit"),
        ("p99<ms", "is no number"),
        ("p101<1ms", "no metric \"p101\""),
        ("speed<1ms", "no metric \"speed\""),
        ("p99!10ms", "operator"),
        ("errors<1%", "error_rate can"),
        ("rate>-1", "zero or more"),
        ("6xx<1", "no metric \"6xx\""),
    ] {
        let error = condition.parse::<Threshold>().expect_err(condition);
        assert_eq!(error.kind(), Kind::Argument);
        let text = error.to_string();
        assert!(text.contains(said) && text.starts_with("--threshold") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn only_differences_beyond_noise_count() {
    let before = run(Model::Closed, 30, 10_000.0, 1.2, 1);
    let again = run(Model::Closed, 30, 10_000.0, 1.2, 2);
    let slower = run(Model::Closed, 30, 7_000.0, 2.4, 3);
    let same = Comparison::of(&before, &again);
    assert_eq!(same.real().count(), 0, "{:#?}", same.real().collect::<Vec<_>>());
    let other = Comparison::of(&before, &slower);
    let judged =
        |name: &str| other.differences().iter().find(|line| line.name == name).expect(name).judgement();
    assert_eq!((judged("Req/Sec"), judged("Latency 50%"), judged("Latency max")), ("worse", "worse", ""));
    let back = Comparison::of(&slower, &before);
    assert!(back.differences().iter().any(|line| line.name == "Req/Sec" && line.judgement() == "better"));
    let short = Comparison::of(&before, &run(Model::Open, 2, 10_000.0, 1.2, 4));
    assert_eq!(short.real().count(), 0);
    assert!(short.notes().iter().any(|note| note.contains("too short")), "{:?}", short.notes());
    assert!(short.notes().iter().any(|note| note.contains("closed before, open now")), "{:?}", short.notes());
}

#[test]
fn tables_have_the_shape_of_autocannon() {
    let text = tables(&run(Model::Closed, 10, 1_000.0, 1.2, 1), None, &[]);
    for said in [
        "│ Stat    ┆",
        "97.5%",
        "Req/Sec",
        "Bytes/Sec",
        "99.99%",
        "GET /items/{id}",
        "status 404",
        "timeout",
        "Closed model",
        "hide stalls",
        "! 12 requests not answered in time.",
        "Verdict: server CPU.",
        "server edge-7",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    let mut open = run(Model::Open, 10, 1_000.0, 1.2, 1);
    open.requests.never_sent = open.requests.sent;
    open.settle();
    open.verdict = Some(Verdict { limit: Limit::Network, why: "It is full.".into() });
    open.complete = false;
    open.partial_reason = Some("interrupted".into());
    let checked = ["p99<1ns".parse::<Threshold>().expect("a condition").check(&open)];
    let text = tables(&open, Some(&Comparison::of(&open, &open)), &checked);
    for said in [
        "! The rate was not reached: ",
        "limited by network",
        "! Partial: interrupted.",
        "From sending",
        "BROKEN",
        "Compared",
        "Open model",
        "never sent",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
}

#[test]
fn json_goes_there_and_back() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("run.json");
    let results = run(Model::Open, 5, 500.0, 1.0, 5);
    write_json(&results, &path).expect("written");
    let back = read_json(&path).expect("read");
    // Floats are read to the last digit but one.
    assert_eq!((&back.latency_ms, &back.statuses), (&results.latency_ms, &results.statuses));
    assert_eq!(
        (back.requests.sent, &back.endpoints[1].latency_ms),
        (results.requests.sent, &results.endpoints[1].latency_ms)
    );
    assert_eq!(back.seconds[4].latency.unpack(), results.seconds[4].latency.unpack());
    std::fs::write(&path, "{}").expect("a file");
    assert_eq!(read_json(&path).expect_err("no results").kind(), Kind::Format);
    assert_eq!(read_json(&folder.path().join("none")).expect_err("no file").kind(), Kind::File);
    let nowhere = write_json(&results, &folder.path().join("none/run.json")).expect_err("no folder");
    assert!(nowhere.to_string().starts_with("cannot write"), "{nowhere}");
}

#[test]
fn whatever_was_typed_is_escaped() {
    let mut results = run(Model::Closed, 3, 100.0, 1.0, 5);
    results.target = "http://h/<script>alert(1)</script>\"&'".into();
    results.command = vec![results.target.clone()];
    results.endpoints[0].name = "<img src=x>".into();
    results.notes = vec!["<b>".into()];
    let html = page(&results, &Default::default());
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("<b>"));
    // An empty run gives a page too.
    let empty = page(&Results::default(), &Default::default());
    assert!(empty.ends_with("</html>\n") && !empty.contains("NaN"), "{empty}");
    assert!(!tables(&Results::default(), None, &[]).contains("NaN"));
}

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text")
    }
}

#[test]
fn the_live_view_is_drawn_in_place_or_line_by_line() {
    let live = Live {
        elapsed_s: 12.0,
        progress: Some(0.4),
        completed: 1_234_567,
        errors: 3,
        rate_per_s: 98_765.0,
        offered_per_s: Some(100_000.0),
        p99_ms: 4.2,
        ..Live::default()
    };
    let host = HostSecond { core_percents: vec![50.0, 100.0], cpu_percent: 150.0, ..HostSecond::default() };
    let (plain, drawn) = (Paper::default(), Paper::default());
    let mut screen = Screen::to(Box::new(plain.clone()), None, true);
    screen.update(&live, &[(Role::Server, host.clone())]);
    screen.update(&live, &[]);
    screen.end();
    let text = plain.text();
    assert_eq!(text.lines().count(), 1, "one line a second: {text}");
    assert!(
        text.contains("98,765/s of 100,000") && text.contains("server 75 % of 2") && !text.contains('\x1b'),
        "{text}"
    );
    let mut screen = Screen::to(Box::new(drawn.clone()), Some(60), true);
    screen.update(&live, &[(Role::Server, host)]);
    let text = drawn.text();
    let widest =
        text.lines().map(|line| line.replace("\x1b[31m", "").replace("\x1b[0m", "").chars().count()).max();
    assert!(widest < Some(60) && text.contains(" 40 %") && text.contains("p99 4.2 ms"), "{text}");
    screen.end();
    assert!(drawn.text().ends_with("\x1b[5A\x1b[J"), "{:?}", drawn.text());
}
