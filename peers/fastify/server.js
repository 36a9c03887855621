// The codes routes on Fastify.

import Fastify from "fastify";
import { PROBLEM_TYPE, problemOf, routes, start, unrouted } from "forebay-peer-common";

function fail(error, request, reply) {
  const { status, body } = problemOf(error);
  return reply.code(status).type(PROBLEM_TYPE).send(body);
}

const app = Fastify({ bodyLimit: 1024 * 1024, frameworkErrors: fail });

for (const { method, path, answer } of routes) {
  app.route({
    method,
    url: path,
    handler: async (request, reply) => {
      const { status, body } = await answer(request);
      reply.code(status);
      return body;
    },
  });
}

app.setNotFoundHandler((request, reply) => {
  const { problem, headers } = unrouted(request.url.split("?", 1)[0]);
  return fail(problem, request, reply.headers(headers));
});

app.setErrorHandler(fail);

await start("fastify", (port, host) => app.listen({ port, host }));
