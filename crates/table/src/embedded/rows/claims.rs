//! How changes of rows affect a table's unique values: taken and freed with the row, reserved for an intent,
//! held beside the claim of the row that has them.

use super::{Held, Reserved, Rows, UniqueSet, nth};
use crate::embedded::unique::{Claim, Claims, Taken};
use crate::hash::{Fingerprint, NO_VALUE};
use forebay_log::Position;
use smallvec::SmallVec;

impl Rows {
    /// A row changes from one state to another (empty: no row). Refuses when a unique value is taken;
    /// otherwise calls `append` and on success takes and frees unique values and counts. All or nothing.
    pub fn exchange<E>(
        &self,
        before: &[Fingerprint],
        after: &[Fingerprint],
        conflict: impl FnOnce(Taken) -> E,
        append: impl FnOnce() -> Result<Position, E>,
    ) -> Result<Position, E> {
        let position = if self.has_unique {
            let claims = self.claims(before, after);
            let mut locked = self.unique.lock(&claims);
            if let Some(taken) = locked.conflict(&claims) {
                return Err(conflict(taken));
            }
            let position = append()?;
            locked.apply(&claims, position, &self.budget);
            position
        } else {
            append()?
        };
        self.recount(before, after, position);
        Ok(position)
    }

    /// [`Rows::exchange`] for a change that is already in the log or the database: it refuses nothing.
    pub fn exchange_known(&self, before: &[Fingerprint], after: &[Fingerprint], position: Position) {
        if self.has_unique {
            let claims = self.claims(before, after);
            self.unique.lock(&claims).apply(&claims, position, &self.budget);
        }
        self.recount(before, after, position);
    }

    /// An intent will change a row from one state to another. Refuses when a unique value is taken; otherwise
    /// has `append` note and append the intent, and reserves the values of the row's new state. It also
    /// reserves those that the row has already, because an image of the row may free them before the intent
    /// sets them again. All or nothing.
    pub fn reserve<E>(
        &self,
        before: &[Fingerprint],
        after: &[Fingerprint],
        conflict: impl FnOnce(Taken) -> E,
        append: impl FnOnce(Reserved) -> Result<Position, E>,
    ) -> Result<Position, E> {
        let claims = self.claims_to_take(&[], after);
        if claims.is_empty() {
            return append(claims);
        }
        let mut locked = self.unique.lock(&claims);
        if let Some(taken) = locked.conflict(&self.claims_to_take(before, after)) {
            return Err(conflict(taken));
        }
        let position = append(claims.clone())?;
        locked.reserve(&claims, position);
        Ok(position)
    }

    /// [`Rows::reserve`] for an intent that is in the log already: it refuses nothing.
    pub fn reserve_known(&self, after: &[Fingerprint], position: Position) -> Reserved {
        let claims = self.claims_to_take(&[], after);
        self.unique.lock(&claims).reserve(&claims, position);
        claims
    }

    /// Ends what [`Rows::reserve`] began.
    pub fn unreserve(&self, reserved: &Reserved, position: Position) {
        self.unique.lock(reserved).unreserve(reserved, position);
    }

    fn claims_to_take(&self, before: &[Fingerprint], after: &[Fingerprint]) -> Claims {
        let claims = self.claims(before, after).into_iter();
        claims
            .map(|claim| Claim { before: NO_VALUE, ..claim })
            .filter(|claim| claim.after != NO_VALUE)
            .collect()
    }

    /// Whether any column or set of columns besides the key is unique.
    pub fn has_unique(&self) -> bool {
        self.has_unique
    }

    /// Adds a second claim to each unique value that a row is about to take from another row;
    /// [`Rows::release`] ends these claims.
    pub fn hold(&self, before: &[Fingerprint], after: &[Fingerprint], held: &mut Held) {
        for claim in self.claims(before, after) {
            let claim = [Claim { before: NO_VALUE, ..claim }];
            let mut locked = self.unique.lock(&claim);
            if locked.conflict(&claim).is_some() {
                locked.apply(&claim, Position(0), &self.budget);
                held.extend(claim);
            }
        }
    }

    /// Ends what [`Rows::hold`] began.
    pub fn release(&self, held: Held) {
        for claim in held {
            let claim = [Claim { rule: claim.rule, before: claim.after, after: NO_VALUE }];
            self.unique.lock(&claim).apply(&claim, Position(0), &self.budget);
        }
    }

    /// The unique values of a row that another row has too.
    pub fn shared_values(&self, of: &[Fingerprint]) -> Claims {
        let mut claims = self.claims_that(|claim| claim.after != NO_VALUE, &[], of);
        claims.retain(|claim| {
            let claim = std::slice::from_ref(claim);
            self.unique.lock(claim).is_shared(&claim[0])
        });
        claims
    }

    /// Whether a row has one of these unique values.
    pub fn has_any(&self, of: &[Fingerprint], values: &[Claim]) -> bool {
        let is_one =
            |claim: &Claim| values.iter().any(|value| (value.rule, value.after) == (claim.rule, claim.after));
        !self.claims_that(is_one, &[], of).is_empty()
    }

    /// Whether another row, or an intent, has a unique value that this row keeps.
    pub fn has_twin(&self, before: &[Fingerprint], after: &[Fingerprint]) -> bool {
        let is_kept = |claim: &Claim| claim.before == claim.after && claim.after != NO_VALUE;
        let kept = self.claims_that(is_kept, before, after);
        !kept.is_empty() && self.unique.lock(&kept).has_twin(&kept)
    }

    fn claims(&self, before: &[Fingerprint], after: &[Fingerprint]) -> Claims {
        self.claims_that(|claim| claim.before != claim.after, before, after)
    }

    fn claims_that(
        &self,
        counts: impl Fn(&Claim) -> bool,
        before: &[Fingerprint],
        after: &[Fingerprint],
    ) -> Claims {
        let tracked = self.tracked.iter().enumerate().filter(|(_, tracked)| tracked.is_unique);
        let claims = tracked.map(|(index, tracked)| Claim {
            rule: tracked.column,
            before: nth(before, index),
            after: nth(after, index),
        });
        let joint = |set: &UniqueSet, of: &[Fingerprint]| {
            let values: SmallVec<[Fingerprint; 4]> =
                set.members.iter().map(|index| nth(of, *index)).collect();
            self.hasher.joint(set.rule, &values)
        };
        let of_sets = self.unique_sets.iter().map(|set| Claim {
            rule: set.rule,
            before: joint(set, before),
            after: joint(set, after),
        });
        claims.chain(of_sets).filter(|claim| counts(claim)).collect()
    }
}
