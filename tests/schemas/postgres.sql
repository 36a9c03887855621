-- A catalogue of what real schemas hold, for PostgreSQL. Lines that begin with `--` and a sign are for the test
-- (routes.rs): what `forebay init` must say, and what is sent to the server and to the database.
--
--   --? TABLE: REASON       `init` leaves the table out, with this reason; all others must be served
--   --? TABLE@WAY: REASON   the same, beside one way of following
--   --? TABLE: in silence   `init` leaves the table out and says nothing of it
--   --x TABLE KEY COLUMN    a row that memory cannot show: its answer says so
--   --> EXPECTED TABLE ROW  POST ROW to the table:  201   accepted, and stored as answered
--                                                  201~  accepted, and a trigger or rule may change it
--                                                  dead  accepted or refused; accepted, it is a dead letter that `check` announced
--                                                  4xx   refused before the answer
--                                                  any   stored as answered, or refused before the answer
--   --! SQL                 run by another client while the server serves

CREATE EXTENSION citext;
CREATE EXTENSION hstore;
CREATE EXTENSION btree_gist;

-- A rental shop: enums, domains, arrays, a search column kept by a trigger, a column that each update stamps.

CREATE TYPE rating AS ENUM ('G', 'PG', 'NC-17', 'of two words', 'O''Neill');
CREATE DOMAIN year AS integer CHECK (VALUE BETWEEN 1901 AND 2155);
CREATE DOMAIN amount AS integer DEFAULT 7 CHECK (VALUE > 0);
CREATE DOMAIN address AS text NOT NULL CHECK (VALUE ~ '@');

CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed = now(); RETURN NEW; END $$;

CREATE TABLE tongue (
  tongue_id serial PRIMARY KEY,
  name character(20) NOT NULL,
  changed timestamp with time zone NOT NULL DEFAULT now()
);
CREATE TRIGGER stamped BEFORE UPDATE ON tongue FOR EACH ROW EXECUTE FUNCTION stamp();
INSERT INTO tongue (name) VALUES ('English'), ('Deutsch'), ('日本語');
--> 201 tongue {"name":"Esperanto"}
--> 4xx tongue {"name":"a name of more than twenty characters"}
--> 4xx tongue {"name":null}
--! UPDATE tongue SET name = 'Français' WHERE tongue_id = 2

CREATE TABLE movie (
  movie_id serial PRIMARY KEY,
  title varchar(255) NOT NULL,
  description text,
  release_year year,
  tongue_id integer NOT NULL REFERENCES tongue ON UPDATE CASCADE ON DELETE RESTRICT,
  rate numeric(4,2) NOT NULL DEFAULT 4.99,
  length smallint CHECK (length > 0),
  rating rating DEFAULT 'G',
  extras text[],
  words tsvector,
  changed timestamp NOT NULL DEFAULT now()
);
CREATE INDEX ON movie USING gin (words);
CREATE TRIGGER found BEFORE INSERT OR UPDATE ON movie FOR EACH ROW
  EXECUTE FUNCTION tsvector_update_trigger(words, 'pg_catalog.english', title, description);
INSERT INTO movie (title, description, release_year, tongue_id, length, rating, extras) VALUES
  ('Dams of the north', 'A story of water', 1987, 1, 90, 'PG', '{Trailers,"Deleted Scenes"}'),
  ('Zwei', NULL, NULL, 2, NULL, NULL, '{}'),
  ('三', 'x', 2155, 3, 1, 'O''Neill', NULL);
--> 201~ movie {"title":"Sluice","tongue_id":1,"release_year":1999,"extras":["Trailers","a \"quoted\" one",null]}
--> 201~ movie {"title":"Weir","tongue_id":2,"rating":"of two words","rate":"0.99"}
--> dead movie {"title":"No such tongue","tongue_id":99}
--> 4xx movie {"title":"Bad label","tongue_id":1,"rating":"X"}
--> dead movie {"title":"Too early","tongue_id":1,"release_year":1800}
--> 4xx movie {"title":"Too dear","tongue_id":1,"rate":100}
--! UPDATE movie SET extras = array_append(extras, 'x,y'), rating = 'NC-17' WHERE movie_id = 1
--! UPDATE movie SET changed = '2024-02-29 23:59:59.999999' WHERE movie_id = 2

CREATE TABLE cast_member (
  movie_id integer REFERENCES movie,
  actor_id integer,
  PRIMARY KEY (movie_id, actor_id)
);
--? cast_member: PRIMARY KEY of 2 columns

CREATE TABLE customer (
  customer_id bigint GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10) PRIMARY KEY,
  email address UNIQUE,
  nick citext UNIQUE,
  code char(5) UNIQUE,
  active boolean NOT NULL DEFAULT true,
  since date NOT NULL DEFAULT CURRENT_DATE,
  data hstore,
  visits amount,
  spent money
);
INSERT INTO customer (email, nick, code, data, spent) VALUES
  ('a@example.org', 'Ann', 'A', 'a=>1, "b c"=>NULL', 12.5), ('b@example.org', 'bob', 'B1234', '', -0.5);
--> 201 customer {"email":"c@example.org","nick":"Cy","code":"C","data":"\"k\"=>\"v\""}
--> 4xx customer {"email":"a@example.org"}
--> 4xx customer {"nick":"nobody"}
--> dead customer {"email":"no address"}
--> dead customer {"email":"d@example.org","nick":"ANN"}
--> 4xx customer {"email":"e@example.org","code":"A    "}
--! UPDATE customer SET nick = 'anne', since = '0044-03-15 BC' WHERE customer_id = 100
--! UPDATE customer SET since = 'infinity' WHERE customer_id = 110
--! INSERT INTO customer (email, since) VALUES ('f@example.org', '9999-12-31')

-- A booking system: ranges, exclusion, intervals, times of day, instants of every kind.

CREATE TABLE booking (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  room integer NOT NULL,
  during tstzrange NOT NULL,
  lasts interval,
  opens time,
  closes time(1) with time zone,
  at timestamptz(3) DEFAULT CURRENT_TIMESTAMP,
  local timestamp(0),
  EXCLUDE USING gist (room WITH =, during WITH &&)
);
INSERT INTO booking (id, room, during, lasts, opens, closes, at, local) VALUES
  ('00000000-0000-0000-0000-000000000001', 1, '[2026-01-01,2026-01-02)', '1 day 02:03:04.5', '08:00', '17:30:00.25+02', '2026-03-29 02:30:00.123+01', '2026-10-25 02:30:00.5'),
  ('00000000-0000-0000-0000-000000000002', 2, 'empty', '-1 years', '24:00', '00:00+00', '-infinity', 'infinity');
--> 201 booking {"id":"00000000-0000-0000-0000-000000000003","room":1,"during":"[\"2026-02-01 00:00:00+00\",\"2026-02-02 00:00:00+00\")","opens":"09:30:00","at":"2026-02-01T10:00:00.123Z","local":"2026-02-01T10:00:00"}
--> 201 booking {"id":"00000000-0000-0000-0000-000000000004","room":3,"during":"[\"2026-02-01 00:00:00+00\",)","lasts":"01:00:00","closes":"12:00:00+00"}
--> dead booking {"id":"00000000-0000-0000-0000-000000000005","room":1,"during":"[\"2026-01-01 12:00:00+00\",\"2026-01-03 00:00:00+00\")"}
--> dead booking {"id":"00000000-0000-0000-0000-000000000006","room":4,"during":"yesterday and the day before"}
--! UPDATE booking SET at = '294276-12-31 23:59:59Z', local = '4713-01-01 00:00:00 BC' WHERE room = 1 AND lower(during) < '2026-01-02'

-- Addresses and networks: types that memory does not compute with.

CREATE TYPE place AS (street text, number integer, at point);
CREATE TABLE host (
  name text PRIMARY KEY,
  ip inet,
  net cidr,
  mac macaddr,
  flags bit(4) DEFAULT B'0101',
  more bit varying(8),
  at point,
  shape polygon,
  place place,
  doc xml,
  seen int4multirange,
  wal pg_lsn,
  kind regtype
);
INSERT INTO host VALUES
  ('a.example', '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', B'1111', B'1', '(1,2)', '((0,0),(1,0),(1,1))', '("High Street",1,"(3,4)")', '<a>b</a>', '{[1,3),[5,7)}', '0/16B3748', 'integer'),
  ('b.example', '::1', NULL, NULL, DEFAULT, B'', NULL, NULL, '(,,)', NULL, '{}', NULL, NULL);
--> 201 host {"name":"c.example","ip":"192.168.0.7","mac":"08:00:2b:01:02:04","flags":"1010","at":"(5,6)"}
--> dead host {"name":"d.example","ip":"999.0.0.1"}
--! UPDATE host SET ip = '192.168.1.0/24', seen = '{[1,100)}' WHERE name = 'b.example'

-- Names: quoted, of mixed case, keywords, not ASCII.

CREATE TABLE "MixedCase" ("Id" serial PRIMARY KEY, "From" text, "group" integer, "userName" text UNIQUE);
INSERT INTO "MixedCase" ("From", "group", "userName") VALUES ('here', 1, 'U');
--> 201 MixedCase {"From":"there","group":2,"userName":"V"}
--! UPDATE "MixedCase" SET "From" = 'elsewhere' WHERE "Id" = 1

CREATE TABLE "order" ("user" bigint PRIMARY KEY, "select" text DEFAULT 'a''b\c', "end" date DEFAULT '2020-02-29', "desc" text DEFAULT E'line\nbreak');
INSERT INTO "order" ("user") VALUES (1), (-9223372036854775808);
--> 201 order {"user":9223372036854775807}
--> 201 order {"user":0}
--! UPDATE "order" SET "select" = NULL, "desc" = '' WHERE "user" = 1

CREATE TABLE "Order Details" (id bigint PRIMARY KEY, "unit price" numeric);
--? Order Details: a name is made of

CREATE TABLE "größe" (id bigint PRIMARY KEY, wert text);
--? größe: a name is made of

-- Defaults of every kind.

CREATE SEQUENCE ticket_number START 1000;
CREATE FUNCTION a_default() RETURNS text LANGUAGE sql AS $$ SELECT 'computed' $$;
CREATE TABLE defaulted (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  note text,
  tags text[] NOT NULL DEFAULT '{}',
  more text[] NOT NULL DEFAULT ARRAY['a', 'b']::text[],
  numbers integer[] NOT NULL DEFAULT '{1,2}',
  document jsonb NOT NULL DEFAULT '{}',
  list json NOT NULL DEFAULT '[]'::json,
  negative integer NOT NULL DEFAULT '-1',
  exact numeric(10,4) NOT NULL DEFAULT -1.5,
  ratio double precision NOT NULL DEFAULT 1e-7,
  day date NOT NULL DEFAULT CURRENT_DATE,
  later timestamptz NOT NULL DEFAULT now() + interval '30 days',
  fixed timestamptz NOT NULL DEFAULT '2020-01-01 00:00:00+00',
  span interval NOT NULL DEFAULT '1 hour'::interval,
  computed text NOT NULL DEFAULT a_default(),
  joined text NOT NULL DEFAULT 'a' || 'b',
  ticket bigint NOT NULL DEFAULT nextval('ticket_number'),
  other serial,
  kind rating NOT NULL DEFAULT 'PG'::rating,
  bytes bytea NOT NULL DEFAULT '\x00ff',
  flag boolean NOT NULL DEFAULT (NOT false),
  who text NOT NULL DEFAULT CURRENT_USER,
  maybe text DEFAULT NULL
);
INSERT INTO defaulted (note) VALUES ('by the database');
--> any defaulted {"note":"by memory"}
--> any defaulted {"note":"given","tags":["x"],"more":[],"numbers":[3],"document":{"b":1,"a":2},"list":[1],"negative":5,"exact":"2.25","ratio":0.5,"day":"2026-01-01","later":"2026-01-01T00:00:00Z","fixed":"2026-01-01T00:00:00Z","span":"02:00:00","computed":"c","joined":"j","ticket":5,"other":6,"kind":"G","bytes":"AP8=","flag":false,"who":"me"}
--! ALTER TABLE defaulted ALTER negative SET DEFAULT 8

CREATE TABLE by_domain (id bigint PRIMARY KEY, quantity amount, contact address);
INSERT INTO by_domain VALUES (1, DEFAULT, 'a@b');
--> any by_domain {"id":2,"contact":"c@d"}
--> 4xx by_domain {"id":3,"quantity":1}
--> dead by_domain {"id":4,"quantity":-1,"contact":"c@d"}

-- Numbers at their bounds, and scales that are negative or larger than the precision.

CREATE TABLE measure (
  id smallint PRIMARY KEY,
  thousands numeric(5,-3),
  tiny numeric(3,5),
  any_number numeric,
  single real,
  double double precision,
  small smallint,
  whole integer,
  big bigint,
  object oid
);
INSERT INTO measure VALUES
  (1, 12345678, 0.00123, 'NaN', 'Infinity', '-Infinity', -32768, -2147483648, -9223372036854775808, 4294967295),
  (2, 499, 0.009, 1e-100, 1.17549435e-38, 5e-324, 32767, 2147483647, 9223372036854775807, 0);
--> 201 measure {"id":3,"thousands":1499,"any_number":"123456789012345678901234567890.5","single":0.1,"double":1e308}
--> any measure {"id":4,"tiny":"0.001234"}
--> any measure {"id":5,"any_number":"NaN"}
--> 4xx measure {"id":6,"small":40000}
--> 4xx measure {"id":7,"tiny":"0.5"}
--> 4xx measure {"id":40000}

-- Documents.

CREATE TABLE document (id text PRIMARY KEY, body jsonb UNIQUE, raw json, blob bytea, parts jsonb[], title varchar(10) COLLATE "C");
INSERT INTO document VALUES ('a', '{"b":1,"a":{"z":[1,2,{}]},"b":2}', '{"b" : 1,  "b":2}', '\xdeadbeef', ARRAY['{"x":1}', 'null']::jsonb[], 'ten chars!'),
  ('', 'null', 'null', '', '{}', ''), ('a/b c?d#e%', '"x"', '1e400', NULL, NULL, NULL);
--> 201 document {"id":"d","body":{"k":1.0},"raw":{"k": 1.0}}
--> dead document {"id":"e","body":{"k":1.00}}
--> any document {"id":"f","parts":[{"y":1}]}
--> 4xx document {"id":"g","title":"eleven char"}
--> 201 document {"id":"h","title":"ten chars!"}
--> 4xx document {"id":"nul\u0000"}

-- Keys whose equality is not that of their bytes.

CREATE COLLATION ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
--? by_citext: of type citext, in which upper and lower case are equal
CREATE TABLE by_citext (name citext PRIMARY KEY, n integer);
INSERT INTO by_citext VALUES ('Abc', 1);
--> any by_citext {"name":"abc","n":2}
--> any by_citext {"name":"def","n":3}
--! UPDATE by_citext SET n = 9
--? by_icu: not deterministic
CREATE TABLE by_icu (name text COLLATE ignore_case PRIMARY KEY, n integer);
INSERT INTO by_icu VALUES ('Abc', 1);
--> any by_icu {"name":"ABC","n":2}
--> any by_icu {"name":"def","n":3}
--? by_char: spaces at the end do not count
CREATE TABLE by_char (name char(4) PRIMARY KEY, n integer);
INSERT INTO by_char VALUES ('ab', 1);
--> any by_char {"name":"ab","n":2}
--> any by_char {"name":"cd","n":3}
--! UPDATE by_char SET n = 9

-- Constraints that other rows or functions decide.

CREATE FUNCTION is_fine(text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT $1 <> 'bad' $$;
CREATE TABLE checked (
  id bigserial PRIMARY KEY,
  low integer NOT NULL,
  high integer NOT NULL,
  state text NOT NULL CHECK (state IN ('new', 'done')),
  word text CHECK (is_fine(word)),
  pattern text CHECK (pattern ~ '^[a-z]+$'),
  length text CHECK (length(length) BETWEEN 2 AND 4),
  deleted_at timestamptz,
  a integer,
  b integer,
  CHECK (low <= high),
  CONSTRAINT "a or b" CHECK (a IS NOT NULL OR b IS NOT NULL),
  UNIQUE (a, b)
);
CREATE UNIQUE INDEX one_alive ON checked (state, low) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX lower_word ON checked (lower(word));
INSERT INTO checked (low, high, state, word, a, b) VALUES (1, 2, 'new', 'Word', 1, 1), (2, 2, 'done', NULL, 1, 2);
--> 201 checked {"low":3,"high":4,"state":"new","pattern":"abc","length":"abc","a":2}
--> 4xx checked {"low":5,"high":6,"state":"old","a":3}
--> 4xx checked {"low":5,"high":6,"state":"new","length":"x","a":3}
--> 4xx checked {"low":5,"high":6,"state":"new","a":1,"b":1}
--> dead checked {"low":6,"high":5,"state":"new","a":4}
--> dead checked {"low":7,"high":8,"state":"new","word":"bad","a":5}
--> dead checked {"low":7,"high":8,"state":"new","pattern":"ABC","a":6}
--> dead checked {"low":1,"high":8,"state":"new","a":7}
--> dead checked {"low":8,"high":8,"state":"new","word":"WORD","a":8}
--> dead checked {"low":9,"high":9,"state":"new"}

-- Foreign keys with each action; a reference to oneself, one that is deferred, one to a unique column.

CREATE TABLE owner (id bigint PRIMARY KEY, code text NOT NULL UNIQUE);
INSERT INTO owner VALUES (1, 'one'), (2, 'two'), (3, 'three');
CREATE TABLE owned (
  id bigint PRIMARY KEY,
  cascades bigint REFERENCES owner ON DELETE CASCADE ON UPDATE CASCADE,
  nulls bigint REFERENCES owner ON DELETE SET NULL,
  falls_back bigint DEFAULT 1 REFERENCES owner ON DELETE SET DEFAULT,
  code text REFERENCES owner (code) ON UPDATE CASCADE,
  parent bigint REFERENCES owned DEFERRABLE INITIALLY DEFERRED
);
INSERT INTO owned VALUES (1, 1, 1, 1, 'one', NULL), (2, 2, 2, 2, 'two', 1), (3, 3, 3, 3, 'three', 3);
--> 201 owned {"id":4,"cascades":1,"nulls":1,"falls_back":1,"code":"one","parent":1}
--> 201 owned {"id":5,"parent":5}
--> dead owned {"id":6,"parent":77}
--> dead owned {"id":7,"code":"none"}
--! UPDATE owner SET code = 'zwei' WHERE id = 2
--! DELETE FROM owner WHERE id = 3

-- Triggers and rules.

CREATE TABLE audit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE changed_before (id bigint PRIMARY KEY, name text NOT NULL, slug text);
CREATE FUNCTION slugged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.slug = lower(replace(NEW.name, ' ', '-')); RETURN NEW; END $$;
CREATE TRIGGER slugged BEFORE INSERT OR UPDATE ON changed_before FOR EACH ROW EXECUTE FUNCTION slugged();
INSERT INTO changed_before VALUES (1, 'Two Words');
--> 201~ changed_before {"id":2,"name":"Three More Words"}
--! UPDATE changed_before SET name = 'Another Name' WHERE id = 1

CREATE TABLE skipped_before (id bigint PRIMARY KEY, n integer NOT NULL);
CREATE FUNCTION skips() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.n < 0 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER skips BEFORE INSERT OR UPDATE ON skipped_before FOR EACH ROW EXECUTE FUNCTION skips();
INSERT INTO skipped_before VALUES (1, 1);
--> 201 skipped_before {"id":2,"n":2}
--> dead skipped_before {"id":3,"n":-1}

CREATE TABLE audited (id bigint PRIMARY KEY, n integer NOT NULL);
CREATE FUNCTION audits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP || ' ' || coalesce(NEW.id, OLD.id)); RETURN NULL; END $$;
CREATE TRIGGER audits AFTER INSERT OR UPDATE OR DELETE ON audited FOR EACH ROW EXECUTE FUNCTION audits();
INSERT INTO audited VALUES (1, 1);
--> 201 audited {"id":2,"n":2}
--! UPDATE audited SET n = 5 WHERE id = 1

CREATE TABLE ruled (id bigint PRIMARY KEY, n integer);
CREATE RULE noted AS ON INSERT TO ruled DO ALSO INSERT INTO audit (what) VALUES ('rule');
INSERT INTO ruled VALUES (1, 1);
--> 201 ruled {"id":2,"n":2}

-- What computes, inherits, is divided, or hidden.

CREATE TABLE computed (id bigint PRIMARY KEY, net numeric(10,2) NOT NULL, gross numeric(10,2) GENERATED ALWAYS AS (net * 1.2) STORED, note text);
INSERT INTO computed (id, net) VALUES (1, 10);
--> 201 computed {"id":2,"net":"5.00","note":"n"}
--! UPDATE computed SET net = 20 WHERE id = 1

--? base_item: other tables inherit from it
--? special_item: other tables inherit from it
CREATE TABLE base_item (id bigint PRIMARY KEY, name text);
CREATE TABLE special_item (extra text, PRIMARY KEY (id)) INHERITS (base_item);
INSERT INTO base_item VALUES (1, 'base');
INSERT INTO special_item VALUES (2, 'special', 'x');
--> 201 special_item {"id":3,"name":"s","extra":"y"}

CREATE TABLE event (id bigint NOT NULL, at date NOT NULL, what text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE event_2026 PARTITION OF event FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
--? event: PRIMARY KEY of 2 columns
--? spread: is partitioned
CREATE TABLE spread (id bigint PRIMARY KEY, what text) PARTITION BY HASH (id);
CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO spread SELECT n, 'w' || n FROM generate_series(1, 4) n;
--> 201 spread {"id":10,"what":"ten"}
--> 201 spread {"id":11,"what":"eleven"}
--! UPDATE spread SET what = 'changed' WHERE id = 3

CREATE TABLE tenant_row (id bigint PRIMARY KEY, tenant text NOT NULL, body text);
ALTER TABLE tenant_row ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON tenant_row USING (tenant = CURRENT_USER);
INSERT INTO tenant_row VALUES (1, 'forebay', 'x');
--> 201 tenant_row {"id":2,"tenant":"forebay","body":"y"}

--? session_store@logical: is not logged
CREATE UNLOGGED TABLE session_store (sid varchar(64) PRIMARY KEY, data jsonb NOT NULL, expires timestamp(6) NOT NULL);
INSERT INTO session_store VALUES ('s', '{}', '2026-01-01 00:00:00');
--> 201 session_store {"sid":"t","data":{"user":1},"expires":"2030-01-01T00:00:00"}

CREATE VIEW cheap AS SELECT * FROM movie WHERE rate < 1;
CREATE MATERIALIZED VIEW dear AS SELECT * FROM movie WHERE rate > 1;
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.movie (id bigint PRIMARY KEY, other text);
CREATE TABLE elsewhere.away (id bigint PRIMARY KEY);

-- Keys: none, a unique index in its place, an enum, a date, text and numbers of every width.

CREATE TABLE log_line (at timestamptz DEFAULT now(), line text);
--? log_line: has no PRIMARY KEY
--? by_unique@logical: REPLICA IDENTITY FULL
CREATE TABLE by_unique (code text NOT NULL UNIQUE, n integer);
INSERT INTO by_unique VALUES ('a', 1);
--> 201 by_unique {"code":"b","n":2}
--> 4xx by_unique {"code":"a","n":2}
CREATE TABLE by_nullable (code text UNIQUE, n integer);
--? by_nullable: has no PRIMARY KEY
--? by_label: has a key of type rating
CREATE TABLE by_label (label rating PRIMARY KEY, n integer);
INSERT INTO by_label VALUES ('G', 1);
--> any by_label {"label":"PG","n":2}
--! UPDATE by_label SET n = 5 WHERE label = 'G'
CREATE TABLE by_number (n numeric PRIMARY KEY, what text);
--? by_number: has a key of type numeric
CREATE TABLE by_uuid (id uuid PRIMARY KEY, what text);
INSERT INTO by_uuid VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'a');
--> 201 by_uuid {"id":"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12","what":"b"}
--! UPDATE by_uuid SET what = 'c'
CREATE TABLE alone (id bigserial PRIMARY KEY);
INSERT INTO alone DEFAULT VALUES;
--> 201 alone {}
CREATE TABLE odd_sequence (id smallint PRIMARY KEY DEFAULT 0, n integer);
CREATE SEQUENCE odd_ids AS smallint INCREMENT 2 MINVALUE 1 START 3 OWNED BY odd_sequence.id;
ALTER TABLE odd_sequence ALTER id SET DEFAULT nextval('odd_ids');
INSERT INTO odd_sequence (n) VALUES (1);
--> 201 odd_sequence {"n":2}
--> 201 odd_sequence {"n":3}
