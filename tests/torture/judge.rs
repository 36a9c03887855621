//! Compares the answers of a round with its final state.
//!
//! Uses no server: it takes a [`History`] and an [`Evidence`] and returns faults, so that each judgement
//! is tested on histories that contain its fault.

use crate::contested::{Claim, StepFacts, claims};
use crate::model::{Change, Counter, Fields, History, Outcome, Row, RowKey, Step};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A change that became a dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub table: String,
    pub op: String,
    pub row: String,
    /// For the report.
    #[expect(dead_code, reason = "Debug prints it")]
    pub reason: String,
}

/// The state at the end of a round.
#[derive(Debug, Default)]
pub struct Evidence {
    pub database: BTreeMap<RowKey, Fields>,
    /// The answers to GET after a last restart; `None`: 404.
    pub by_http: BTreeMap<RowKey, Option<Fields>>,
    pub dead_letters: Vec<DeadLetter>,
    /// The differences that the server's own comparison finds.
    pub differences: Vec<String>,
    /// Tokens of the steps that the database refuses when it gets all acknowledged steps, in the order of
    /// their answers.
    pub refused_again: BTreeSet<String>,
    /// A trigger writes `label` in upper case.
    pub label_is_upper: bool,
}

/// A violation of a guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An acknowledged change is missing.
    Lost(String),
    /// A row that was sent once exists more than once.
    Doubled(String),
    /// A dead letter whose change the database would have accepted.
    DeadLetter(String),
    /// A read showed a state that was undone, or that no client wrote.
    Undone(String),
    /// The database refused an acknowledged change, and no dead letter reports it.
    Silent(String),
    /// GET and the database differ.
    Differs(String),
    /// `verify` is not clean.
    Unclean(String),
}

/// Returns the faults, and the number of dead letters that are not judged: for a unique value that others
/// took, or that was taken at the same time.
pub fn judge(history: &History, evidence: &Evidence) -> (Vec<Fault>, usize) {
    let rows = history.rows.lock().expect("no thread panics");
    let nameless = history.nameless.lock().expect("no thread panics");
    let taken_by_others = history.taken_by_others.lock().expect("no thread panics");
    let is_dead_letter = |step: &Step| is_dead_letter(step, evidence);
    let known = StepFacts {
        refused_again: &evidence.refused_again,
        is_dead_letter: &is_dead_letter,
        taken_by_others: &taken_by_others,
    };
    let claims = claims(&rows, &nameless, &known);
    let mut faults = Vec::new();
    let mut apart = 0;
    for letter in &evidence.dead_letters {
        match judge_letter(letter, &claims, &nameless, &taken_by_others) {
            Justice::Right => {}
            Justice::Apart => apart += 1,
            Justice::Wrong(why) => {
                let steps = rows.values().find(|row| row.steps.iter().any(|step| is_named(step, letter)));
                faults.push(Fault::DeadLetter(format!("{why}: {letter:?}; {steps:#?}")));
            }
        }
    }
    faults.extend(judged_twice(&claims, evidence));
    for (place, row) in &*rows {
        faults.extend(judge_row(place, row, evidence));
    }
    faults.extend(judge_notes(&rows, &nameless, evidence));
    for ((key, column), counter) in &*history.counters.lock().expect("no thread panics") {
        faults.extend(judge_counter(key, column, *counter, evidence));
    }
    let wrong_reads = history.wrong_reads.lock().expect("no thread panics");
    faults.extend(wrong_reads.iter().cloned().map(Fault::Undone));
    for (place, shown) in &evidence.by_http {
        let stored = evidence.database.get(place);
        if !same(shown.as_ref(), stored) {
            faults
                .push(Fault::Differs(format!("{place:?}: GET shows {shown:?}, the database has {stored:?}")));
        }
    }
    faults.extend(evidence.differences.iter().cloned().map(Fault::Unclean));
    (faults, apart)
}

/// A step may be refused only once, even if its record is read again.
fn judged_twice(claims: &[Claim<'_>], evidence: &Evidence) -> Vec<Fault> {
    let dead_letters =
        |step: &Step| evidence.dead_letters.iter().filter(|letter| is_named(step, letter)).count();
    let twice = claims.iter().filter(|claim| claim.is_dead_letter && dead_letters(claim.step) > 1);
    twice
        .map(|claim| Fault::Doubled(format!("{} letters of {:?}", dead_letters(claim.step), claim.step)))
        .collect()
}

fn is_dead_letter(step: &Step, evidence: &Evidence) -> bool {
    evidence.dead_letters.iter().any(|letter| is_named(step, letter))
}

fn is_named(step: &Step, letter: &DeadLetter) -> bool {
    step.token.as_ref().is_some_and(|token| letter.row.contains(&note(token)))
}

/// A token in the form of a dead letter.
fn note(token: &str) -> String {
    format!("\"note\":\"{token}\"")
}

fn judge_row(place: &RowKey, row: &Row, evidence: &Evidence) -> Option<Fault> {
    let refused_delete = |step: &Step| {
        step.deed == Change::Delete
            && evidence
                .dead_letters
                .iter()
                .any(|letter| letter.op == "delete" && letter.row.contains(&format!("\"{}\"", place.1)))
    };
    let states =
        row.states(|step| match (is_dead_letter(step, evidence) || refused_delete(step), step.is_bad) {
            (true, _) => Some(true),
            // A later step may have made it valid before it was applied.
            (false, true) => None,
            (false, false) => Some(false),
        });
    let found = evidence.database.get(place);
    if !states.iter().any(|state| is_expected(state.as_ref(), found, row.is_counted, evidence)) {
        let what = format!("{place:?} is {found:?}, and may be one of {states:?} after {:#?}", row.steps);
        return Some(Fault::Lost(what));
    }
    let last = row.steps.last()?;
    let is_silent = last.is_bad && last.outcome == Outcome::Acknowledged && !is_dead_letter(last, evidence);
    is_silent.then(|| Fault::Silent(format!("{place:?}: {last:?}")))
}

fn is_expected(
    state: Option<&Fields>,
    found: Option<&Fields>,
    is_counted: bool,
    evidence: &Evidence,
) -> bool {
    let (Some(state), Some(found)) = (state, found) else { return state.is_none() && found.is_none() };
    state.iter().filter(|(name, _)| !(is_counted && ["views", "stock"].contains(&name.as_str()))).all(
        |(name, value)| {
            let stored = found.get(name).unwrap_or(&Value::Null);
            match value {
                Value::String(text) if evidence.label_is_upper && name == "label" => {
                    stored.as_str().is_some_and(|stored| *stored == text.to_uppercase())
                }
                _ => same_value(value, stored),
            }
        },
    )
}

/// Numbers by value: `7.5` and `7.50` are the same.
fn same_value(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    one == other || number(one).is_some_and(|one| Some(one) == number(other))
}

fn same(one: Option<&Fields>, other: Option<&Fields>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|other| same_value(value, other)))
        }
        _ => false,
    }
}

/// Each note was written by a client, and exists once.
fn judge_notes(rows: &BTreeMap<RowKey, Row>, nameless: &[Step], evidence: &Evidence) -> Vec<Fault> {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for (place, row) in evidence.database.iter().filter(|(place, _)| place.0 == "things") {
        let note = row.get("note").and_then(Value::as_str).unwrap_or_default();
        if note != "start" && !seen.insert(note) {
            faults.push(Fault::Doubled(format!("{note} stands twice, the second time in {place:?}")));
        }
        if !rows.contains_key(place) && !nameless.iter().any(|step| step.token.as_deref() == Some(note)) {
            faults.push(Fault::Doubled(format!("{place:?} is {row:?}, which nobody wrote there")));
        }
    }
    faults
}

fn judge_counter(key: &str, column: &str, counter: Counter, evidence: &Evidence) -> Option<Fault> {
    let found = evidence.database.get(&("things", key.to_owned()))?.get(column)?.as_i64()?;
    let Counter { acknowledged, unknown, .. } = counter;
    let what =
        format!("{column} of {key} is {found}; {acknowledged} were acknowledged, {unknown} are unknown");
    if found < acknowledged {
        return Some(Fault::Lost(what));
    }
    (found > acknowledged + unknown).then_some(Fault::Doubled(what))
}

enum Justice {
    Right,
    Apart,
    Wrong(String),
}

fn judge_letter(letter: &DeadLetter, claims: &[Claim<'_>], nameless: &[Step], taken: &[String]) -> Justice {
    if letter.op == "delete" && letter.table == "parents" {
        // A thing refers to it, and the order of the two is unknown.
        return Justice::Apart;
    }
    if nameless.iter().any(|step| is_named(step, letter)) {
        // It was never acknowledged.
        return Justice::Right;
    }
    let Some(own) = claims.iter().find(|claim| is_named(claim.step, letter)) else {
        return Justice::Wrong("nobody sent this".into());
    };
    let step = own.step;
    if step.is_bad {
        return Justice::Right;
    }
    if step.outcome == Outcome::Unknown && step.may_be_refused {
        // Its place in the acknowledged order is unknown.
        return Justice::Apart;
    }
    let code = fields(step).and_then(|fields| fields.get("code")?.as_str());
    if code.is_some_and(|code| taken.iter().any(|other| other == code)) {
        return Justice::Apart;
    }
    if own.is_refused_again {
        return Justice::Right;
    }
    if own.is_contested() {
        return Justice::Apart;
    }
    let others: Vec<_> = claims.iter().filter(|claim| claim.meets(own)).collect();
    Justice::Wrong(format!("the database would have taken it; who wants one of its values: {others:#?}"))
}

fn fields(step: &Step) -> Option<&Fields> {
    match &step.deed {
        Change::Whole(fields) | Change::Some(fields) => Some(fields),
        Change::Views(_) | Change::Delete => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Acknowledged, Unknown};
    use super::*;
    use serde_json::json;

    fn row(note: &str, views: i64) -> Fields {
        Fields::from([("note".to_owned(), json!(note)), ("views".to_owned(), json!(views))])
    }

    fn step(deed: Change, outcome: Outcome) -> Step {
        let token = match &deed {
            Change::Whole(fields) | Change::Some(fields) => fields["note"].as_str().map(str::to_owned),
            _ => None,
        };
        Step {
            deed,
            token,
            outcome,
            may_be_refused: false,
            is_bad: false,
            is_seen: false,
            began: 0,
            ended: 1,
        }
    }

    fn place() -> RowKey {
        ("things", "7".to_owned())
    }

    fn history(steps: Vec<Step>) -> History {
        let history = History::default();
        steps.into_iter().for_each(|step| history.add(place(), step));
        history
    }

    fn holds(row: Option<Fields>) -> Evidence {
        Evidence { database: row.into_iter().map(|row| (place(), row)).collect(), ..Evidence::default() }
    }

    fn letter(op: &str, row: &str) -> DeadLetter {
        DeadLetter { table: "things".into(), op: op.into(), row: row.into(), reason: "refused".into() }
    }

    #[test]
    fn what_was_acknowledged_and_is_not_there_is_lost() {
        let insert = || step(Change::Whole(row("a", 1)), Acknowledged);
        let update = |outcome| step(Change::Some(Fields::from([("note".to_owned(), json!("b"))])), outcome);
        let views = |outcome| step(Change::Views(4), outcome);
        let delete = |outcome| step(Change::Delete, outcome);
        for (steps, found, is_lost) in [
            (vec![insert()], Some(row("a", 1)), false),
            (vec![insert()], None, true),
            (vec![insert(), update(Acknowledged)], Some(row("b", 1)), false),
            (vec![insert(), update(Acknowledged)], Some(row("a", 1)), true),
            (vec![insert(), update(Unknown)], Some(row("a", 1)), false),
            (vec![insert(), update(Unknown)], Some(row("b", 1)), false),
            (vec![insert(), update(Unknown)], None, true),
            (vec![insert(), views(Acknowledged)], Some(row("a", 5)), false),
            (vec![insert(), views(Acknowledged)], Some(row("a", 1)), true),
            (vec![insert(), views(Acknowledged)], Some(row("a", 9)), true),
            (vec![insert(), views(Unknown)], Some(row("a", 9)), true),
            (vec![insert(), delete(Acknowledged)], None, false),
            (vec![insert(), delete(Acknowledged)], Some(row("a", 1)), true),
        ] {
            let (faults, _) = judge(&history(steps.clone()), &holds(found.clone()));
            let lost = faults.iter().any(|fault| matches!(fault, Fault::Lost(_)));
            assert_eq!(lost, is_lost, "{steps:?} {found:?}: {faults:?}");
        }
    }

    #[test]
    fn what_is_there_twice_is_found() {
        let history = history(vec![step(Change::Whole(row("a", 1)), Acknowledged)]);
        let mut evidence = holds(Some(row("a", 1)));
        assert_eq!(judge(&history, &evidence).0, []);
        evidence.database.insert(("things", "8".into()), row("a", 1));
        let faults = judge(&history, &evidence).0;
        assert!(
            faults.iter().all(|fault| matches!(fault, Fault::Doubled(_))) && faults.len() == 2,
            "{faults:?}"
        );
        // A row whose key was never returned may exist once, under any key.
        history.nameless.lock().unwrap().push(step(Change::Whole(row("n", 1)), Unknown));
        evidence.database.insert(("things", "8".into()), row("n", 1));
        assert_eq!(judge(&history, &evidence).0, []);
        evidence.database.insert(("things", "9".into()), row("n", 1));
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::Doubled(_)]));
    }

    #[test]
    fn sums_are_exact() {
        let history = History::default();
        history.count("7", "views", 10, Acknowledged);
        history.count("7", "views", 3, Unknown);
        for (views, expected) in [(9, "Lost"), (10, ""), (13, ""), (14, "Doubled")] {
            history
                .rows
                .lock()
                .unwrap()
                .insert(place(), Row { first: Some(row("a", 0)), is_counted: true, steps: Vec::new() });
            let faults = judge(&history, &holds(Some(row("a", views)))).0;
            assert_eq!(faults.len(), usize::from(!expected.is_empty()), "{faults:?}");
            assert!(faults.iter().all(|fault| format!("{fault:?}").starts_with(expected)), "{faults:?}");
        }
    }

    #[test]
    fn a_letter_must_be_one_that_the_database_would_write_as_well() {
        let mut bad = step(Change::Some(Fields::from([("note".to_owned(), json!("b"))])), Acknowledged);
        (bad.is_bad, bad.may_be_refused) = (true, true);
        let first = step(Change::Whole(row("a", 1)), Acknowledged);
        let history = history(vec![first, bad]);
        let mut evidence = holds(Some(row("a", 1)));
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::Silent(_)]), "nobody is told");
        evidence.dead_letters.push(letter("put", "{\"note\":\"b\"}"));
        assert_eq!(judge(&history, &evidence).0, []);
        // The insert before it was valid.
        evidence.dead_letters.push(letter("insert", "{\"note\":\"a\"}"));
        evidence.database.clear();
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::DeadLetter(_)]));
        evidence.refused_again.insert("a".into());
        assert_eq!(judge(&history, &evidence).0, []);
        evidence.dead_letters.push(letter("insert", "{\"note\":\"nobody\"}"));
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::DeadLetter(_)]));
    }

    #[test]
    fn a_step_that_was_refused_twice_is_found() {
        let mut bad = step(Change::Whole(row("a", 1)), Acknowledged);
        (bad.is_bad, bad.may_be_refused) = (true, true);
        let history = history(vec![bad]);
        let mut evidence =
            Evidence { dead_letters: vec![letter("insert", "{\"note\":\"a\"}")], ..Evidence::default() };
        assert_eq!(judge(&history, &evidence).0, []);
        evidence.dead_letters.push(letter("insert", "{\"note\":\"a\"}"));
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::Doubled(_)]));
    }

    #[test]
    fn a_unique_value_that_others_took_is_counted_apart() {
        let mut fields = row("a", 1);
        fields.insert("code".into(), json!("code1"));
        let history = history(vec![step(Change::Whole(fields), Acknowledged)]);
        let evidence =
            Evidence { dead_letters: vec![letter("insert", "{\"note\":\"a\"}")], ..Evidence::default() };
        assert!(matches!(judge(&history, &evidence), (faults, 0) if faults.len() == 1));
        history.taken_by_others.lock().unwrap().push("code1".into());
        assert_eq!(judge(&history, &evidence), (Vec::new(), 1));
    }

    #[test]
    fn a_read_of_what_was_undone_is_found() {
        let history = history(vec![
            step(Change::Whole(row("a", 1)), Acknowledged),
            step(Change::Some(Fields::from([("note".to_owned(), json!("b"))])), Unknown),
        ]);
        history.shown(&place(), Some("a"));
        // The unknown step was shown: it must exist from here on.
        history.shown(&place(), Some("b"));
        assert_eq!(judge(&history, &holds(Some(row("b", 1)))).0, []);
        assert!(matches!(judge(&history, &holds(Some(row("a", 1)))).0[..], [Fault::Lost(_)]));
        history.shown(&place(), Some("a"));
        assert!(matches!(judge(&history, &holds(Some(row("b", 1)))).0[..], [Fault::Undone(_)]));
    }

    #[test]
    fn memory_that_differs_and_a_verify_that_is_not_clean_are_found() {
        let history = history(vec![step(Change::Whole(row("a", 1)), Acknowledged)]);
        let mut evidence = holds(Some(row("a", 1)));
        evidence.by_http.insert(place(), Some(row("a", 1)));
        assert_eq!(judge(&history, &evidence).0, []);
        evidence.by_http.insert(place(), Some(row("a", 2)));
        evidence.differences.push("things: 7 is missing".into());
        assert!(matches!(judge(&history, &evidence).0[..], [Fault::Differs(_), Fault::Unclean(_)]));
    }
}
