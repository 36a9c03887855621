// Holds servers to the codes rows of the contract: node common/check.js URL [URL…]
//
// Every row is asked of every server, and what is answered must have the same status, the same fields in the same order and, if
// there is more than one server, the same size as that of the first. Ids and times differ from server to server, so sizes are
// compared with ids as one character and times cut to the millisecond, which is as far as JavaScript's go.

import assert from "node:assert/strict";

const UUID = "06f40771-6460-479a-a47c-177473e240b5";
const FOOS = JSON.stringify(Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`foo${i + 1}`, `some text ${i}`])));
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}Z$/;

async function ask(base, method, target, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await fetch(base + target, { method, headers, body });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: text && JSON.parse(text) };
}

const fields = (value, names) => assert.deepEqual(Object.keys(value), names);

function row(value) {
  fields(value, ["id", "code", "created_at"]);
  assert.match(value.code, /^[A-Za-z0-9+/]{500}$/);
  assert.match(value.created_at, TIME);
}

function created({ json }) {
  fields(json, ["created_code"]);
  row(json.created_code);
}

function data({ json }) {
  fields(json, ["data"]);
  row(json.data);
  assert.equal(typeof json.data.id, "number");
}

function problem(answer) {
  assert.match(answer.headers.get("content-type"), /^application\/problem\+json/);
  for (const field of ["type", "title", "status", "detail"]) assert.ok(field in answer.json, field);
  assert.equal(answer.json.status, answer.status);
}

function updated({ json }) {
  fields(json, ["id", "name", "value1", "value2", "total_foo", "history"]);
  assert.deepEqual([json.id, json.name, json.value1, json.value2], [7, "Fred", "one", "two"]);
  assert.equal(json.total_foo, Array.from({ length: 10 }, (_, i) => `SOME TEXT ${i}. `).join(""));
  assert.equal(json.history.length, 100);
  json.history.forEach((event, i) => {
    fields(event, ["event_id", "timestamp", "action", "metadata", "status"]);
    assert.equal(event.event_id, 7 + i);
    assert.match(event.timestamp, TIME);
    assert.equal(event.action, "Action performed by Fred");
    assert.equal(event.metadata.length, 199);
    assert.equal(event.status, i % 2 === 0 ? "success" : "pending");
  });
}

const simple = ({ text }) => assert.equal(text, '{"message":"hi"}');
const allows = (...methods) => (answer) => {
  problem(answer);
  const allowed = (answer.headers.get("allow") ?? "").split(/,\s*/);
  for (const method of methods) assert.ok(allowed.includes(method), `Allow: ${allowed}`);
};

/** Method, target, body, status, what else must be so. Problems are each server's own words: their size is not compared. */
const ROWS = [
  ["GET", "/simple", undefined, 200, simple],
  ["GET", "/simple?x=1", undefined, 200, simple],
  ["HEAD", "/simple", undefined, 200, ({ text }) => assert.equal(text, "")],
  ["PATCH", "/update-something/7/Fred?value1=one&value2=two", FOOS, 200, updated],
  ["PATCH", "/update-something/7/Fred", '{"foo1":1,"foo2":true,"foo3":null}', 200, ({ json }) => {
    fields(json, ["id", "name", "total_foo", "history"]);
    assert.equal(json.total_foo, "1. TRUE. ");
  }],
  ["PATCH", "/update-something/1/J%C3%BCrgen?value1=a%26b", "{}", 200, ({ json }) => {
    assert.deepEqual([json.name, json.value1, json.total_foo], ["Jürgen", "a&b", ""]);
  }],
  ["PATCH", "/update-something/abc/Fred", "{}", 400, problem],
  ["PATCH", "/update-something/1.5/Fred", "{}", 400, problem],
  ["PATCH", "/update-something/1/ab", "{}", 400, problem],
  ["PATCH", "/update-something/1/%F0%9F%98%80", "{}", 400, problem],
  ["PATCH", "/update-something/1/Fred", "[]", 400, problem],
  ["PATCH", "/update-something/1/Fred", '"text"', 400, problem],
  ["PATCH", "/update-something/1/Fred", "null", 400, problem],
  ["PATCH", "/update-something/1/Fred", "", 400, problem],
  ["PATCH", "/update-something/1/Fred", '{"foo1":', 400, problem],
  ["POST", "/code", undefined, 201, created],
  ["GET", "/code-v1", undefined, 200, data],
  ["GET", "/code-v2", undefined, 200, data],
  ["GET", "/code-v3", undefined, 200, data],
  ["GET", "/code-v4", undefined, 200, data],
  ["GET", "/code-v4?max=1", undefined, 200, data],
  ["GET", "/code-v4?max=abc", undefined, 400, problem],
  ["POST", "/code-fast", undefined, 201, created],
  ["GET", "/code-fast", undefined, 200, data],
  ["HEAD", "/code-fast", undefined, 200, ({ text }) => assert.equal(text, "")],
  ["POST", "/code-ultra-fast", undefined, 201, created],
  ["GET", `/code-ultra-fast/${UUID}`, undefined, 404, problem],
  ["GET", "/code-ultra-fast/no-uuid", undefined, 400, problem],
  ["GET", "/no-such-route", undefined, 404, problem],
  ["DELETE", "/simple", undefined, 405, allows("GET", "HEAD")],
  ["PUT", "/code-fast", undefined, 405, allows("GET", "POST")],
];

const comparable = (text) =>
  text.replace(/("id":)("[^"]*"|\d+)/g, "$1#").replace(/(\d\d:\d\d:\d\d\.\d{3})\d{0,3}Z/g, "$1Z").length;

/** Writes with one answer are read back as they were answered. */
async function readBack(base) {
  const { json } = await ask(base, "POST", "/code-ultra-fast");
  const { id } = json.created_code;
  for (const spelled of [id, id.toUpperCase()]) {
    const read = await ask(base, "GET", `/code-ultra-fast/${spelled}`);
    assert.deepEqual(read.json, { data: json.created_code });
  }
  const ids = [];
  for (let i = 0; i < 5; i++) ids.push((await ask(base, "POST", "/code-fast")).json.created_code.id);
  assert.ok(ids.every((value, i) => i === 0 || value > ids[i - 1]), `ids are sequential: ${ids}`);
}

async function check(base, sizes) {
  let wrong = 0;
  const attempt = async (what, work) => {
    try {
      await work();
    } catch (error) {
      wrong += 1;
      console.log(`  ${base} ${what}: ${error.message}`);
    }
  };
  for (const [method, target, body, status, verify] of ROWS) {
    const what = `${method} ${target}${body === undefined ? "" : ` ${body.slice(0, 40)}`}`;
    await attempt(what, async () => {
      const answer = await ask(base, method, target, body);
      assert.equal(answer.status, status, answer.text.slice(0, 200));
      verify(answer);
      if (status >= 300) return;
      const size = comparable(answer.text);
      const expected = sizes.get(what) ?? size;
      sizes.set(what, expected);
      assert.equal(size, expected, "another size than the first server's");
    });
  }
  await attempt("what is written is read back", () => readBack(base));
  console.log(`${base}: ${ROWS.length + 1 - wrong} of ${ROWS.length + 1} as the contract says`);
  return wrong === 0;
}

const servers = process.argv.slice(2).map((url) => url.replace(/\/$/, ""));
if (servers.length === 0) {
  console.error("usage: node common/check.js URL [URL…]");
  process.exit(2);
}
const sizes = new Map();
let good = true;
for (const server of servers) good = (await check(server, sizes)) && good;
process.exitCode = good ? 0 : 1;
