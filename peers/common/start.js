// One process, or several that share the port.

import cluster from "node:cluster";
import { config } from "./config.js";

/**
 * Runs `listen(port, host)` here, or in WORKERS processes. A worker that ends by itself ends the peer: what is measured
 * must be whole.
 */
export async function start(name, listen) {
  process.title = `forebay-peer-${name}`;
  if (config.workers > 1 && cluster.isPrimary) {
    for (let i = 0; i < config.workers; i++) cluster.fork();
    cluster.on("exit", (worker, code) => {
      console.error(`${name}: worker ${worker.process.pid} ended (${code})`);
      process.exit(1);
    });
    return;
  }
  await listen(config.port, config.host);
  console.log(`${name} listening on http://${config.host}:${config.port}`);
}
