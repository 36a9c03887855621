// Fills Redis with codes in the peers' layout: REDIS_URL=… node common/seed.js ROWS

import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";

const BATCH = 2000;

const rows = Number(process.argv[2]);
if (!Number.isInteger(rows) || rows < 1 || !process.env.REDIS_URL) {
  console.error("usage: REDIS_URL=redis://… node common/seed.js ROWS");
  process.exit(2);
}
const redis = new Redis(process.env.REDIS_URL);
const created_at = new Date().toISOString();
const began = performance.now();
for (let id = 1; id <= rows; ) {
  const pipeline = redis.pipeline();
  for (const end = Math.min(rows, id + BATCH - 1); id <= end; id++) {
    const code = randomBytes(375).toString("base64");
    pipeline.sadd("codes:unique", code);
    pipeline.hset(`codes:row:${id}`, "id", id, "code", code, "created_at", created_at);
  }
  for (const [error] of await pipeline.exec()) if (error) throw error;
}
await redis.set("codes:last_id", rows);
const seconds = (performance.now() - began) / 1000;
console.log(`${rows} rows in ${seconds.toFixed(1)} s, ${Math.round(rows / seconds)} rows/s`);
redis.disconnect();
