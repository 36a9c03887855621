//! Finds steps for which it cannot be determined whether the database would have accepted them in the order
//! in which they were executed.
//!
//! A plain database gets the acknowledged steps in the order of the answers; the drain applies them in the
//! order of the log. Where the two differ about a step (one refuses it, the other accepts it), the step is
//! contested if
//!
//! - it is bad and has no dead letter: a later step of its row made it valid in the same batch; or
//! - it wants a code that others took by SQL, at an unknown moment; or
//! - another step takes or frees one of its values, and that step was in progress at the same time, has an
//!   unknown outcome (so that the plain database did not get it), or is contested itself.
//!
//! Deleting a row, or changing its value, frees a value. A pair of `one` and `two` is one value.

use crate::model::{Fields, Outcome, Row, RowKey, Step, after, next_states};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Facts about the steps, besides the steps themselves.
pub struct StepFacts<'a> {
    /// Tokens of the steps that a plain database refuses.
    pub refused_again: &'a BTreeSet<String>,
    /// Whether the drain refused a step.
    pub is_dead_letter: &'a dyn Fn(&Step) -> bool,
    /// Codes that others took by SQL.
    pub taken_by_others: &'a [String],
}

/// A step and the values that it takes or frees.
#[derive(Debug)]
pub struct Claim<'a> {
    pub step: &'a Step,
    pub values: BTreeSet<String>,
    /// A plain database refuses it.
    pub is_refused_again: bool,
    /// The drain refused it.
    pub is_dead_letter: bool,
    /// Whether the two may differ about the step, whatever other steps do.
    is_doubtful: bool,
    is_contested: bool,
}

/// Every step with its values, and whether it is contested.
pub fn claims<'a>(
    rows: &'a BTreeMap<RowKey, Row>,
    nameless: &'a [Step],
    known: &StepFacts<'_>,
) -> Vec<Claim<'a>> {
    let mut claims = Vec::new();
    for (place, row) in rows {
        let mut states = vec![row.first.clone()];
        for step in &row.steps {
            claims.push(Claim::new(step, changed(place, &states, step), known));
            states = next_states(states, step, None);
        }
    }
    let unknown_place = ("things", String::new());
    for step in nameless {
        claims.push(Claim::new(step, changed(&unknown_place, &[None], step), known));
    }
    while contest(&mut claims) {}
    claims
}

/// Finds further contested steps from the known ones. Returns whether there were any.
fn contest(claims: &mut [Claim<'_>]) -> bool {
    let is_contested = |of: &Claim<'_>| {
        let is_cause = |other: &&Claim<'_>| {
            let overlaps = other.step.began < of.step.ended && of.step.began < other.step.ended;
            let is_open = overlaps || other.step.outcome == Outcome::Unknown || other.is_contested;
            is_open && !std::ptr::eq(other.step, of.step)
        };
        of.is_doubtful || claims.iter().filter(is_cause).any(|other| other.meets(of))
    };
    let is_new = |of: &&Claim<'_>| of.is_unclear() && !of.is_contested && is_contested(of);
    let new: Vec<*const Step> = claims.iter().filter(is_new).map(|of| std::ptr::from_ref(of.step)).collect();
    for claim in claims.iter_mut() {
        claim.is_contested |= new.contains(&std::ptr::from_ref(claim.step));
    }
    !new.is_empty()
}

impl<'a> Claim<'a> {
    fn new(step: &'a Step, values: BTreeSet<String>, known: &StepFacts<'_>) -> Claim<'a> {
        let is_dead_letter = (known.is_dead_letter)(step);
        let is_refused_again = step.token.as_ref().is_some_and(|token| known.refused_again.contains(token));
        let is_of_others = known.taken_by_others.iter().any(|other| values.contains(&code(other)));
        let is_doubtful = is_of_others || step.is_bad && !is_dead_letter;
        Claim { step, values, is_refused_again, is_dead_letter, is_doubtful, is_contested: false }
    }

    /// Whether a plain database and the drain differ about the step.
    fn is_unclear(&self) -> bool {
        self.is_refused_again != self.is_dead_letter
    }

    /// Whether two steps want the same value, or one frees a value that the other wants.
    pub fn meets(&self, other: &Claim<'_>) -> bool {
        !self.values.is_disjoint(&other.values)
    }

    /// Whether it is undetermined if the database would have accepted the step.
    pub fn is_contested(&self) -> bool {
        self.is_contested
    }
}

/// The values that a row takes or frees by a step, for all of these states before it.
fn changed(place: &RowKey, states: &[Option<Fields>], step: &Step) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for before in states {
        let after = after(before.clone(), &step.deed);
        let (had, has) = (held(place, before.as_ref()), held(place, after.as_ref()));
        values.extend(had.symmetric_difference(&has).cloned());
    }
    values
}

/// The values of a row that other rows may want or refer to.
fn held(place: &RowKey, row: Option<&Fields>) -> BTreeSet<String> {
    let Some(row) = row else { return BTreeSet::new() };
    if place.0 == "parents" {
        return BTreeSet::from([parent(&place.1)]);
    }
    let value = |name: &str| row.get(name).filter(|value| !value.is_null());
    let text = |name: &str| value(name).and_then(Value::as_str);
    let pair = value("one").zip(value("two")).map(|(one, two)| format!("pair {one} {two}"));
    text("code").map(code).into_iter().chain(text("parent").map(parent)).chain(pair).collect()
}

fn code(code: &str) -> String {
    format!("code {code}")
}

fn parent(key: &str) -> String {
    format!("parent {key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Change;
    use serde_json::json;

    fn row(fields: &[(&str, Value)]) -> Fields {
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn pair(one: i64, two: i64) -> Fields {
        row(&[("one", json!(one)), ("two", json!(two))])
    }

    fn step(token: &str, deed: Change, (began, ended): (u64, u64)) -> Step {
        Step {
            deed,
            token: Some(token.to_owned()),
            outcome: Outcome::Acknowledged,
            may_be_refused: true,
            is_bad: false,
            is_seen: false,
            began,
            ended,
        }
    }

    fn insert(token: &str, fields: Fields, when: (u64, u64)) -> Step {
        step(token, Change::Whole(fields), when)
    }

    /// The tokens of contested steps of these rows. Others took `code7`.
    fn check(rows: Vec<Vec<Step>>, refused_again: &[&str], dead_letters: &[&str], expected: &[&str]) {
        let place = |number| ("things", format!("row{number}"));
        let row = |steps| Row { steps, ..Row::default() };
        let rows: BTreeMap<RowKey, Row> =
            rows.into_iter().enumerate().map(|(number, steps)| (place(number), row(steps))).collect();
        let refused_again = refused_again.iter().map(|&token| token.to_owned()).collect();
        let taken = ["code7".to_owned()];
        let is_dead_letter =
            |step: &Step| step.token.as_deref().is_some_and(|token| dead_letters.contains(&token));
        let known = StepFacts {
            refused_again: &refused_again,
            is_dead_letter: &is_dead_letter,
            taken_by_others: &taken,
        };
        let claims = claims(&rows, &[], &known);
        let found: Vec<_> = claims
            .iter()
            .filter(|claim| claim.is_contested())
            .filter_map(|claim| claim.step.token.as_deref())
            .collect();
        assert_eq!(found, expected, "{claims:#?}");
    }

    #[test]
    fn of_two_steps_for_one_value_at_one_time_either_may_be_refused() {
        let two = |second| vec![vec![insert("a", pair(1, 2), (0, 5))], vec![insert("b", pair(1, 2), second)]];
        // The plain database refused the second, the drain the first.
        check(two((4, 9)), &["b"], &["a"], &["a", "b"]);
        // One step after the other: the order is known.
        check(two((6, 9)), &["b"], &["a"], &[]);
        // Half a pair is not a value.
        check(
            vec![vec![insert("a", pair(1, 2), (0, 5))], vec![insert("b", pair(1, 3), (4, 9))]],
            &[],
            &["a"],
            &[],
        );
        // Both agree: nothing is contested.
        check(two((4, 9)), &["b"], &["b"], &[]);
    }

    #[test]
    fn what_an_unknown_step_gives_up_is_contested() {
        let mut gone = step("gone", Change::Delete, (10, 11));
        let rows = |gone: &Step| {
            vec![vec![insert("a", pair(1, 2), (0, 5)), gone.clone()], vec![insert("b", pair(1, 2), (20, 25))]]
        };
        check(rows(&gone), &["b"], &[], &[]);
        gone.outcome = Outcome::Unknown;
        check(rows(&gone), &["b"], &[], &["b"]);
    }

    /// Seed 164916286495814: others had a code for a while, which hid that a pair was taken with it.
    #[test]
    fn a_step_that_others_made_unclear_makes_the_next_for_its_pair_unclear() {
        let rows = |code: &str| {
            let mut first = pair(0, 52);
            first.insert("code".into(), json!(code));
            vec![vec![insert("a", first, (44, 55))], vec![insert("b", pair(0, 52), (501, 512))]]
        };
        check(rows("code7"), &["a"], &["b"], &["a", "b"]);
        check(rows("code8"), &["a"], &["b"], &[]);
        // The first step was not contested.
        check(rows("code7"), &[], &["b"], &[]);
    }

    #[test]
    fn a_bad_step_that_was_made_good_takes_its_values_with_it() {
        let mut bad = step("bad", Change::Some(pair(1, 2)), (10, 11));
        bad.is_bad = true;
        let rows = vec![
            vec![insert("a", pair(3, 4), (0, 5)), bad, step("good", Change::Some(row(&[])), (12, 13))],
            vec![insert("b", pair(1, 2), (20, 25))],
        ];
        check(rows.clone(), &["bad"], &["b"], &["bad", "b"]);
        // It was refused, as the plain database did: the pair was free.
        check(rows, &["bad"], &["bad", "b"], &[]);
    }
}
