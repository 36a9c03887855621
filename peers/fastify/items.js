// An item four ways, as services are usually written that many users poll: constant, from PostgreSQL, by cache-aside in
// Redis, and by promises kept for a moment in the process before that. Each answer has a weak ETag.

import { createHash } from "node:crypto";
import Fastify from "fastify";
import { Redis } from "ioredis";
import pg from "pg";
import { config } from "../common/config.js";
import { PROBLEM_TYPE, Problem, problemOf, start } from "forebay-peer-common";

const LOCAL_MS = 2_000;
const SHARED_S = 30;
const COLUMNS = "id, name, attribute, description, price, viewers, hot, updated_at";
const BY_ID = { name: "item", text: `SELECT ${COLUMNS} FROM items WHERE id = $1` };

pg.types.setTypeParser(pg.types.builtins.INT8, Number);
pg.types.setTypeParser(pg.types.builtins.NUMERIC, Number);
const pool = new pg.Pool({ connectionString: config.databaseUrl, max: config.databasePool });
pool.on("error", (error) => console.error(`PostgreSQL: ${error.message}`));
const redis = new Redis(config.redisUrl, { enableAutoPipelining: config.redisAutoPipelining });

/** A body with its ETag. */
function answerOf(row) {
  const body = JSON.stringify({ data: row });
  return { etag: `W/"${createHash("sha1").update(body).digest("base64url")}"`, body };
}

async function fromDatabase(id) {
  const { rows } = await pool.query({ ...BY_ID, values: [id] });
  if (rows.length === 0) throw new Problem(404, "there is no such item");
  return answerOf(rows[0]);
}

/** Cache-aside: what is kept is the ETag, a line feed and the body. */
async function fromShared(id) {
  const kept = await redis.get(`item:${id}`);
  if (kept !== null) {
    const end = kept.indexOf("\n");
    return { etag: kept.slice(0, end), body: kept.slice(end + 1) };
  }
  const answer = await fromDatabase(id);
  await redis.set(`item:${id}`, `${answer.etag}\n${answer.body}`, "EX", SHARED_S);
  return answer;
}

const promises = new Map();

/** The promise is kept, not its value: who asks meanwhile waits for the same one. */
function fromBurst(id) {
  const kept = promises.get(id);
  if (kept !== undefined && kept.until > Date.now()) return kept.answer;
  const answer = fromShared(id);
  promises.set(id, { until: Date.now() + LOCAL_MS, answer });
  answer.catch(() => promises.delete(id));
  return answer;
}

const app = Fastify();

app.setErrorHandler((error, request, reply) => {
  const { status, body } = problemOf(error);
  return reply.code(status).type(PROBLEM_TYPE).send(body);
});

function way(path, answer) {
  app.get(path, async (request, reply) => {
    const id = Number(request.params.id ?? 1);
    if (!Number.isSafeInteger(id)) throw new Problem(400, "id: must be a whole number");
    const { etag, body } = await answer(id);
    reply.header("ETag", etag);
    if (request.headers["if-none-match"] === etag) return reply.code(304).send();
    return reply.type("application/json").send(body);
  });
}

const constant = await fromDatabase(1);
way("/bench/empty", async () => constant);
way("/bench/db/items/:id", fromDatabase);
way("/bench/shared/items/:id", fromShared);
way("/bench/burst/items/:id", fromBurst);

await start("fastify-items", (port, host) => app.listen({ port, host }));
