// A small shop, as an application that is already there: docs/in-front-of-your-app.md puts Forebay in front of it.
//
// Its database is a map behind a pool of ten connections, each of which is busy for 5 ms a query: so 2,000 queries a second are
// all it can do, and whoever comes when all ten are busy waits.

import express from "express";

const CONNECTIONS = 10;
const QUERY_MS = 5;
const ITEMS = 1000;

let busy = 0;
let queries = 0;
const waiting = [];

// Runs `work` on one of the connections, when there is one.
async function query(work) {
  while (busy >= CONNECTIONS) await new Promise((resolve) => waiting.push(resolve));
  busy += 1;
  queries += 1;
  await new Promise((resolve) => setTimeout(resolve, QUERY_MS));
  busy -= 1;
  waiting.shift()?.();
  return work();
}

const items = new Map();
for (let id = 1; id <= ITEMS; id += 1) {
  items.set(id, { id, name: `item ${id}`, price: id % 97, description: "as good as new. ".repeat(50) });
}

const app = express();
app.use(express.json());

app.get("/shop/items/:id", async (req, res) => {
  const item = await query(() => items.get(Number(req.params.id)));
  if (!item) return res.status(404).json({ error: "no such item" });
  res.set("Cache-Control", "public, max-age=2").json({ data: item });
});

app.put("/shop/items/:id", async (req, res) => {
  const id = Number(req.params.id);
  const item = await query(() => {
    items.set(id, { ...items.get(id), ...req.body, id });
    return items.get(id);
  });
  res.json({ data: item });
});

app.get("/shop/cart", async (req, res) => {
  const user = req.get("X-User-Id") ?? "nobody";
  await query(() => user);
  res.set("Cache-Control", "private").cookie("seen", "yes").json({ user, items: [] });
});

// Receives a file of any length, and says how long it was.
app.post("/shop/pictures", (req, res) => {
  let bytes = 0;
  req.on("data", (piece) => (bytes += piece.length));
  req.on("end", () => res.status(201).json({ bytes }));
});

app.get("/shop/stats", (req, res) => res.json({ queries }));
app.get("/healthz", (req, res) => res.send("ok"));

const port = Number(process.env.PORT ?? 3201);
const server = app.listen(port, "127.0.0.1", () => console.log(`shop on http://127.0.0.1:${port}`));
process.on("SIGTERM", () => server.close(() => process.exit(0)));
