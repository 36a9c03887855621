-- One row a transaction: what POST /code asks of PostgreSQL. The digest is the cheapest way to 500 characters that differ from
-- the first one on, as random ones do.
\set a random(1, 9000000000000000000)
\set b random(1, 9000000000000000000)
INSERT INTO codes (code) VALUES (left(repeat(md5(:a::text || :b::text), 16), 500)) RETURNING id, code, created_at;
