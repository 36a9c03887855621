// The routes of the codes application, for any framework: what is asked in plain objects, what is answered too.

import { randomBytes, randomInt } from "node:crypto";
import * as memory from "./memory.js";
import { Problem } from "./problem.js";
import * as records from "./records.js";
import { updateSomething } from "./update-something.js";

const MAX_DEFAULT = 10_000_000;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** 375 random bytes: 500 characters without padding. */
const randomCode = () => randomBytes(375).toString("base64");

const found = (body) => ({ status: 200, body });
const created = (row) => ({ status: 201, body: { created_code: row } });

function data(row, missing = "there is no code yet") {
  if (row === null) throw new Problem(404, missing);
  return found({ data: row });
}

function maxOf({ max }) {
  if (max === undefined) return MAX_DEFAULT;
  const value = Number(max);
  // randomInt takes ranges below 2^48.
  if (!/^\d+$/.test(max) || value < 1 || value >= 2 ** 48) throw new Problem(400, "max: must be a whole number from 1");
  return value;
}

function uuidOf({ id }) {
  if (!UUID.test(id)) throw new Problem(400, "id: must be a UUID");
  return id.toLowerCase();
}

/**
 * Every route: `answer({ params, query, body })` gives `{ status, body }` or throws a Problem. Paths are written with `:name`.
 */
export const routes = [
  { method: "GET", path: "/simple", answer: () => found({ message: "hi" }) },
  { method: "PATCH", path: "/update-something/:id/:name", answer: (request) => found(updateSomething(request)) },
  { method: "POST", path: "/code", answer: async () => created(await records.insertCode(randomCode())) },
  { method: "GET", path: "/code-v1", answer: async () => data(await records.randomByOrder()) },
  { method: "GET", path: "/code-v2", answer: async () => data(await records.randomByCount()) },
  { method: "GET", path: "/code-v3", answer: async () => data(await records.randomByMax()) },
  {
    method: "GET",
    path: "/code-v4",
    answer: async ({ query }) => data(await records.firstAtOrAbove(randomInt(1, maxOf(query) + 1))),
  },
  { method: "POST", path: "/code-fast", answer: async () => created(await memory.insertCodeFast(randomCode())) },
  { method: "GET", path: "/code-fast", answer: async () => data(await memory.randomCodeFast()) },
  {
    method: "POST",
    path: "/code-ultra-fast",
    answer: async () => created(await memory.insertCodeUltraFast(randomCode())),
  },
  {
    method: "GET",
    path: "/code-ultra-fast/:id",
    answer: async ({ params }) => data(await memory.codeUltraFast(uuidOf(params)), "there is no code with this id"),
  },
];

/** The parsers of Express and Cpeak make an empty object of an empty body, which is none. */
export const bodyOf = (req) => (req.headers["content-length"] === "0" ? undefined : req.body);

const patterns = routes.map(({ method, path }) => ({
  method,
  pattern: new RegExp(`^${path.replace(/:\w+/g, "[^/]+")}$`),
}));

/** What no route took: 405 with the methods that the path has, or 404. `{ problem, headers }`. */
export function unrouted(path) {
  const methods = patterns.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
  if (methods.length === 0) return { problem: new Problem(404, "there is nothing here"), headers: {} };
  if (methods.includes("GET")) methods.push("HEAD");
  const allow = methods.join(", ");
  return { problem: new Problem(405, `this path takes ${allow}`), headers: { Allow: allow } };
}
