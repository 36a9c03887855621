//! The tier: the state that all Forebay servers of one deployment share, and calls to one shard.

use super::names::{self, ShardNames, TierNames};
use super::positions::Positions;
use super::probe;
use super::scripts;
use super::wire;
use crate::catalogue::Catalogue;
use crate::error::HotError;
use crate::hash::{Fingerprint, Hasher};
use crate::limits::{REMOTE_REPAIR_PAUSE, REMOTE_REPAIR_WAIT, SHARDS_CLUSTER, SHARDS_SINGLE};
use crate::reads::Reads;
use crate::record::TableId;
use crate::source::Source;
use forebay_redis::{Client, Command, Link, Need, ReadFrom, Script, Slot, Topology, Value, require};
use forebay_value::{Numbers, Schema};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::watch;

/// The version of the layout of keys, scripts and entries that this program supports.
const VERSION: &str = "1";

/// How a tier is used.
#[derive(Debug, Clone, Default)]
pub struct RemoteOptions {
    /// The deployment's name, in every key. `None`: the unnamed root, if a tier of this database from before
    /// names existed is found there; otherwise a name derived from `database`.
    pub name: Option<String>,
    /// Identifies the database. The tier stores it, and refuses every other database. Empty: nothing is
    /// stored.
    pub database: String,
    /// The number of shards of a new tier; an existing tier must have the same number. `None`: an existing
    /// tier's number, or one that suits the topology.
    pub shards: Option<u16>,
    /// Names of the tables whose columns come from the database: a unique or indexed column that the tier
    /// does not keep is no error there.
    pub undeclared: Vec<String>,
    /// The bytes that all primaries together may use before drained rows are evicted; 0: only the servers'
    /// own limits.
    pub limit_bytes: u64,
}

/// A repair that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repairing {
    /// Shards that it repairs.
    pub shards: usize,
    /// Whether these shards accept writes again, except those with new unique values.
    pub takes_writes: bool,
    /// When it began.
    pub since: Instant,
    /// Rows that were scanned for unique values whose reservations a server has lost.
    pub rows: u64,
}

/// `None` until a repair has ended; then whether it repaired all shards.
type RepairOutcome = watch::Receiver<Option<Result<bool, HotError>>>;

pub(crate) struct Tier {
    pub id: u128,
    pub names: TierNames,
    /// Identifies its database.
    pub database: String,
    pub client: Client,
    pub shards: Vec<ShardNames>,
    /// Whether the topology is a cluster: one script cannot reach the keys of two shards.
    pub is_cluster: bool,
    pub hasher: Hasher,
    pub source: Arc<dyn Source>,
    pub positions: Arc<dyn Positions>,
    pub limit_bytes: u64,
    pub catalogue: RwLock<Arc<Catalogue>>,
    /// For the tables of this process: the `kept:` fields of the tier's hash, and their texts.
    pub kept_fields: parking_lot::Mutex<Vec<Vec<u8>>>,
    pub this: Weak<Tier>,
    /// When this process last completed a repair; locked while it repairs.
    pub repaired_at: tokio::sync::Mutex<Option<Instant>>,
    /// The repair under way.
    pub repair_state: parking_lot::Mutex<Option<Repairing>>,
    /// The rebuild of reservations under way, while writes are accepted.
    pub rebuild_state: parking_lot::Mutex<Option<Repairing>>,
    /// The outcome of the repair that a request has begun, for which others wait.
    repair: parking_lot::Mutex<Option<RepairOutcome>>,
    /// By shard: its own generation as it was last read.
    pub generations: parking_lot::Mutex<HashMap<u16, Vec<u8>>>,
    /// Limits how many reads of the source run and wait at the same time.
    pub reads: Reads,
    /// The bytes that the primaries used, and when they were asked.
    pub used: tokio::sync::Mutex<Option<(Instant, u64)>>,
    /// The sum of their `maxmemory` at that time; 0: no limit.
    pub servers_limit_bytes: AtomicU64,
    /// What was wrong with their memory at that time.
    pub memory_troubles: parking_lot::Mutex<Vec<String>>,
    /// Whether this process stops; every load under way has a receiver.
    pub leaving: watch::Sender<bool>,
}

/// A script with its keys and arguments.
pub(crate) struct Call {
    pub script: &'static Script,
    pub keys: Vec<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
}

impl Tier {
    /// Finds the tier or creates it. It changes no key of a shard.
    pub async fn open(
        client: &Client,
        link: &Link,
        options: &RemoteOptions,
        source: Arc<dyn Source>,
        positions: Arc<dyn Positions>,
    ) -> Result<Arc<Tier>, HotError> {
        let facts = client.facts().await?;
        let primaries: Vec<_> =
            facts.iter().filter(|facts| facts.role == forebay_redis::Role::Primary).collect();
        for facts in &primaries {
            require(facts, Need::NoEviction)?;
        }
        let is_cluster = client.topology() == Topology::Cluster;
        let suitable = if is_cluster { SHARDS_CLUSTER } else { SHARDS_SINGLE };
        let names = TierNames::new(root(link, options, &*positions).await?);
        let (id, count) = find(client, link, &names, options, suitable).await?;
        let shards: Vec<ShardNames> =
            (0..count).map(|number| ShardNames::new(&names.root, id, number, count)).collect();
        probe::check(link, &shards, &primaries).await?;
        Ok(Arc::new_cyclic(|this| Tier {
            this: this.clone(),
            id,
            database: options.database.clone(),
            client: client.clone(),
            shards,
            names,
            is_cluster,
            hasher: Hasher::shared(id),
            source,
            positions,
            limit_bytes: options.limit_bytes,
            catalogue: RwLock::default(),
            kept_fields: parking_lot::Mutex::default(),
            repaired_at: tokio::sync::Mutex::default(),
            repair_state: parking_lot::Mutex::default(),
            rebuild_state: parking_lot::Mutex::default(),
            repair: parking_lot::Mutex::default(),
            generations: parking_lot::Mutex::default(),
            reads: Reads::default(),
            used: tokio::sync::Mutex::default(),
            servers_limit_bytes: AtomicU64::new(0),
            memory_troubles: parking_lot::Mutex::default(),
            leaving: watch::Sender::new(false),
        }))
    }

    pub fn shard_count(&self) -> u16 {
        // Fits: the shards were numbered with `u16`.
        self.shards.len() as u16
    }

    /// The id of a shard's queue in the database, unique for tier and shard.
    pub fn log_id(&self, shard: u16) -> u128 {
        log_id(self.id, shard)
    }

    /// The shard in which a unique value is reserved.
    pub fn shard_of_value(&self, value: Fingerprint) -> u16 {
        ((value >> 64) % u128::from(self.shard_count())) as u16
    }

    /// Sends a command that reads.
    pub async fn read(&self, link: &Link, shard: u16, command: Command) -> Result<Value, HotError> {
        Ok(link.read(self.shards[usize::from(shard)].slot, command).await?)
    }

    /// Runs a script that writes. When the shard needs a repair, the script is run again after it.
    pub async fn write(&self, link: &Link, shard: u16, call: impl Fn() -> Call) -> Result<Value, HotError> {
        let (slot, began) = (self.shards[usize::from(shard)].slot, Instant::now());
        loop {
            let Call { script, keys, args } = call();
            match link.write(slot, script, keys, args).await {
                Err(error) if is_repairable(&error) => self.changed_over(began, error).await?,
                done => return Ok(done?),
            }
        }
    }

    /// Runs a script that only reads, like [`Tier::write`].
    pub async fn run_read_script(
        &self,
        link: &Link,
        shard: u16,
        call: impl Fn() -> Call,
    ) -> Result<Value, HotError> {
        let (slot, began) = (self.shards[usize::from(shard)].slot, Instant::now());
        loop {
            let Call { script, keys, args } = call();
            match self.eval(link, slot, script, keys, args).await {
                Err(error) if is_repairable(&error) => self.changed_over(began, error).await?,
                done => return Ok(done?),
            }
        }
    }

    /// Runs a script on the primary, even when reads go to replicas: replicas have other epochs, and may lag.
    pub async fn eval(
        &self,
        link: &Link,
        slot: Slot,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, forebay_redis::Error> {
        match self.client.options().read_from {
            ReadFrom::Primary => link.eval_read(slot, script, keys, args).await,
            ReadFrom::Replicas => link.write(slot, script, keys, args).await,
        }
    }

    /// Has the shards repaired whose servers have changed over, or waits for another server that repairs
    /// them; at most for the time that a request may wait.
    async fn changed_over(&self, began: Instant, error: forebay_redis::Error) -> Result<(), HotError> {
        let left = REMOTE_REPAIR_WAIT.saturating_sub(began.elapsed());
        let mut outcome = self.begin_repair();
        let ended = async { outcome.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone()) };
        match tokio::time::timeout(left, ended).await {
            Ok(Some(Ok(true))) => Ok(()),
            Ok(Some(Err(failed))) => Err(failed),
            // The repair continues after the answer.
            Err(_) => Err(error.into()),
            Ok(Some(Ok(false)) | None) if left.is_zero() => Err(error.into()),
            Ok(Some(Ok(false)) | None) => {
                tokio::time::sleep(REMOTE_REPAIR_PAUSE).await;
                Ok(())
            }
        }
    }

    /// The outcome of the repair under way, or of a new one. The repair continues when the request that began
    /// it is dropped.
    fn begin_repair(&self) -> RepairOutcome {
        let mut repair = self.repair.lock();
        if let Some(running) = repair.as_ref().filter(|running| running.has_changed().is_ok_and(|told| !told))
        {
            return running.clone();
        }
        let (tell, outcome) = watch::channel(None);
        if let Some(tier) = self.this.upgrade() {
            tokio::spawn(async move {
                let repaired = tier.repair().await;
                // Fails only when no caller waits any more.
                let _ = tell.send(Some(repaired));
            });
        }
        *repair = Some(outcome.clone());
        outcome
    }

    /// A shard's own generation, possibly from the cache of this process.
    pub async fn own_generation(&self, link: &Link, shard: u16) -> Result<Vec<u8>, HotError> {
        if let Some(known) = self.generations.lock().get(&shard) {
            return Ok(known.clone());
        }
        let generation = self.state(link, shard).await?.generation.into_bytes();
        self.generations.lock().insert(shard, generation.clone());
        Ok(generation)
    }

    /// Reads the present catalogue, and the highest table id.
    pub async fn read_catalogue(&self, link: &Link) -> Result<(Catalogue, u64), HotError> {
        let mut command = Command::new();
        command.arg("HGETALL").arg(&self.names.tier);
        let fields = match link.read(self.names.slot, command).await? {
            Value::Map(pairs) => pairs.into_iter().flat_map(|(field, value)| [field, value]).collect(),
            other => wire::array("HGETALL", other)?,
        };
        let mut catalogue = Catalogue::default();
        let mut last = 0;
        let mut fields = fields.into_iter();
        while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
            let field = wire::bytes("HGETALL", field)?;
            if field.starts_with(b"table:") {
                let text = wire::bytes("HGETALL", value)?;
                catalogue.read_entry(&text).map_err(|error| HotError::foreign(error.to_string()))?;
            } else if field == b"last" {
                last = wire::number("HGETALL", &value)?;
            }
        }
        Ok((catalogue, last))
    }

    /// Returns each table's id, which all servers share; new tables get one.
    pub async fn assign(&self, link: &Link, schemas: &[&Schema]) -> Result<Vec<TableId>, HotError> {
        'again: loop {
            let (mut catalogue, mut last) = self.read_catalogue(link).await?;
            let mut ids = Vec::with_capacity(schemas.len());
            for schema in schemas {
                let known = catalogue.tables().count();
                // Servers that log together mean columns by their names.
                let mut schema = Schema::clone(schema);
                schema.numbers = Numbers::default();
                let id = catalogue
                    .assign(&mut schema, false)
                    .map_err(|error| HotError::foreign(error.to_string()))?;
                ids.push(id);
                if catalogue.tables().count() == known {
                    continue;
                }
                let text = Catalogue::entry_text(id, &schema)
                    .map_err(|error| HotError::foreign(error.to_string()))?;
                let args = vec![wire::digits(last), format!("table:{id}").into_bytes(), text.into_bytes()];
                let keys = vec![self.names.tier.clone()];
                let done = link.write(self.names.slot, &scripts::ASSIGN, keys, args).await?;
                if wire::number("assign", &done)? == 0 {
                    continue 'again;
                }
                last += 1;
            }
            *self.catalogue.write() = Arc::new(catalogue);
            return Ok(ids);
        }
    }
}

/// Whether a shard refused a script because its epoch or its reservations need a repair.
fn is_repairable(error: &forebay_redis::Error) -> bool {
    matches!(error.code(), Some("EPOCH" | "REBUILD"))
}

/// The id of a shard's queue in the database.
fn log_id(tier: u128, shard: u16) -> u128 {
    let bytes = [&tier.to_le_bytes()[..], &shard.to_le_bytes()].concat();
    xxhash_rust::xxh3::xxh3_128(&bytes)
}

/// The prefix of this deployment's keys.
async fn root(link: &Link, options: &RemoteOptions, positions: &dyn Positions) -> Result<String, HotError> {
    let unnamed = || Ok(names::ROOT.to_owned());
    if let Some(name) = &options.name {
        return Ok(names::root_of(name));
    }
    if options.database.is_empty() {
        return unnamed();
    }
    // A tier from before names existed may hold changes that are not drained into its database yet.
    let mut command = Command::new();
    command.arg("HMGET").arg(TierNames::new(names::ROOT.into()).tier).arg("id").arg("shards");
    let [id, shards] =
        wire::tuple("tier", link.read(TierNames::new(names::ROOT.into()).slot, command).await?)?;
    let id = wire::optional_bytes("tier", id)?.and_then(|id| {
        let id = String::from_utf8(id).ok()?;
        u128::from_str_radix(&id, 16).ok()
    });
    if let Some(id) = id {
        for shard in 0..wire::number("the tier's shards", &shards)?.min(u64::from(u16::MAX)) as u16 {
            if positions.drained(log_id(id, shard)).await?.is_some() {
                return unnamed();
            }
        }
    }
    Ok(names::root_of(names::name_of(&options.database)))
}

/// The id and the number of shards of the existing tier, or of a new one.
async fn find(
    client: &Client,
    link: &Link,
    names: &TierNames,
    options: &RemoteOptions,
    suitable: u16,
) -> Result<(u128, u16), HotError> {
    let wanted = options.shards;
    let shards = wanted.unwrap_or(suitable);
    if shards == 0 || shards > forebay_redis::SLOTS {
        let what = format!("a tier has 1 to {} shards, not {shards}", forebay_redis::SLOTS);
        return Err(HotError::foreign(what));
    }
    let mut command = Command::new();
    command.arg("EXISTS").arg(&names.tier);
    if link.read(names.slot, command).await? == Value::Int(0) {
        refuse_orphans(client, names).await?;
    }
    let id = format!("{:032x}", rand::random::<u128>());
    let (id, stored) = make(link, names, &id, shards, &options.database).await?;
    match wanted {
        Some(wanted) if wanted != stored => Err(HotError::foreign(format!(
            "the tier in memory has {stored} shards, {wanted} are configured: set shards = {stored}, or drain it and begin a new one"
        ))),
        _ => Ok((id, stored)),
    }
}

/// Fails when there are shards whose tier's own key is lost: no drain would read their changes.
async fn refuse_orphans(client: &Client, names: &TierNames) -> Result<(), HotError> {
    let pattern = format!("{}{{*:m", names.root);
    for node in client.primaries() {
        let mut scan = client.scan(&node.address, pattern.as_bytes()).await?;
        while let Some(found) = scan.next().await? {
            if let Some(key) = found.first() {
                return Err(HotError::foreign(format!(
                    "{} holds shards of a tier ({}) whose own key {} was lost: start a server that still serves it, which puts it \
                     back, or flush what is left",
                    node.address,
                    String::from_utf8_lossy(key),
                    String::from_utf8_lossy(&names.tier),
                )));
            }
        }
    }
    Ok(())
}

/// Creates the tier unless it exists; returns its id and its number of shards.
pub(crate) async fn make(
    link: &Link,
    names: &TierNames,
    id: &str,
    shards: u16,
    database: &str,
) -> Result<(u128, u16), HotError> {
    let args = vec![id.into(), wire::digits(shards), VERSION.into(), database.into()];
    let answer = link.write(names.slot, &scripts::MAKE_TIER, vec![names.tier.clone()], args).await?;
    let [id, stored, version, known] = wire::tuple("tier", answer)?;
    let known = wire::optional_bytes("the tier's database", known)?.unwrap_or_default();
    if !database.is_empty() && known != database.as_bytes() {
        let name = names.root.trim_start_matches(names::ROOT).trim_end_matches(':');
        let what = format!(
            "the tier {name:?} in memory belongs to another database ({} in its table forebay_database; this one has {database}): give this \
             deployment a memory.name of its own, or drain that tier into its database and empty it",
            String::from_utf8_lossy(&known)
        );
        return Err(HotError::foreign(what));
    }
    let version = wire::text("the tier's version", version)?;
    if version != VERSION {
        let what = format!("the tier in memory has version {version}, this program knows {VERSION}");
        return Err(HotError::foreign(what));
    }
    let id = wire::text("the tier's id", id)?;
    let id = u128::from_str_radix(&id, 16)
        .map_err(|_| HotError::foreign(format!("the memory tier has the invalid id {id:?}")))?;
    match u16::try_from(wire::number("the tier's shards", &stored)?) {
        Ok(stored) if (1..=forebay_redis::SLOTS).contains(&stored) => Ok((id, stored)),
        _ => Err(HotError::foreign("the memory tier has an invalid number of shards")),
    }
}
