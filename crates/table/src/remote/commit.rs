//! A change that is ready to be written, and the script that writes it.

use super::encode::{HEAD_BYTES, QUEUED_WHOLE, StoredRow, Tracked};
use super::error::too_busy;
use super::names::{self, OWN_GENERATION};
use super::table::{KeyPlace, RemoteTable};
use super::tier::Call;
use super::{scripts, wire};
use crate::error::{HotError, HotKind};
use crate::hash::{Fingerprint, NO_VALUE};
use crate::limits::{RECORD_BYTES_MAX, REMOTE_TRIES};
use crate::record;
use forebay_redis::{Link, Value as Answer};

/// Unique values, each with the index of its column among the unique columns.
type Values = Vec<(usize, Fingerprint)>;

/// The state that a row must have for a change to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Any,
    Head([u8; HEAD_BYTES]),
}

/// A change of one row that is ready to be written.
pub(crate) struct Change<'a> {
    pub place: &'a KeyPlace,
    pub expect: Expect,
    /// The tracked values before the change; empty: no row, its values are not known, or none is tracked.
    pub before: Tracked,
    /// The tracked values after the change; empty: no row.
    pub after: Tracked,
    /// The queue entry.
    pub record: Vec<u8>,
    pub is_delete: bool,
    /// Whether the change is refused when memory is full.
    pub grows: bool,
}

/// The result of a change that was sent.
pub(crate) enum Written {
    Done,
    /// The row is not as expected; this is its present entry.
    Changed(Option<StoredRow>),
}

/// The answer of the write script.
pub(crate) enum Answered {
    Written(Written),
    /// A unique value (the column, its fingerprint) is reserved for another row.
    Taken {
        column: usize,
        value: Fingerprint,
        holder: Vec<u8>,
    },
    /// The attempt was fenced, or had reserved its values under an earlier generation.
    Fenced,
}

/// Data that only a cluster needs: the attempt's token, its shard's own generation before it began, and the
/// reservations of its values.
#[derive(Default)]
pub(crate) struct Attempt {
    pub token: Vec<u8>,
    pub own: Vec<u8>,
    pub relied: Vec<Relied>,
}

/// The reservations of another shard on which a row relies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relied {
    /// The shard that reserved the value.
    pub shard: u16,
    pub generation: Vec<u8>,
    /// How many reservations that shard had made by then.
    pub number: u64,
}

impl Relied {
    /// The arguments for scripts: field and value of the generation, field and value of the number.
    pub fn args(&self) -> [Vec<u8>; 4] {
        let fields = [names::generation_field(self.shard), names::reserved_field(self.shard)];
        let [generation_field, reserved_field] = fields;
        [generation_field, self.generation.clone(), reserved_field, wire::digits(self.number)]
    }
}

/// Field and value of a change's queue entry, as the write script expects them. A row has the same bytes
/// there as in the rows' hash, so that the server builds one string for both.
fn queue_entry(change: &Change<'_>) -> [Vec<u8>; 2] {
    match record::row_offset(&change.record) {
        Some(offset) => {
            let (head, row) = change.record.split_at(offset);
            [head.to_vec(), row.to_vec()]
        }
        None => [QUEUED_WHOLE.to_vec(), change.record.clone()],
    }
}

impl Tracked {
    /// The value of one tracked column; [`NO_VALUE`] when there is no row.
    pub fn value(&self, index: usize) -> Fingerprint {
        self.values.get(index).copied().unwrap_or(NO_VALUE)
    }
}

impl RemoteTable {
    /// Sends a change. Outside a cluster the script itself claims its unique values.
    pub(crate) async fn commit(&self, link: &Link, change: &Change<'_>) -> Result<Written, HotError> {
        if change.record.len() > RECORD_BYTES_MAX {
            return Err(HotError::too_large());
        }
        if self.tier.is_cluster && self.exchanged(change).next().is_some() {
            return self.commit_reserved(link, change).await;
        }
        for _ in 0..REMOTE_TRIES {
            match self.send(link, change, &Attempt::default()).await? {
                Answered::Written(written) => return Ok(written),
                Answered::Taken { column, value, holder } => {
                    self.clear_away(link, column, value, &holder).await?;
                }
                Answered::Fenced => {}
            }
        }
        Err(too_busy())
    }

    /// The unique columns whose value a change replaces: the index among the unique columns, the column, the
    /// value before and after.
    pub(crate) fn exchanged<'c>(
        &'c self,
        change: &'c Change<'_>,
    ) -> impl Iterator<Item = (usize, usize, Fingerprint, Fingerprint)> + 'c {
        let columns = self.schema.unique_columns().enumerate();
        columns
            .map(|(index, column)| (index, column, change.before.value(index), change.after.value(index)))
            .filter(|(_, _, before, after)| before != after)
    }

    /// Runs the script once.
    pub(crate) async fn send(
        &self,
        link: &Link,
        change: &Change<'_>,
        attempt: &Attempt,
    ) -> Result<Answered, HotError> {
        let shard = change.place.shard;
        let answer = self
            .tier
            .write(link, shard, || self.call(change, attempt))
            .await
            .map_err(|error| self.noted(error))?;
        if matches!(answer, Answer::Int(_)) {
            return Ok(Answered::Written(Written::Done));
        }
        let mut values = wire::array("write", answer)?.into_iter();
        let why = wire::bytes("write", values.next().unwrap_or(Answer::Nil))?;
        match &why[..] {
            b"full" => {
                let what = "the memory limit is reached and nothing can be evicted";
                Err(HotError::new(HotKind::MemoryFull, what))
            }
            b"fenced" => Ok(Answered::Fenced),
            b"changed" => {
                let now = wire::optional_bytes("write", values.next().unwrap_or(Answer::Nil))?;
                let now = now.map(|bytes| self.read_entry(&bytes)).transpose()?;
                Ok(Answered::Written(Written::Changed(now)))
            }
            b"taken" => {
                let claim = wire::number("write", &values.next().unwrap_or(Answer::Nil))? as usize;
                let holder = wire::bytes("write", values.next().unwrap_or(Answer::Nil))?;
                let mut claims = self.exchanged(change).filter(|(.., after)| *after != NO_VALUE);
                let (_, column, _, value) = claims.nth(claim).ok_or_else(|| {
                    HotError::foreign("the write script names a value that was not asked for")
                })?;
                Ok(Answered::Taken { column, value, holder })
            }
            _ => Err(HotError::foreign("the write script gave an answer that is not known")),
        }
    }

    fn call(&self, change: &Change<'_>, attempt: &Attempt) -> Call {
        let shard = change.place.shard;
        let names = self.names(shard);
        let counters = self.counter_changes(&change.before, &change.after);
        let (claims, releases) = self.claims_and_releases(change);
        let has_token = !attempt.token.is_empty();
        let stream = &self.tier.shards[usize::from(shard)].stream;
        let mut keys = vec![self.meta(shard), stream.clone(), names.rows.clone()];
        let needed =
            [(change.is_delete, &names.deleted), (self.is_ordered, &names.order), (has_token, &names.fences)];
        keys.extend(needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, name)| name.clone()));
        keys.extend(counters.iter().map(|(index, ..)| names.counters[*index].clone()));
        for (index, value) in claims.iter().chain(&releases) {
            keys.push(self.names(self.tier.shard_of_value(*value)).uniques[*index].clone());
        }
        let generations = attempt.relied.len() + usize::from(has_token);
        let counts = [generations, counters.len(), claims.len(), releases.len()];
        let control = self.control(change, has_token, counts);
        let mut args = vec![self.loaded_field.clone(), control, change.place.key.clone()];
        args.extend(queue_entry(change));
        if let Expect::Head(head) = change.expect {
            args.push(head.to_vec());
        }
        if has_token {
            args.push(attempt.token.clone());
            // No reservation of this shard is relied on: nothing is noted.
            args.extend([OWN_GENERATION.to_vec(), attempt.own.clone(), Vec::new(), wire::digits(0u64)]);
        }
        args.extend(attempt.relied.iter().flat_map(Relied::args));
        for (_, value, delta) in counters {
            args.extend([value.to_le_bytes().to_vec(), delta.to_string().into_bytes()]);
        }
        args.extend(claims.iter().chain(&releases).map(|(_, value)| value.to_le_bytes().to_vec()));
        Call { script: &scripts::WRITE, keys, args }
    }

    /// The control argument: the kind of change, and the number of its parts.
    fn control(&self, change: &Change<'_>, has_token: bool, counts: [usize; 4]) -> Vec<u8> {
        let mut control = vec![
            if change.is_delete { b'd' } else { b'p' },
            if change.grows { b'f' } else { b'-' },
            if self.is_ordered { b'o' } else { b'-' },
            match change.expect {
                Expect::Absent => b'a',
                Expect::Any => b'y',
                Expect::Head(_) => b'h',
            },
            if has_token { b't' } else { b'-' },
        ];
        for count in counts {
            let count = u16::try_from(count).expect("a table has fewer than 32,768 columns");
            control.extend(count.to_le_bytes());
        }
        control
    }

    /// The unique values that the script itself claims and releases, by index among the unique columns; empty
    /// in a cluster.
    fn claims_and_releases(&self, change: &Change<'_>) -> (Values, Values) {
        let (mut claims, mut releases) = (Vec::new(), Vec::new());
        if self.tier.is_cluster {
            return (claims, releases);
        }
        for (index, _, before, after) in self.exchanged(change) {
            if after != NO_VALUE {
                claims.push((index, after));
            }
            if before != NO_VALUE {
                releases.push((index, before));
            }
        }
        (claims, releases)
    }

    /// The changes of counters: the index among the counted columns, the value, and by how much.
    pub(crate) fn counter_changes(
        &self,
        before: &Tracked,
        after: &Tracked,
    ) -> Vec<(usize, Fingerprint, i64)> {
        let uniques = self.schema.unique_columns().count();
        let mut changes = Vec::new();
        for index in 0..self.schema.indexed_columns().count() {
            let (before, after) = (before.value(uniques + index), after.value(uniques + index));
            if before == after {
                continue;
            }
            if before != NO_VALUE {
                changes.push((index, before, -1));
            }
            if after != NO_VALUE {
                changes.push((index, after, 1));
            }
        }
        changes
    }
}
