// Reads a path as many applications do by hand: WHATWG URL, decoded once.
const { createServer } = require("node:http");
createServer((request, response) => {
  let path = request.url;
  try {
    path = decodeURIComponent(new URL(request.url, "http://app").pathname);
  } catch {
    // What cannot be decoded stays as it is.
  }
  response.end(path === "/vault" || path === "/admin" || path.startsWith("/admin/") ? "the treasure" : "open");
}).listen(process.env.PORT, "127.0.0.1");
