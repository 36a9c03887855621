// PATCH /update-something/:id/:name: work for every request, 32 KB back, nothing stored.

import { Problem } from "./problem.js";

const EVENTS = 100;
const FOOS = Array.from({ length: 10 }, (_, i) => `foo${i + 1}`);
// As long as what Forebay's example answers, so that both send the same number of bytes.
const SENTENCE = "This event was recorded by the update endpoint while it was working on one request under full load.";
const METADATA = `${SENTENCE} ${SENTENCE}`;

function eventBase(text) {
  const id = /^-?\d+$/.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(id + EVENTS)) throw new Problem(400, "id: must be a number");
  return id;
}

function totalFoo(body) {
  let total = "";
  for (const foo of FOOS) {
    const value = body[foo];
    if (value === undefined || value === null) continue;
    if (typeof value === "object") throw new Problem(400, `${foo}: must be a string, a number or a boolean`);
    total += `${value}. `;
  }
  return total.toUpperCase();
}

function history(id, name) {
  const timestamp = new Date().toISOString();
  const action = `Action performed by ${name}`;
  const events = new Array(EVENTS);
  for (let i = 0; i < EVENTS; i++) {
    const status = i % 2 === 0 ? "success" : "pending";
    events[i] = { event_id: id + i, timestamp, action, metadata: METADATA, status };
  }
  return events;
}

/** Of a parameter that came more than once, the first counts. */
const first = (value) => (Array.isArray(value) ? value[0] : value);

export function updateSomething({ params, query, body }) {
  const id = eventBase(params.id);
  const { name } = params;
  // Characters, not UTF-16 units; three units can be two characters, six cannot.
  if (name.length < 6 && [...name].length < 3) throw new Problem(400, "name: must have at least 3 characters");
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw new Problem(400, "the body must be a JSON object");
  }
  return {
    id,
    name,
    value1: first(query.value1),
    value2: first(query.value2),
    total_foo: totalFoo(body),
    history: history(id, name),
  };
}
