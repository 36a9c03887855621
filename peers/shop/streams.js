// Long bodies from and to an Express app, for the tests of the proxy (tests/front/bodies.rs).
//
//   GET /long/SIZE   so many bytes: the one at a place AT is AT % 65521 % 251
//   PUT /long        takes such bytes: {"bytes": how many, "wrong": whether some were others}
//   GET /dies/SIZE   says that it sends so many, sends half of them, and is killed

import { once } from "node:events";
import express from "express";

const PERIOD = 65521;
const PIECE_BYTES = 256 * 1024;

// Long enough for a piece from any place of the first period on.
const PATTERN = Buffer.alloc(PERIOD + PIECE_BYTES);
for (let at = 0; at < PATTERN.length; at += 1) PATTERN[at] = (at % PERIOD) % 251;

function pattern(at, bytes) {
  return PATTERN.subarray(at % PERIOD, (at % PERIOD) + bytes);
}

async function send(res, end) {
  for (let at = 0; at < end; at += PIECE_BYTES) {
    if (!res.write(pattern(at, Math.min(PIECE_BYTES, end - at)))) await once(res, "drain");
  }
}

const app = express();

app.get("/long/:size", async (req, res) => {
  const size = Number(req.params.size);
  res.set("Content-Length", String(size));
  await send(res, size);
  res.end();
});

app.put("/long", async (req, res) => {
  let bytes = 0;
  let wrong = false;
  for await (const piece of req) {
    for (let at = 0; at < piece.length; at += PIECE_BYTES) {
      const part = piece.subarray(at, at + PIECE_BYTES);
      wrong ||= !part.equals(pattern(bytes + at, part.length));
    }
    bytes += piece.length;
  }
  res.json({ bytes, wrong });
});

app.get("/dies/:size", async (req, res) => {
  const size = Number(req.params.size);
  res.set("Content-Length", String(size));
  await send(res, size / 2);
  // What the kernel has taken is sent; what is in this process is lost with it.
  setTimeout(() => process.kill(process.pid, "SIGKILL"), 100);
});

app.listen(Number(process.env.PORT ?? 3202), "127.0.0.1");
