// The codes routes on Cpeak.

import cpeak, { parseJSON } from "cpeak";
import { PROBLEM_TYPE, bodyOf, problemOf, routes, start, unrouted } from "forebay-peer-common";

const app = cpeak();
app.beforeEach(parseJSON({ limit: 1024 * 1024 }));

for (const { method, path, answer } of routes) {
  const handler = async (req, res) => {
    const { status, body } = await answer({ params: req.params, query: req.query, body: bodyOf(req) });
    await res.status(status).json(body);
  };
  app.route(method, path, handler);
  // Node leaves the body of an answer to HEAD out.
  if (method === "GET") app.route("HEAD", path, handler);
}

function fail(error, req, res) {
  const { status, body } = problemOf(error);
  res.setHeader("Content-Type", PROBLEM_TYPE);
  res.status(status).end(JSON.stringify(body));
}

app.fallback((req, res) => {
  const { problem, headers } = unrouted(req.url.split("?", 1)[0]);
  res.setHeaders(new Headers(headers));
  fail(problem, req, res);
});

app.handleErr(fail);

await start("cpeak", (port, host) => new Promise((resolve, reject) => {
  app.server.once("error", reject);
  app.listen(port, host, resolve);
}));
