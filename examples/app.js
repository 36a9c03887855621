// An Express app with a login: who is asking is Forebay's business, and comes in X-Forwarded-User.
//
//   npm ci --prefix peers && LOGIN_SECRET=… EXPRESS=$PWD/peers/node_modules/express node examples/app.js

const crypto = require("node:crypto");
const express = require(process.env.EXPRESS ?? "express");

const people = { ann: { password: "sesame", role: "admin" }, bob: { password: "mellon", role: "reader" } };
const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

// A JSON Web Token that Forebay checks with the same secret ([auth.users] of app.toml).
function token(name) {
  const exp = Math.floor(Date.now() / 1000) + 3600;
  const claims = { sub: name, role: people[name].role, iss: "app", aud: "app", exp };
  const signed = `${encode({ alg: "HS256" })}.${encode(claims)}`;
  return `${signed}.${crypto.createHmac("sha256", process.env.LOGIN_SECRET).update(signed).digest("base64url")}`;
}

const app = express();
app.use(express.json());
app.post("/login", (req, res) => {
  const { name, password } = req.body;
  if (!Object.hasOwn(people, name) || people[name].password !== password) {
    return res.status(401).json({ error: "the name or the password is wrong" });
  }
  res.json({ token: token(name) });
});
app.get("/api/me", (req, res) => res.json({ user: req.get("X-Forwarded-User") }));
app.get("/admin/people", (req, res) => res.json(Object.keys(people)));
app.get("/", (req, res) => res.json({ hello: req.get("X-Forwarded-User") ?? "nobody" }));
app.listen(process.env.PORT ?? 3202, "127.0.0.1");
