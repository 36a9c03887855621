// A token signed with HS256, good for an hour unless its claims say otherwise: node token.js SECRET CLAIMS.
const crypto = require("node:crypto");
const [secret, claims] = process.argv.slice(2);
const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
const all = { exp: Math.floor(Date.now() / 1000) + 3600, ...JSON.parse(claims) };
const signed = `${encode({ alg: "HS256" })}.${encode(all)}`;
console.log(`${signed}.${crypto.createHmac("sha256", secret).update(signed).digest("base64url")}`);
