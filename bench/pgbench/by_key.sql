-- One row by key, of :rows rows: what GET /code-v4 asks of PostgreSQL.
\set id random(1, :rows)
SELECT id, code, created_at FROM codes WHERE id >= :id ORDER BY id LIMIT 1;
