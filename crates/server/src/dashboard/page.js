// What the page shows, and when. Every number comes from /metrics or is computed from two scrapes; /ready,
// /drain, /tables and /dead-letters provide words, lists and the drain's state.

import { Scrape, buckets, increase, increases, perSecond, quantile } from "./metrics.js";
import { Chart } from "./chart.js";
import { bytes, counted, duration, longer, percent, short, whole } from "./format.js";
import { facts, mood, rows, tiles } from "./show.js";

const EVERY_MS = 2_000;
const SPAN_MS = 300_000;
/** What tables and percentiles look back on. */
const WINDOW_MS = 10_000;
const REQUESTS = "forebay_http_requests_total";
const DURATIONS = "forebay_http_request_duration_seconds";

const byId = (id) => document.getElementById(id);
const state = { scrapes: [], points: [], held: false, letters: null };

const chart = (id, lines, format, scale = format) => new Chart(byId(id), lines, format, scale, SPAN_MS);
const charts = {
  requests: chart("chart-requests", [
    { name: "2xx", look: "blue" }, { name: "3xx", look: "violet dashed" },
    { name: "4xx", look: "amber dashed" }, { name: "5xx", look: "red dotted" },
  ], short),
  latency: chart("chart-latency", [
    { name: "p50", look: "blue" }, { name: "p90", look: "violet dashed" }, { name: "p99", look: "red dotted" },
  ], duration, longer),
  backlog: chart("chart-backlog", [{ name: "changes", look: "amber" }], short),
  cache: chart("chart-cache", [{ name: "hits", look: "green" }, { name: "misses", look: "amber dashed" }], short),
};

const json = async (answer) => (answer.headers.get("content-type")?.includes("json") ? answer.json() : null);

/** What a path answers, also when it is a refusal; throws when there is no server. */
async function get(path) {
  return json(await fetch(path, { cache: "no-store" }));
}

async function post(path) {
  const answer = await fetch(path, { method: "POST" });
  const body = await json(answer);
  if (!answer.ok) throw new Error(body?.detail ?? `${answer.status} ${answer.statusText}`);
  return body;
}

/** The scrape that lies so far back, or the oldest. */
function back(ms) {
  const now = state.scrapes.at(-1);
  return state.scrapes.findLast(({ atMs }) => now.atMs - atMs >= ms) ?? state.scrapes[0];
}

const classOf = (digit) => ({ status }) => status.startsWith(digit);

function point(now, before) {
  const rate = (name, wanted) => perSecond(increases(name, now, before, wanted), now, before);
  const spread = buckets(DURATIONS, now, back(WINDOW_MS));
  return {
    atMs: now.atMs,
    requests: ["2", "3", "4", "5"].map((digit) => rate(REQUESTS, classOf(digit))),
    latency: [0.5, 0.9, 0.99].map((q) => quantile(q, spread)),
    backlog: [now.value("forebay_drain_backlog_rows") ?? NaN],
    cache: [rate("forebay_cache_hits_total"), rate("forebay_cache_misses_total")],
  };
}

function showTiles(now, last) {
  const value = (series) => now.value(series) ?? NaN;
  const answers = last.requests.reduce((sum, rate) => sum + rate, 0);
  const [hits, misses] = ["hits", "misses"].map((of) => increases(`forebay_cache_${of}_total`, now, back(WINDOW_MS)));
  const lag = value("forebay_drain_lag_seconds");
  const used = value("forebay_memory_used_bytes"), limit = value("forebay_memory_limit_bytes");
  const received = "forebay_http_requests_received_total", waiting = "forebay_http_requests_waiting";
  tiles(byId("tiles"), [
    { name: "Answers / s", text: short(answers), series: received, more: counted(value(received), "request", "requests") },
    { name: "5xx / s", text: short(last.requests[3]), mood: last.requests[3] > 0 ? "bad" : "" ,
      more: `4xx ${short(last.requests[2])} / s` },
    { name: "p99", text: duration(last.latency[2]), more: `p50 ${duration(last.latency[0])}` },
    { name: "Waiting", text: whole(value(waiting)), series: waiting,
      more: counted(value("forebay_http_connections"), "connection", "connections") },
    { name: "Drain lag", text: longer(lag), series: "forebay_drain_lag_seconds", mood: lag > 60 ? "warn" : "" ,
      more: counted(value("forebay_drain_backlog_rows"), "change", "changes") },
    { name: "Backlog", text: bytes(value("forebay_drain_backlog_bytes")), series: "forebay_drain_backlog_bytes",
      more: "in the log" },
    { name: "Memory", text: bytes(used), series: "forebay_memory_used_bytes", mood: used > 0.95 * limit ? "warn" : "",
      more: `${percent(used, limit)} of ${bytes(limit)}` },
    { name: "Cache hits", text: percent(hits, hits + misses), series: "forebay_cache_entries",
      more: counted(value("forebay_cache_entries"), "entry", "entries") },
  ], now);
}

function showRoutes(now) {
  const before = back(WINDOW_MS);
  const all = now.family(`${DURATIONS}_count`).map(({ labels, series, value }) => {
    const of = (other) => other.method === labels.method && other.route === labels.route;
    const spread = buckets(DURATIONS, now, before, of);
    const spent = increase(series.replace("_count{", "_sum{"), now, before);
    return {
      name: labels.route ? `${labels.method || "*"} ${labels.route}` : "no route", spent, series, value,
      rate: perSecond(increase(series, now, before), now, before),
      p50: quantile(0.5, spread), p99: quantile(0.99, spread),
      bad: perSecond(increases(REQUESTS, now, before, (other) => of(other) && classOf("5")(other)), now, before),
    };
  });
  all.sort((a, b) => (b.p99 || 0) - (a.p99 || 0) || b.spent - a.spent || b.value - a.value);
  rows(byId("routes"), "No route has answered yet.", all.slice(0, 20).map((route) => [
    { code: route.name }, short(route.rate), duration(route.p50), duration(route.p99), short(route.bad),
    { text: whole(route.value), series: route.series, value: route.value },
  ]));
}

function showStatements(now) {
  const before = back(WINDOW_MS);
  const all = now.family("forebay_statements_total").map(({ labels, series, value }) => {
    const runs = increase(series, now, before);
    const spent = increase(series.replace("forebay_statements_total", "forebay_statement_seconds_total"), now, before);
    const flying = series.replace("forebay_statements_total", "forebay_statements_in_flight");
    const same = series.replace("forebay_statements_total", "forebay_statements_identical_in_flight");
    return { sql: labels.statement, series, value, rate: perSecond(runs, now, before), mean: spent / runs,
      flying, inFlight: now.value(flying) ?? 0, same, identical: now.value(same) ?? 0 };
  });
  all.sort((a, b) => (b.mean || 0) - (a.mean || 0) || b.value - a.value);
  rows(byId("statements"), "No endpoint runs SQL of its own.", all.slice(0, 20).map((of) => [
    { code: of.sql }, short(of.rate), longer(of.mean),
    { text: whole(of.inFlight), series: of.flying, value: of.inFlight },
    { text: whole(of.identical), series: of.same, value: of.identical },
    { text: whole(of.value), series: of.series, value: of.value },
  ]));
}

function showDrain(now, drain) {
  const status = drain?.status ?? "loading";
  const good = status === "running", waits = ["starting", "paused", "waiting", "elsewhere", "loading"].includes(status);
  mood(byId("drain-status"), good ? "good" : waits ? "warn" : "bad", status);
  const rate = perSecond(increases("forebay_drain_rows_total", now, back(WINDOW_MS)), now, back(WINDOW_MS));
  const series = (name, series, format) => ({ name, series, text: format(now.value(series) ?? NaN) });
  const list = [
    series("Backlog, changes", "forebay_drain_backlog_rows", whole),
    series("Backlog, bytes", "forebay_drain_backlog_bytes", bytes),
    series("Lag", "forebay_drain_lag_seconds", longer),
    { name: "Changes / s", text: short(rate) },
    series("Drained since the start", "forebay_drain_rows_total", whole),
    series("Dead letters since the start", "forebay_dead_letters_total", whole),
  ];
  if (now.value("forebay_follow_lag_seconds") !== undefined) {
    list.push(series("Behind others' writes", "forebay_follow_lag_seconds", longer), series("Rows of theirs", "forebay_follow_rows_total", whole));
  }
  if (drain?.held_rows) list.push({ name: "Held changes", text: whole(drain.held_rows) });
  const opening = drain?.window;
  if (opening) list.push({ name: opening.open ? "Window ends" : "Next window", text: opening.open ? opening.ends : opening.begins });
  if (drain?.last_error) list.push({ name: "Last error", text: drain.last_error, wide: true });
  for (const stopped of drain?.stopped_tables ?? []) {
    list.push({ name: `Table ${stopped.table} is stopped`, text: stopped.reason, wide: true });
  }
  facts(byId("drain"), list, now);
  const pause = byId("drain-pause");
  pause.textContent = drain?.paused ? "Resume drain" : "Pause drain";
  pause.dataset.path = drain?.paused ? "/drain/resume" : "/drain/pause";
  pause.disabled = !drain || status === "elsewhere" || pause.ariaBusy === "true";
  byId("drain-finish").disabled = !drain || drain.paused || byId("drain-finish").ariaBusy === "true";
}

function showLetters(letters) {
  const count = letters?.count ?? 0;
  mood(byId("letters-count"), count > 0 ? "bad" : "good", whole(count));
  byId("letters-replay").disabled = count === 0 || byId("letters-replay").ariaBusy === "true";
  const none = letters ? "The database has refused nothing." : "The database is not asked yet.";
  rows(byId("letters"), none, (letters?.letters ?? []).map((letter) => [
    `${letter.op} ${letter.table}`, { code: letter.key ?? "" }, letter.reason, new Date(letter.at).toLocaleString(),
  ]), "left");
}

function showTables(now, tables) {
  rows(byId("tables"), "The config has no hot table.", (tables?.tables ?? []).map(({ table, loaded }) => {
    const cell = (name, format) => {
      const found = now.family(name).find(({ labels }) => labels.table === table);
      return { text: format(found?.value ?? NaN), series: found?.series, value: found?.value };
    };
    return [
      { code: table }, cell("forebay_table_rows", whole), cell("forebay_table_used_bytes", bytes),
      loaded ? "loaded" : "loading",
    ];
  }));
  const used = now.value("forebay_memory_used_bytes"), limit = now.value("forebay_memory_limit_bytes");
  facts(byId("memory"), [
    { name: "Memory of all hot tables", series: "forebay_memory_used_bytes", bar: used / limit, wide: true,
      text: `${bytes(used)} of ${bytes(limit)}` },
  ], now);
}

function showProcess(now) {
  const before = back(WINDOW_MS);
  const series = (name, series, format) => ({ name, series, text: format(now.value(series) ?? NaN) });
  const rate = (of) => perSecond(increases(of, now, before), now, before);
  facts(byId("process"), [
    series("Cached answers", "forebay_cache_entries", whole), series("of bytes", "forebay_cache_bytes", bytes),
    series("Cache hits", "forebay_cache_hits_total", whole), series("Misses", "forebay_cache_misses_total", whole),
    series("Fills", "forebay_cache_fills_total", whole),
    series("Failed fills", "forebay_cache_fill_failures_total", whole),
    series("Shared cache hits", "forebay_cache_shared_hits_total", whole),
    { name: "Cores in use", text: rate("process_cpu_seconds_total").toFixed(2) },
    series("Resident memory", "process_resident_memory_bytes", bytes),
    series("Connections", "forebay_http_connections", whole),
    { name: "From clients / s", text: bytes(rate("forebay_http_received_bytes_total")) },
    { name: "To clients / s", text: bytes(rate("forebay_http_sent_bytes_total")) },
  ], now);
}

function showReady(ready) {
  const moods = { ready: "good", degraded: "warn" };
  mood(byId("ready"), moods[ready.status] ?? "bad", ready.status);
  byId("conditions").replaceChildren(...(ready.conditions ?? []).map(({ state: word, table, why, since }) => {
    const item = document.createElement("li");
    if (ready.status !== "degraded") item.dataset.mood = "bad";
    const begun = new Date(since).toLocaleTimeString();
    item.textContent = `${word}${table ? ` (${table})` : ""} since ${begun}: ${why}`;
    return item;
  }));
}

async function poll() {
  const [ready, scraped] = await Promise.all([get("/ready"), fetch("/metrics", { cache: "no-store" })]);
  showReady(ready);
  if (!scraped.ok) return;
  const now = new Scrape(await scraped.text(), performance.now());
  const [drain, tables] = await Promise.all([get("/drain"), get("/tables")]);
  const dead = now.value("forebay_dead_letters_total");
  if (state.letters === null || dead !== state.dead) await readLetters();
  state.dead = dead;
  state.scrapes = [...state.scrapes.filter(({ atMs }) => now.atMs - atMs <= WINDOW_MS + EVERY_MS), now];
  const last = point(now, state.scrapes.at(-2) ?? now);
  state.points = [...state.points.filter(({ atMs }) => now.atMs - atMs <= SPAN_MS), last];
  showTiles(now, last);
  Object.entries(charts).forEach(([name, shown]) => {
    shown.show(state.points.map((point) => ({ atMs: point.atMs, values: point[name] })));
  });
  showRoutes(now);
  showStatements(now);
  showDrain(now, drain?.status?.length ? drain : null);
  showTables(now, tables);
  showProcess(now);
  document.body.dataset.scrapes = Number(document.body.dataset.scrapes ?? 0) + 1;
}

async function readLetters() {
  const letters = await get("/dead-letters");
  state.letters = letters && "count" in letters ? letters : null;
  showLetters(state.letters);
}

async function tick() {
  if (!state.held && !document.hidden) {
    try {
      await poll();
      byId("told").textContent = `as of ${new Date().toLocaleTimeString()}`;
      document.documentElement.classList.remove("old");
    } catch (error) {
      mood(byId("ready"), "bad", "no answer");
      byId("told").textContent = `the server does not answer (${error.message}); the numbers are old`;
      document.documentElement.classList.add("old");
    }
  }
  setTimeout(tick, EVERY_MS);
}

/** Asks for something by a button, and says what came of it. */
async function ask(button, path, said, words) {
  button.disabled = true;
  button.ariaBusy = "true";
  mood(said, "", "…");
  try {
    mood(said, "", words(await post(path)));
  } catch (error) {
    mood(said, "bad", error.message);
  }
  button.ariaBusy = "false";
  if (!state.held) await poll().catch(() => {});
}

byId("drain-pause").addEventListener("click", ({ currentTarget: button }) => {
  ask(button, button.dataset.path, byId("drain-said"), (drain) => `The drain is ${drain.status}.`);
});
byId("drain-finish").addEventListener("click", ({ currentTarget: button }) => {
  ask(button, "/drain/finish", byId("drain-said"), () => "What was in the log is in the database.");
});
byId("letters-replay").addEventListener("click", () => byId("replay").showModal());
byId("replay").addEventListener("close", async ({ currentTarget: dialog }) => {
  if (dialog.returnValue !== "replay") return;
  await ask(byId("letters-replay"), "/drain/replay", byId("letters-said"), ({ applied, refused }) => {
    const stay = refused.length ? ` ${refused.length} stay: ${refused[0].reason}` : "";
    return `${applied} applied.${stay}`;
  });
  await readLetters();
});
byId("hold").addEventListener("click", ({ currentTarget: button }) => {
  state.held = !state.held;
  button.setAttribute("aria-pressed", String(state.held));
  button.textContent = state.held ? "Resume updates" : "Pause updates";
});
tick();
