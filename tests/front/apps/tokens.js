// Keys and tokens, good and bad, made by Node's own crypto: node tokens.js FOLDER.
// Writes rsa.pem, ec.pem, jwks.json and next.json there, and prints { good: {…}, bad: {…} }: [endpoint, token].
const crypto = require("node:crypto");
const fs = require("node:fs");
const folder = process.argv[2];

const secret = "a secret of more than thirty-two bytes";
const rsa = crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
const other = crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
const ec = crypto.generateKeyPairSync("ec", { namedCurve: "P-256" });
const ed = crypto.generateKeyPairSync("ed25519");
const p384 = crypto.generateKeyPairSync("ec", { namedCurve: "P-384" });
const pem = (pair) => pair.publicKey.export({ type: "spki", format: "pem" });
const jwk = (pair, kid) => ({ ...pair.publicKey.export({ format: "jwk" }), kid, use: "sig" });
const write = (name, text) => fs.writeFileSync(`${folder}/${name}`, text);
write("rsa.pem", pem(rsa));
write("ec.pem", pem(ec));
write("p384.pem", pem(p384));
write("jwks.json", JSON.stringify({ keys: [jwk(rsa, "r"), jwk(ec, "e"), jwk(ed, "d"), jwk(p384, "p")] }));
write("next.json", JSON.stringify({ keys: [jwk(other, "n")] }));

const encode = (bytes) => Buffer.from(bytes).toString("base64url");
const signers = {
  HS256: (data, key) => crypto.createHmac("sha256", key).update(data).digest(),
  RS256: (data, key) => crypto.sign("sha256", data, key),
  ES256: (data, key) => crypto.sign("sha256", data, { key, dsaEncoding: "ieee-p1363" }),
  EdDSA: (data, key) => crypto.sign(null, data, key),
  none: () => Buffer.alloc(0),
};
const raw = (head, claims, algorithm, key) => {
  const signed = `${encode(head)}.${encode(claims)}`;
  return `${signed}.${encode(signers[algorithm](Buffer.from(signed), key))}`;
};
const sign = (head, claims, algorithm, key) =>
  raw(JSON.stringify(head), JSON.stringify(claims), algorithm, key);

const now = Math.floor(Date.now() / 1000);
const claims = { sub: "ann", iss: "https://login.example", aud: "shop", exp: now + 3600, role: "admin" };
const hs = (change, head = {}) => ["/hs", sign({ alg: "HS256", ...head }, { ...claims, ...change }, "HS256", secret)];
const rs = (head, key = rsa.privateKey) => ["/rs", sign({ alg: "RS256", ...head }, claims, "RS256", key)];
const set = (algorithm, kid, key) => ["/set", sign({ alg: algorithm, kid }, claims, algorithm, key)];
const good = hs({})[1];
const [head, body, signature] = good.split(".");
const text = JSON.stringify(claims);

console.log(
  JSON.stringify({
    good: {
      "HS256": hs({}),
      "several audiences": hs({ aud: ["other", "shop"] }),
      "expired within the leeway": hs({ exp: now - 5 }),
      "not before, within the leeway": hs({ nbf: now + 5 }),
      "a typ": hs({}, { typ: "JWT" }),
      "RS256": rs({}),
      "a kid where the key has no name": rs({ kid: "any" }),
      "RS256 of a set": set("RS256", "r", rsa.privateKey),
      "ES256 of a set": set("ES256", "e", ec.privateKey),
      "EdDSA of a set": set("EdDSA", "d", ed.privateKey),
      "a set, no kid": ["/set", sign({ alg: "ES256" }, claims, "ES256", ec.privateKey)],
    },
    next: set("RS256", "n", other.privateKey)[1],
    bad: {
      "alg none": ["/hs", sign({ alg: "none" }, claims, "none")],
      "alg None": ["/hs", sign({ alg: "None" }, claims, "none")],
      "alg nOnE, with a signature": ["/hs", raw('{"alg":"nOnE"}', text, "HS256", secret)],
      "alg none, for RSA": ["/rs", sign({ alg: "none" }, claims, "none")],
      "no alg": ["/hs", raw("{}", text, "HS256", secret)],
      "alg null": ["/hs", raw('{"alg":null}', text, "HS256", secret)],
      "alg a list": ["/hs", raw('{"alg":["HS256"]}', text, "HS256", secret)],
      "alg in lower case": ["/hs", raw('{"alg":"hs256"}', text, "HS256", secret)],
      "HS384": ["/hs", raw('{"alg":"HS384"}', text, "HS256", secret)],
      "the public key as a secret": ["/rs", sign({ alg: "HS256" }, claims, "HS256", pem(rsa))],
      "the public key, trimmed, as a secret": ["/rs", sign({ alg: "HS256" }, claims, "HS256", pem(rsa).trim())],
      "a set's key as a secret": ["/set", sign({ alg: "HS256", kid: "r" }, claims, "HS256", pem(rsa))],
      "an empty secret": ["/hs", sign({ alg: "HS256" }, claims, "HS256", "")],
      "another secret": ["/hs", sign({ alg: "HS256" }, claims, "HS256", secret + "!")],
      "RS256 where HS256 is taken": ["/hs", rs({})[1]],
      "another key": rs({}, other.privateKey),
      "ES256 by name, RS256 by signature": ["/set", sign({ alg: "ES256", kid: "e" }, claims, "RS256", rsa.privateKey)],
      "the kid of another kind of key": ["/set", sign({ alg: "RS256", kid: "e" }, claims, "RS256", rsa.privateKey)],
      "the kid of a curve that is not taken": ["/set", sign({ alg: "ES256", kid: "p" }, claims, "ES256", ec.privateKey)],
      "an unknown kid": set("RS256", "x", rsa.privateKey),
      "a kid that is a path": set("RS256", "../../../../dev/null", rsa.privateKey),
      "a kid that is SQL": set("RS256", "' UNION SELECT 'k", rsa.privateKey),
      "a kid that is no text": ["/set", raw('{"alg":"RS256","kid":1}', text, "RS256", rsa.privateKey)],
      "a key that it brings along (jwk)": rs({ jwk: jwk(other, "o") }, other.privateKey),
      "a key that it points to (jku)": rs({ jku: "http://127.0.0.1:1/jwks.json", kid: "n" }, other.privateKey),
      "a certificate that it points to (x5u)": rs({ x5u: "http://127.0.0.1:1/x.pem" }, other.privateKey),
      "a certificate that it brings along (x5c)": rs({ x5c: ["MIIB"] }, other.privateKey),
      "an extension that must be understood": hs({}, { crit: ["b64"], b64: false }),
      "an empty list of extensions": hs({}, { crit: [] }),
      "expired": hs({ exp: now - 3600 }),
      "expired long ago": hs({ exp: 0 }),
      "exp negative": hs({ exp: -1 }),
      "exp a text": hs({ exp: String(now + 3600) }),
      "exp null": hs({ exp: null }),
      "exp true": hs({ exp: true }),
      "exp beyond all numbers": ["/hs", raw('{"alg":"HS256"}', text.replace(/"exp":\d+/, '"exp":1e999'), "HS256", secret)],
      "no exp": hs({ exp: undefined }),
      "not before, later": hs({ nbf: now + 3600 }),
      "nbf a text": hs({ nbf: "0" }),
      "another issuer": hs({ iss: "https://evil.example" }),
      "no issuer": hs({ iss: undefined }),
      "an issuer that begins like ours": hs({ iss: "https://login.example.evil.example" }),
      "issuers in a list": hs({ iss: ["https://login.example"] }),
      "another audience": hs({ aud: "bank" }),
      "other audiences": hs({ aud: ["bank", "shops"] }),
      "no audience": hs({ aud: undefined }),
      "an empty list of audiences": hs({ aud: [] }),
      "an audience within a list": hs({ aud: [["shop"]] }),
      "no subject": hs({ sub: undefined }),
      "an empty subject": hs({ sub: "" }),
      "a subject null": hs({ sub: null }),
      "a member twice": ["/hs", raw('{"alg":"HS256"}', text.replace("{", '{"sub":"bob",'), "HS256", secret)],
      "alg twice": ["/hs", raw('{"alg":"none","alg":"HS256"}', text, "HS256", secret)],
      "claims that are a list": ["/hs", raw('{"alg":"HS256"}', "[]", "HS256", secret)],
      "claims that are no JSON": ["/hs", raw('{"alg":"HS256"}', "sub=ann", "HS256", secret)],
      "something behind the claims": ["/hs", raw('{"alg":"HS256"}', text + "{}", "HS256", secret)],
      "an empty signature": ["/hs", `${head}.${body}.`],
      "no signature": ["/hs", `${head}.${body}`],
      "half a signature": ["/hs", `${head}.${body}.${signature.slice(0, 20)}`],
      "four parts": ["/hs", `${good}.${signature}`],
      "five parts, as if encrypted": ["/hs", `${head}..${body}.${signature}.${signature}`],
      "two dots alone": ["/hs", ".."],
      "nothing": ["/hs", ""],
      "padding": ["/hs", `${good}=`],
      "base64 that is not for URLs": ["/hs", `${head}.${body}.${"+/".repeat(21)}A`],
      "bits behind the end of base64": ["/hs", `${head}.${body}.${signature.slice(0, -1)}${
        String.fromCharCode(signature.charCodeAt(signature.length - 1) + 1)
      }`],
      "another body": ["/hs", `${head}.${encode(text.replace("ann", "bob"))}.${signature}`],
      "another head": ["/hs", `${encode('{"alg":"HS256","typ":"x"}')}.${body}.${signature}`],
      "a quoted token": ["/hs", `"${good}"`],
      "two tokens": ["/hs", `${good}, ${good}`],
      "too long": hs({ padding: "x".repeat(9000) }),
      "deeply nested": ["/hs", raw('{"alg":"HS256"}', `{"a":${"[".repeat(2000)}${"]".repeat(2000)}}`, "HS256", secret)],
    },
  }),
);
