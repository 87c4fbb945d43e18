-- Public keys that verify signatures of commits and tags.

-- +goose Up
CREATE TABLE signing_keys (
  org         INTEGER NOT NULL,
  fingerprint BLOB    NOT NULL,
  kind        BLOB    NOT NULL,
  text        BLOB    NOT NULL,
  title       BLOB    NOT NULL,
  not_before  INTEGER NOT NULL,
  not_after   INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (org, fingerprint)
) STRICT, WITHOUT ROWID;
