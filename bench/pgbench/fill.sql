-- psql -v rows=N: so many rows of 500 characters, in the order of their ids.
INSERT INTO codes (code)
SELECT left(repeat(md5(i::text || random()::text), 16), 500) FROM generate_series(1, :rows) AS i;
VACUUM (ANALYZE) codes;
CHECKPOINT;
