//! Unique values.
//!
//! **Outside a cluster** the row's script checks every reservation and takes it, together with the row. A
//! reservation names its row. A stale one, whose row no longer has the value (left when the view was dropped,
//! see `repair`), is removed and the script is run again.
//!
//! **In a cluster** a value and its row are in different slots, which one script cannot reach together. A
//! value is reserved first:
//!
//! 1. *Reserve*, in the value's shard V: compare-and-set from nothing to (token, key). The token is this
//!    attempt's own, random.
//! 2. *Write*, in the row's shard W: the row's script, unless the attempt (token, key) is fenced there, or
//!    reserved under another generation of V's reservations than W has stored.
//! 3. *Release*: when the script did not write, V: compare-and-set from (token, key) to nothing; when it did,
//!    the values that the row gave up, each from the reservation that was read before step 2.
//!
//! A write that finds a reservation (token', key') in step 1 looks the row key' up, in its shard. If the row
//! has the value, it is a conflict. If not, the attempt (token', key') is fenced there (by a script that does
//! so only if the row is still as it was seen, and after which step 2 of that attempt fails), and the
//! reservation is taken over by compare-and-set from (token', key').
//!
//! **Two rows never share a value.** A row gets a value only by step 2 under a reservation that named it.
//! While the row has the value, nothing removes that reservation: a compare-and-set from it follows a fence,
//! and the fence is set only while the row, at the version that was seen, does not have the value. From then
//! on the fenced attempt cannot write, so the row can get the value only by another attempt, which needs its
//! own reservation. A release of a value is a compare-and-set from the reservation that was read while the
//! row still had the value; if the row takes the value again, it does so under another token.
//!
//! **A crash at any point does no harm.** After step 1 it leaves a stale reservation, whose row does not have
//! the value; that costs the next writer of the value a look-up, a fence and a swap. After step 2, with the
//! old values not released, the same. An attempt that was only slow meets the fence. Nothing is freed by time
//! alone; fences stay, one for each attempt that was taken over.
//!
//! **When V loses its tail** (a failover, see `repair`) it may have lost reservations of rows that exist. V
//! numbers its reservations, and a row's script notes in W's meta the newest number of V's that a row of W
//! relies on (`r<V>`; loads and read-throughs do the same). Before V accepts anything again it gets a new
//! generation, which is announced in the meta of every shard; an attempt under the old generation fails in
//! step 2 from there on. Only then are the notes of all shards read: if V still counts as many reservations
//! as the highest of them, it has lost none that any row has, because what a primary loses is what was
//! written last. Then no rows are scanned: a primary that restarts with its data costs one script a shard.
//! Otherwise all rows are scanned, and their values in V are reserved again; meanwhile V accepts everything
//! but new reservations (see `rebuild`).
//!
//! **When W loses its tail** it may have lost fences. An attempt names W's own generation as it was before
//! step 1, so that no attempt that began before the failover writes after it.

use super::commit::{Answered, Attempt, Change, Expect, Relied, Written};
use super::encode::StoredRow;
use super::error::too_busy;
use super::table::{KeyPlace, LookedUp, RemoteTable};
use super::tier::Call;
use super::{scripts, wire};
use crate::error::HotError;
use crate::hash::{Fingerprint, NO_VALUE};
use crate::key::KeyRef;
use crate::limits::REMOTE_TRIES;
use forebay_redis::Link;
use futures_util::future::try_join_all;

/// The token of reservations that no write attempt made: those of rows that were loaded or read.
pub(super) const UNHELD: [u8; 8] = [0; 8];

/// Bytes of a reservation before the key.
pub(crate) const TOKEN_BYTES: usize = 8;

/// A value of a unique column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UniqueValue {
    /// The index among the unique columns.
    pub index: usize,
    pub column: usize,
    pub value: Fingerprint,
}

/// The result of a compare-and-set of a reservation.
enum Swapped {
    Done(Relied),
    /// Another reservation exists (empty: none); a row that relies on it relies on no newer one than this.
    Found(Vec<u8>, Relied),
}

/// The row that a reservation names.
enum Holder {
    /// It has the value.
    Has(StoredRow),
    /// It does not have the value: its place, and the head that was seen (empty: no row).
    Lacks { place: KeyPlace, head: Vec<u8> },
}

/// The result of reserving the values of a change.
enum Reserved {
    All,
    /// The change's own row has one of them already: another server has just written it.
    Changed(StoredRow),
}

fn is_conflict(error: &HotError) -> bool {
    matches!(error.kind(), crate::HotKind::Conflict { .. })
}

impl RemoteTable {
    async fn swap(
        &self,
        link: &Link,
        unique: UniqueValue,
        expected: &[u8],
        new: &[u8],
    ) -> Result<Swapped, HotError> {
        let shard = self.tier.shard_of_value(unique.value);
        let call = || Call {
            script: &scripts::SWAP,
            keys: vec![self.meta(shard), self.names(shard).uniques[unique.index].clone()],
            args: vec![unique.value.to_le_bytes().to_vec(), expected.to_vec(), new.to_vec()],
        };
        let answer = self.tier.write(link, shard, call).await?;
        let [done, found, generation, number] = wire::tuple("swap", answer)?;
        let (generation, number) = (wire::bytes("swap", generation)?, wire::number("swap", &number)?);
        let relied = Relied { shard, generation, number };
        Ok(match wire::number("swap", &done)? {
            1 => Swapped::Done(relied),
            _ => Swapped::Found(wire::bytes("swap", found)?, relied),
        })
    }

    /// Looks up the row that a reservation names.
    async fn holds(&self, link: &Link, unique: UniqueValue, holder: &[u8]) -> Result<Holder, HotError> {
        let place = self.holder_place(holder)?;
        let Some(entry) = self.look_up(link, &place).await?.entry else {
            return Ok(Holder::Lacks { place, head: Vec::new() });
        };
        let value = entry.tracked(&self.tier.hasher, &self.schema).value(unique.index);
        Ok(match value == unique.value {
            true => Holder::Has(entry),
            false => Holder::Lacks { place, head: entry.head.to_vec() },
        })
    }

    fn holder_place(&self, holder: &[u8]) -> Result<KeyPlace, HotError> {
        let key = holder.get(TOKEN_BYTES..).ok_or_else(|| HotError::foreign("a reservation names no row"))?;
        let key = super::encode::key_value(&self.schema, key)?;
        let key = KeyRef::of(key.as_ref()).ok_or_else(|| HotError::foreign("a reservation names no key"))?;
        Ok(self.place(key))
    }

    /// Outside a cluster: returns a conflict if the row of a reservation has the value; otherwise removes the
    /// stale reservation.
    pub(crate) async fn clear_away(
        &self,
        link: &Link,
        column: usize,
        value: Fingerprint,
        holder: &[u8],
    ) -> Result<(), HotError> {
        let index = self.schema.unique_columns().position(|unique| unique == column).unwrap_or(0);
        let unique = UniqueValue { index, column, value };
        if matches!(self.holds(link, unique, holder).await?, Holder::Has(_)) {
            return Err(HotError::conflict(column));
        }
        // If the row took the value meanwhile, its reservation is a new one, and this swap fails.
        self.swap(link, unique, holder, b"").await?;
        Ok(())
    }

    /// Steps 1 to 3 for one change.
    pub(crate) async fn commit_reserved(
        &self,
        link: &Link,
        change: &Change<'_>,
    ) -> Result<Written, HotError> {
        for _ in 0..REMOTE_TRIES {
            let shard = change.place.shard;
            let own = self.tier.own_generation(link, shard).await.map_err(HotError::before_the_write)?;
            let token = rand::random::<u64>().to_le_bytes().to_vec();
            let mut attempt = Attempt { token, own, relied: Vec::new() };
            let given_up = self.given_up(link, change).await?;
            let mut reserved = Vec::new();
            let result = match self.reserve_all(link, change, &mut attempt, &mut reserved).await {
                Ok(Reserved::All) => self.send(link, change, &attempt).await,
                Ok(Reserved::Changed(now)) => Ok(Answered::Written(Written::Changed(Some(now)))),
                // If the key exists too, that is the conflict to report.
                Err(error) if change.expect == Expect::Absent && is_conflict(&error) => {
                    match self.look_up(link, change.place).await {
                        Ok(LookedUp { entry: Some(now), .. }) => {
                            Ok(Answered::Written(Written::Changed(Some(now))))
                        }
                        _ => Err(error),
                    }
                }
                Err(error) => Err(error.before_the_write()),
            };
            let reservation = [&attempt.token[..], &change.place.key].concat();
            match result {
                Ok(Answered::Written(Written::Done)) => {
                    self.release(link, given_up).await;
                    return Ok(Written::Done);
                }
                // The row may be written, and then needs its reservations.
                Err(error) if error.kind() == crate::HotKind::UnknownOutcome => return Err(error),
                other => {
                    self.release(
                        link,
                        reserved.into_iter().map(|unique| (unique, reservation.clone())).collect(),
                    )
                    .await;
                    match other? {
                        Answered::Written(written) => return Ok(written),
                        // The next try has another token.
                        Answered::Fenced | Answered::Taken { .. } => {
                            self.tier.generations.lock().remove(&shard);
                        }
                    }
                }
            }
        }
        Err(too_busy())
    }

    /// The reservations of the values that a change frees.
    async fn given_up(
        &self,
        link: &Link,
        change: &Change<'_>,
    ) -> Result<Vec<(UniqueValue, Vec<u8>)>, HotError> {
        let values = self.exchanged(change).filter(|(_, _, before, _)| *before != NO_VALUE);
        let asked = values.map(|(index, column, value, _)| {
            let shard = self.tier.shard_of_value(value);
            let mut command = forebay_redis::Command::new();
            command.arg("HGET").arg(&self.names(shard).uniques[index]).arg(&value.to_le_bytes()[..]);
            async move {
                let answer = self.tier.read(link, shard, command).await?;
                let holder = wire::optional_bytes("HGET", answer)?;
                Ok::<_, HotError>((UniqueValue { index, column, value }, holder.unwrap_or_default()))
            }
        });
        let found: Vec<_> = try_join_all(asked).await?;
        let is_own =
            |holder: &[u8]| holder.get(TOKEN_BYTES..).is_some_and(|key| key == &change.place.key[..]);
        Ok(found.into_iter().filter(|(_, holder)| is_own(holder)).collect())
    }

    /// Step 1 for each new value, in the order of the columns. `reserved` receives the values to be released
    /// if the attempt fails.
    async fn reserve_all(
        &self,
        link: &Link,
        change: &Change<'_>,
        attempt: &mut Attempt,
        reserved: &mut Vec<UniqueValue>,
    ) -> Result<Reserved, HotError> {
        let reservation = [&attempt.token[..], &change.place.key].concat();
        for (index, column, _, value) in self.exchanged(change).filter(|(.., after)| *after != NO_VALUE) {
            let unique = UniqueValue { index, column, value };
            // Before the call, in case its answer is lost: releasing a reservation that does not exist does
            // nothing.
            reserved.push(unique);
            match self.reserve(link, unique, &reservation).await? {
                Ok(relied) => attempt.relied.push(relied),
                Err(now) => return Ok(Reserved::Changed(now)),
            }
        }
        Ok(Reserved::All)
    }

    /// Reserves one value; the inner error is the change's own row, if that has the value already.
    async fn reserve(
        &self,
        link: &Link,
        unique: UniqueValue,
        reservation: &[u8],
    ) -> Result<Result<Relied, StoredRow>, HotError> {
        let mut expected = Vec::new();
        for _ in 0..REMOTE_TRIES {
            let holder = match self.swap(link, unique, &expected, reservation).await? {
                Swapped::Done(relied) => return Ok(Ok(relied)),
                Swapped::Found(holder, _) => holder,
            };
            expected.clear();
            if holder.is_empty() {
                continue;
            }
            let (place, head) = match self.holds(link, unique, &holder).await? {
                Holder::Has(now) if holder[TOKEN_BYTES..] == reservation[TOKEN_BYTES..] => {
                    return Ok(Err(now));
                }
                Holder::Has(_) => return Err(HotError::conflict(unique.column)),
                Holder::Lacks { place, head } => (place, head),
            };
            if self.fence(link, &place, &holder[..TOKEN_BYTES], &head).await? {
                expected = holder;
            }
        }
        Err(too_busy())
    }

    /// Fences an attempt; false when the row has changed, and the attempt is not fenced.
    async fn fence(
        &self,
        link: &Link,
        place: &KeyPlace,
        token: &[u8],
        head: &[u8],
    ) -> Result<bool, HotError> {
        let names = self.names(place.shard);
        let call = || Call {
            script: &scripts::FENCE,
            keys: vec![self.meta(place.shard), names.rows.clone(), names.fences.clone()],
            args: vec![place.key.clone(), token.to_vec(), head.to_vec()],
        };
        let answer = self.tier.write(link, place.shard, call).await?;
        Ok(wire::number("fence", &answer)? == 1)
    }

    /// Releases reservations. If a release fails, the next writer of the value finds the reservation to be
    /// stale.
    async fn release(&self, link: &Link, reservations: Vec<(UniqueValue, Vec<u8>)>) {
        let released = reservations.iter().map(|(unique, holder)| self.swap(link, *unique, holder, b""));
        for result in futures_util::future::join_all(released).await {
            drop(result);
        }
    }

    /// Reserves a value for a row that has it in the database, in place of a stale reservation. Returns the
    /// reservation on which the row then relies; `None`: another row has the value in memory.
    pub(crate) async fn settle(
        &self,
        link: &Link,
        unique: UniqueValue,
        holder: &[u8],
        key: &[u8],
    ) -> Result<Option<Relied>, HotError> {
        let own = [&[0; TOKEN_BYTES][..], key].concat();
        let mut holder = holder.to_vec();
        for _ in 0..REMOTE_TRIES {
            if !holder.is_empty() {
                match self.holds(link, unique, &holder).await? {
                    // The row in memory is newer than the one that was loaded.
                    Holder::Has(_) => return Ok(None),
                    Holder::Lacks { place, head } => {
                        if !self.fence(link, &place, &holder[..TOKEN_BYTES], &head).await? {
                            continue;
                        }
                    }
                }
            }
            match self.swap(link, unique, &holder, &own).await? {
                Swapped::Done(relied) => return Ok(Some(relied)),
                Swapped::Found(found, relied) if found.get(TOKEN_BYTES..) == Some(key) => {
                    return Ok(Some(relied));
                }
                Swapped::Found(found, _) => holder = found,
            }
        }
        Err(too_busy())
    }
}
