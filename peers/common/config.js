// What a peer is told by its environment, read and checked once.

/** A whole number from the environment. */
function number(name, fallback, least) {
  const text = process.env[name];
  if (text === undefined || text === "") return fallback;
  const value = Number(text);
  if (!Number.isInteger(value) || value < least) {
    throw new Error(`${name} must be a whole number of at least ${least}, not ${JSON.stringify(text)}`);
  }
  return value;
}

/** "h1:7000,h2:7001" as the nodes that ioredis starts from. */
function nodes(text) {
  return text.split(",").map((place) => {
    const colon = place.lastIndexOf(":");
    const port = Number(place.slice(colon + 1));
    if (colon < 1 || !Number.isInteger(port)) throw new Error(`REDIS_CLUSTER: ${JSON.stringify(place)} is no host:port`);
    return { host: place.slice(0, colon), port };
  });
}

export const config = Object.freeze({
  host: process.env.HOST || "127.0.0.1",
  port: number("PORT", 3000, 0),
  // Processes that share the port; 1: this one alone, without node:cluster.
  workers: number("WORKERS", 1, 1),
  databaseUrl: process.env.DATABASE_URL || null,
  // Connections to PostgreSQL of each process.
  databasePool: number("DATABASE_POOL", 20, 1),
  redisUrl: process.env.REDIS_URL || null,
  redisCluster: process.env.REDIS_CLUSTER ? nodes(process.env.REDIS_CLUSTER) : null,
  // 1: what concurrent requests send to Redis in one turn of the event loop goes out as one pipeline (an option of ioredis).
  redisAutoPipelining: number("REDIS_AUTO_PIPELINING", 0, 0) > 0,
});
