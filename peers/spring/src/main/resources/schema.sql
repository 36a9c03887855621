-- The tables as Forebay makes them; those that are there are taken as they are.
CREATE TABLE IF NOT EXISTS account (id uuid PRIMARY KEY, name text NOT NULL, email text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT now(), version bigint NOT NULL);
CREATE INDEX IF NOT EXISTS account_name ON account (name);
CREATE TABLE IF NOT EXISTS usages (id bigserial PRIMARY KEY, patient_id bigint NOT NULL,
  "timestamp" timestamptz NOT NULL, medication text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
