-- A catalogue of what real schemas hold, for SQLite. postgres.sql says what the lines for the test mean.

-- A music shop: types as SQLite's users write them.

CREATE TABLE artist (ArtistId INTEGER PRIMARY KEY, Name NVARCHAR(120));
INSERT INTO artist (Name) VALUES ('AC'), ('Ärzte'), (NULL);
--> 201 artist {"ArtistId":10,"Name":"Ten"}
--! UPDATE artist SET Name = 'Other' WHERE ArtistId = 2

CREATE TABLE album (
  AlbumId INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  Title NVARCHAR(160) NOT NULL,
  ArtistId INTEGER NOT NULL REFERENCES artist (ArtistId) ON DELETE NO ACTION ON UPDATE NO ACTION,
  UnitPrice NUMERIC(10,2) NOT NULL DEFAULT 0.99,
  Milliseconds INT,
  Weight REAL,
  Cover BLOB,
  Released DATE,
  Sold DATETIME DEFAULT CURRENT_TIMESTAMP,
  InPrint BOOLEAN NOT NULL DEFAULT 1
);
INSERT INTO album (Title, ArtistId, UnitPrice, Milliseconds, Weight, Cover, Released, Sold, InPrint) VALUES
  ('First', 1, 1.5, 1000, 1.0, x'00ff', '2020-02-29', '2020-02-29 10:00:00', 1),
  ('Second', 2, 2, NULL, 1e300, NULL, NULL, NULL, 0);
--> 201 album {"Title":"Third","ArtistId":1,"Milliseconds":5,"Weight":0.25}
--> 201 album {"Title":"Fourth","ArtistId":2,"Released":"2021-01-01","Cover":"AP8="}
--> dead album {"Title":"No such artist","ArtistId":99}
--> 4xx album {"ArtistId":1}
--! UPDATE album SET Sold = '2024-01-01 12:00:00', InPrint = 0 WHERE AlbumId = 1
--! UPDATE album SET Weight = 5, UnitPrice = 3 WHERE AlbumId = 2

CREATE TABLE playlist_track (PlaylistId INTEGER NOT NULL, TrackId INTEGER NOT NULL, PRIMARY KEY (PlaylistId, TrackId));
--? playlist_track: PRIMARY KEY of 2 columns

-- STRICT, WITHOUT ROWID, generated columns, and what a column may be collated by.

CREATE TABLE strict_one (id INTEGER PRIMARY KEY, n INT NOT NULL, r REAL, t TEXT, b BLOB, a ANY) STRICT;
INSERT INTO strict_one VALUES (1, 1, 1.5, 'x', x'01', 'any'), (2, -9223372036854775808, -0.0, '', x'', NULL);
--> 201 strict_one {"id":3,"n":2,"r":2,"t":"y"}
--> 4xx strict_one {"id":4,"n":"x"}
--! UPDATE strict_one SET t = 'z' WHERE id = 1

CREATE TABLE no_rowid (code TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
INSERT INTO no_rowid VALUES ('a', 1), ('', 2), ('a/b ?#%', 3);
--> 201 no_rowid {"code":"b","n":2}
--> 4xx no_rowid {"code":"a","n":2}
--! UPDATE no_rowid SET n = 5 WHERE code = 'a'
--! DELETE FROM no_rowid WHERE code = ''

--? by_nocase: with the collation NOCASE
CREATE TABLE by_nocase (name TEXT COLLATE NOCASE PRIMARY KEY, n INTEGER);
INSERT INTO by_nocase VALUES ('Abc', 1);
--> any by_nocase {"name":"def","n":3}
--! UPDATE by_nocase SET n = 9
--? by_rtrim: with the collation RTRIM
CREATE TABLE by_rtrim (name TEXT COLLATE RTRIM PRIMARY KEY, n INTEGER);
INSERT INTO by_rtrim VALUES ('a ', 1);
CREATE TABLE unique_nocase (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE UNIQUE);
INSERT INTO unique_nocase VALUES (1, 'Abc');
--> dead unique_nocase {"id":2,"name":"aBC"}
--> 201 unique_nocase {"id":3,"name":"other"}

CREATE TABLE computed (id INTEGER PRIMARY KEY, net REAL NOT NULL, gross REAL GENERATED ALWAYS AS (net * 2) STORED, virt TEXT AS ('v' || id) VIRTUAL, note TEXT);
INSERT INTO computed (id, net) VALUES (1, 10);
--> 201 computed {"id":2,"net":5,"note":"n"}
--! UPDATE computed SET net = 20 WHERE id = 1

-- Defaults, and values of another type than the column's.

CREATE TABLE defaulted (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  note TEXT,
  created TEXT DEFAULT CURRENT_TIMESTAMP,
  day TEXT NOT NULL DEFAULT CURRENT_DATE,
  hour TEXT DEFAULT CURRENT_TIME,
  expression TEXT NOT NULL DEFAULT (lower('ABC')),
  random_part BLOB DEFAULT (randomblob(4)),
  negative INTEGER NOT NULL DEFAULT -1,
  plus INTEGER DEFAULT +5,
  hex INTEGER DEFAULT 0x10,
  ratio REAL DEFAULT 1e-3,
  quoted TEXT DEFAULT 'it''s',
  double_quoted TEXT DEFAULT "word",
  truth BOOLEAN DEFAULT TRUE,
  document JSON DEFAULT '{}',
  empty TEXT DEFAULT NULL,
  number_as_text TEXT DEFAULT 12,
  epoch INTEGER DEFAULT (strftime('%s', 'now'))
);
INSERT INTO defaulted (note) VALUES ('by the database');
--> any defaulted {"note":"by memory"}

CREATE TABLE mixed (id INTEGER PRIMARY KEY, i INTEGER, t TEXT, r REAL, n NUMERIC, b BLOB);
INSERT INTO mixed VALUES (1, 1, 'a', 0.5, 1, x'01'), (2, 'no number', 'b', 1, 'many', 'text in a blob'), (3, 3, 'c', 'x', 2.5, 4);
--x mixed 2 i
--x mixed 3 r
--> 201 mixed {"id":4,"i":4,"t":"d","r":4.5,"n":"4.5"}
--! UPDATE mixed SET i = 'again none' WHERE id = 1
--! UPDATE mixed SET i = 7 WHERE id = 1

CREATE TABLE untyped (id INTEGER PRIMARY KEY, a, b);
INSERT INTO untyped VALUES (1, 1, 'x'), (2, 2.5, NULL), (3, x'00', 'y');
--> any untyped {"id":4,"a":"t","b":"u"}

CREATE TABLE times (id INTEGER PRIMARY KEY, at DATETIME, day DATE, hour TIME, stamp TIMESTAMP, seconds INTEGER);
INSERT INTO times VALUES
  (1, '2026-11-26 13:39:21', '2026-11-26', '13:39:21', '2026-11-26T13:39:21.5Z', 1795700361),
  (2, '9999-12-31 23:59:59', '9999-12-31', '23:59', '0001-01-01 00:00:00', 0),
  (3, 1795700361000, NULL, NULL, 1795700361, -1);
--> any times {"id":4,"at":"2026-11-26T13:39:21Z","day":"2026-11-26","hour":"10:00:00","stamp":"2026-11-26T13:39:21.000001Z"}
--! UPDATE times SET at = '2027-01-01 00:00:00' WHERE id = 1

CREATE TABLE bits (id INTEGER PRIMARY KEY, price DECIMAL(8,2), tiny TINYINT, big BIGINT, doubled DOUBLE PRECISION, short VARCHAR(3), long CLOB, uid UUID, doc JSON);
INSERT INTO bits VALUES (1, 1.25, 127, 9223372036854775807, 0.1, 'long', 'clob', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": 1}');
--> 201 bits {"id":2,"price":"2.50","tiny":1,"big":2,"doubled":0.5,"short":"abc","long":"x","uid":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12","doc":{"k":[1]}}
--! UPDATE bits SET price = '3.10', doc = 'null' WHERE id = 1

-- Constraints and conflicts.

CREATE TABLE checked (
  id INTEGER PRIMARY KEY,
  low INTEGER NOT NULL,
  high INTEGER NOT NULL CHECK (high < 1000),
  state TEXT NOT NULL CHECK (state IN ('new', 'done')),
  word TEXT CHECK (word NOT GLOB 'bad*'),
  a INTEGER, b INTEGER,
  deleted_at TEXT,
  CHECK (low <= high),
  UNIQUE (a, b)
);
CREATE UNIQUE INDEX one_alive ON checked (state, low) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX lower_word ON checked (lower(word));
INSERT INTO checked (id, low, high, state, word, a, b) VALUES (1, 1, 2, 'new', 'Word', 1, 1);
--> 201 checked {"id":2,"low":3,"high":4,"state":"new","a":2}
--> 4xx checked {"id":3,"low":5,"high":1000,"state":"new"}
--> 4xx checked {"id":4,"low":5,"high":6,"state":"old"}
--> 4xx checked {"id":5,"low":5,"high":6,"state":"new","a":1,"b":1}
--> dead checked {"id":6,"low":6,"high":5,"state":"new"}
--> dead checked {"id":7,"low":7,"high":7,"state":"new","word":"badly"}
--> dead checked {"id":8,"low":8,"high":8,"state":"new","word":"WORD"}
--> dead checked {"id":9,"low":1,"high":8,"state":"new"}

CREATE TABLE replaced (id INTEGER PRIMARY KEY, slug TEXT UNIQUE ON CONFLICT REPLACE, mail TEXT);
CREATE UNIQUE INDEX replaced_mail ON replaced (lower(mail)) WHERE mail IS NOT NULL;
INSERT INTO replaced VALUES (1, 'a', 'A@x'), (2, 'b', 'B@x'), (3, 'c', 'C@x');
--> 201 replaced {"id":4,"slug":"d","mail":"D@x"}
--! INSERT OR REPLACE INTO replaced VALUES (10, 'z', 'b@X')
--! INSERT INTO replaced VALUES (11, 'a', NULL)
--! UPDATE OR REPLACE replaced SET mail = 'c@x' WHERE id = 11

-- Foreign keys with each action.

CREATE TABLE owner (id INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE);
INSERT INTO owner VALUES (1, 'one'), (2, 'two'), (3, 'three');
CREATE TABLE owned (
  id INTEGER PRIMARY KEY,
  cascades INTEGER REFERENCES owner ON DELETE CASCADE ON UPDATE CASCADE,
  nulls INTEGER REFERENCES owner ON DELETE SET NULL,
  falls_back INTEGER DEFAULT 1 REFERENCES owner ON DELETE SET DEFAULT,
  code TEXT REFERENCES owner (code) ON UPDATE CASCADE,
  parent INTEGER REFERENCES owned DEFERRABLE INITIALLY DEFERRED
);
INSERT INTO owned VALUES (1, 1, 1, 1, 'one', NULL), (2, 2, 2, 2, 'two', 1), (3, 3, NULL, 3, NULL, 3), (4, 1, 3, 3, NULL, NULL);
--> 201 owned {"id":5,"cascades":1,"nulls":1,"falls_back":1,"code":"one","parent":1}
--> 201 owned {"id":6,"parent":6}
--> dead owned {"id":7,"parent":77}
--> dead owned {"id":8,"code":"none"}
--! UPDATE owner SET code = 'zwei' WHERE id = 2
--! DELETE FROM owner WHERE id = 3

-- Triggers.

CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL);
CREATE TABLE audited (id INTEGER PRIMARY KEY, n INTEGER NOT NULL);
CREATE TRIGGER audits AFTER INSERT ON audited BEGIN INSERT INTO audit (what) VALUES ('insert ' || NEW.id); END;
CREATE TRIGGER audits_update AFTER UPDATE OF n ON audited WHEN NEW.n <> OLD.n BEGIN INSERT INTO audit (what) VALUES ('update ' || NEW.id); END;
INSERT INTO audited VALUES (1, 1);
--> 201 audited {"id":2,"n":2}
--! UPDATE audited SET n = 5 WHERE id = 1
CREATE TABLE stamped (id INTEGER PRIMARY KEY, name TEXT, slug TEXT);
CREATE TRIGGER stamps AFTER INSERT ON stamped BEGIN UPDATE stamped SET slug = lower(NEW.name) WHERE id = NEW.id; END;
INSERT INTO stamped VALUES (1, 'One', NULL);
--> 201~ stamped {"id":2,"name":"TWO"}
CREATE TABLE skipped_before (id INTEGER PRIMARY KEY, n INTEGER NOT NULL);
CREATE TRIGGER skips BEFORE INSERT ON skipped_before WHEN NEW.n < 0 BEGIN SELECT RAISE(IGNORE); END;
INSERT INTO skipped_before VALUES (1, 1);
--> 201 skipped_before {"id":2,"n":2}
--> dead skipped_before {"id":3,"n":-1}
CREATE TABLE refused_before (id INTEGER PRIMARY KEY, n INTEGER NOT NULL);
CREATE TRIGGER refuses BEFORE INSERT ON refused_before WHEN NEW.n < 0 BEGIN SELECT RAISE(ABORT, 'not below zero'); END;
INSERT INTO refused_before VALUES (1, 1);
--> 201 refused_before {"id":2,"n":2}
--> dead refused_before {"id":3,"n":-1}

-- Names.

CREATE TABLE "MixedCase" ("Id" INTEGER PRIMARY KEY, "From" TEXT, "group" INTEGER, [select] TEXT, `order` TEXT);
INSERT INTO "MixedCase" VALUES (1, 'here', 1, 's', 'o');
--> 201 MixedCase {"Id":2,"From":"there","group":2,"select":"t","order":"p"}
--! UPDATE "MixedCase" SET "From" = 'elsewhere'
CREATE TABLE "order" (id INTEGER PRIMARY KEY, "values" TEXT);
INSERT INTO "order" VALUES (1, 'v');
--> 201 order {"id":2,"values":"w"}
CREATE TABLE "Order Details" (id INTEGER PRIMARY KEY, "unit price" NUMERIC);
--? Order Details: a name is made of
CREATE TABLE "größe" (id INTEGER PRIMARY KEY, wert TEXT);
--? größe: a name is made of

-- Keys, virtual tables and views.

CREATE TABLE log_line (at TEXT, line TEXT);
--? log_line: has no PRIMARY KEY
CREATE TABLE by_unique (code TEXT NOT NULL UNIQUE, n INTEGER);
INSERT INTO by_unique VALUES ('a', 1);
--> 201 by_unique {"code":"b","n":2}
--> 4xx by_unique {"code":"a","n":2}
CREATE TABLE int_key (id INT PRIMARY KEY, what TEXT);
INSERT INTO int_key VALUES (1, 'a'), (-5, 'b');
--> 201 int_key {"id":2,"what":"c"}
CREATE TABLE text_key (id TEXT PRIMARY KEY, what TEXT);
INSERT INTO text_key VALUES (1, 'one'), ('01', 'other');
--> 201 text_key {"id":"2","what":"c"}
--! UPDATE text_key SET what = 'changed'
CREATE TABLE real_key (id REAL PRIMARY KEY, what TEXT);
--? real_key: has a key of type
CREATE TABLE alone (id INTEGER PRIMARY KEY AUTOINCREMENT);
INSERT INTO alone DEFAULT VALUES;
--> 201 alone {}
CREATE VIEW cheap AS SELECT * FROM album WHERE UnitPrice < 1;
CREATE VIRTUAL TABLE found USING fts5 (title, body);
--? found: not in memory
--? found_data: in silence
--? found_idx: in silence
--? found_content: in silence
--? found_docsize: in silence
--? found_config: in silence
INSERT INTO found VALUES ('a title', 'a body');
--! INSERT INTO found VALUES ('another', 'text')
CREATE VIRTUAL TABLE area USING rtree (id, min_x, max_x, min_y, max_y);
--? area: not in memory
--? area_rowid: in silence
--? area_node: in silence
--? area_parent: in silence
INSERT INTO area VALUES (1, 0, 1, 0, 1);
--! INSERT INTO area VALUES (2, 0, 1, 0, 1)
