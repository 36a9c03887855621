// The codes routes on Express.

import express from "express";
import { PROBLEM_TYPE, bodyOf, problemOf, routes, start, unrouted } from "forebay-peer-common";

const app = express();
app.disable("x-powered-by");
// A tag for every answer would be a hash of 32 KB; nobody asked for one, and Forebay's codes routes have none.
app.disable("etag");
app.use(express.json({ limit: "1mb" }));

for (const { method, path, answer } of routes) {
  app[method.toLowerCase()](path, async (req, res) => {
    const { status, body } = await answer({ params: req.params, query: req.query, body: bodyOf(req) });
    res.status(status).json(body);
  });
}

app.use((req, res) => {
  const { problem, headers } = unrouted(req.path);
  res.set(headers);
  throw problem;
});

// Express knows an error handler by its four arguments.
app.use((error, req, res, next) => {
  if (res.headersSent) return next(error);
  const { status, body } = problemOf(error);
  res.status(status).type(PROBLEM_TYPE).json(body);
});

await start("express", (port, host) => new Promise((resolve, reject) => {
  app.listen(port, host, (error) => (error ? reject(error) : resolve()));
}));
