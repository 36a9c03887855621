// The database: table `codes` in PostgreSQL, by a pool of connections and statements that each of them prepares once.

import pg from "pg";
import { config } from "./config.js";
import { Problem } from "./problem.js";

// A bigint comes as text, because it may not fit into a number. Ids do: they are counted from 1.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

const UNIQUE_VIOLATION = "23505";

const pool = config.databaseUrl
  ? new pg.Pool({ connectionString: config.databaseUrl, max: config.databasePool, connectionTimeoutMillis: 10_000 })
  : null;

// A connection that breaks while it is idle: the pool replaces it, and the next request that fails says why.
pool?.on("error", (error) => console.error(`PostgreSQL: ${error.message}`));

const COLUMNS = "id, code, created_at";

const INSERT = { name: "insert", text: `INSERT INTO codes (code) VALUES ($1) RETURNING ${COLUMNS}` };

const RANDOM_BY_ORDER = { name: "v1", text: `SELECT ${COLUMNS} FROM codes ORDER BY random() LIMIT 1` };

const RANDOM_BY_COUNT = {
  name: "v2",
  text: `SELECT ${COLUMNS} FROM codes
    WHERE id >= (SELECT 1 + floor(random() * count(*))::bigint FROM codes)
    ORDER BY id LIMIT 1`,
};

const RANDOM_BY_MAX = {
  name: "v3",
  text: `SELECT ${COLUMNS} FROM codes
    WHERE id >= (SELECT 1 + floor(random() * max(id))::bigint FROM codes)
    ORDER BY id LIMIT 1`,
};

const FIRST_AT_OR_ABOVE = { name: "v4", text: `SELECT ${COLUMNS} FROM codes WHERE id >= $1 ORDER BY id LIMIT 1` };

async function query(statement, values) {
  if (!pool) throw new Problem(503, "no database: DATABASE_URL is not set");
  const { rows } = await pool.query({ ...statement, values });
  return rows[0] ?? null;
}

/** Inserts a code; the row, or a Problem when the code exists. */
export async function insertCode(code) {
  try {
    return await query(INSERT, [code]);
  } catch (error) {
    if (error.code === UNIQUE_VIOLATION) throw new Problem(409, "code: exists already");
    throw error;
  }
}

export const randomByOrder = () => query(RANDOM_BY_ORDER);
export const randomByCount = () => query(RANDOM_BY_COUNT);
export const randomByMax = () => query(RANDOM_BY_MAX);

/** The first row at or above an id; above the last one the first of all, by a second look-up. */
export async function firstAtOrAbove(id) {
  return (await query(FIRST_AT_OR_ABOVE, [id])) ?? query(FIRST_AT_OR_ABOVE, [1]);
}
