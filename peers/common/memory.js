// The memory tier: Redis, one instance or a cluster, in the layout that such services usually have.
//
// | key | type | holds |
// |---|---|---|
// | codes:unique | set | every code, to refuse one that exists |
// | codes:last_id | string | the last id that was given |
// | codes:row:ID | hash | id, code, created_at |
// | codes:queue | list | ids whose rows are to be copied to the database |
// | ucodes:row:{UUID} | string | the row as JSON; no uniqueness check |
// | ucodes:queue:{0…99} | list | UUIDs to be copied, spread so that a cluster's masters share them |
//
// Nothing ties these writes together: a crash between them leaves a code that is taken and has no row, or a row that is never copied.

import { randomInt, randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import { config } from "./config.js";
import { Problem } from "./problem.js";

const QUEUES = 100;

/** How long the last id is remembered for random reads. */
const LAST_ID_MS = 1000;

function connect() {
  const options = { enableAutoPipelining: config.redisAutoPipelining };
  if (config.redisCluster) return new Cluster(config.redisCluster, options);
  return config.redisUrl ? new Redis(config.redisUrl, options) : null;
}

const redis = connect();

// Each request that fails says so itself.
redis?.on("error", (error) => console.error(`Redis: ${error.message}`));

function store() {
  if (!redis) throw new Problem(503, "no memory tier: neither REDIS_URL nor REDIS_CLUSTER is set");
  return redis;
}

/** Two commands in one round trip; on a cluster they may go to two nodes. */
async function together(first, second) {
  if (config.redisCluster) {
    await Promise.all([redis.call(...first), redis.call(...second)]);
    return;
  }
  const results = await redis.pipeline([first, second]).exec();
  const failed = results.find(([error]) => error);
  if (failed) throw failed[0];
}

/** Inserts a code with the next id; a Problem when the code exists. */
export async function insertCodeFast(code) {
  const added = await store().sadd("codes:unique", code);
  if (added === 0) throw new Problem(409, "code: exists already");
  const id = await redis.incr("codes:last_id");
  const created_at = new Date().toISOString();
  await together(
    ["hset", `codes:row:${id}`, "id", id, "code", code, "created_at", created_at],
    ["lpush", "codes:queue", id],
  );
  return { id, code, created_at };
}

let lastId = 0;
let lastIdUntil = 0;

async function currentLastId() {
  const now = performance.now();
  if (now >= lastIdUntil) {
    lastId = Number((await store().get("codes:last_id")) ?? 0);
    // An empty table is asked again every time: the first row is to be seen at once.
    lastIdUntil = lastId === 0 ? 0 : now + LAST_ID_MS;
  }
  return lastId;
}

/** The row of a random id, or null. */
export async function randomCodeFast() {
  const last = await currentLastId();
  if (last === 0) return null;
  const { id, code, created_at } = await redis.hgetall(`codes:row:${randomInt(1, last + 1)}`);
  return id === undefined ? null : { id: Number(id), code, created_at };
}

/** Inserts a code under a random UUID. */
export async function insertCodeUltraFast(code) {
  const row = { id: randomUUID(), code, created_at: new Date().toISOString() };
  await store().set(`ucodes:row:{${row.id}}`, JSON.stringify(row));
  await redis.lpush(`ucodes:queue:{${Math.floor(Math.random() * QUEUES)}}`, row.id);
  return row;
}

/** The row with that UUID, or null. */
export async function codeUltraFast(id) {
  const row = await store().get(`ucodes:row:{${id}}`);
  return row === null ? null : JSON.parse(row);
}
