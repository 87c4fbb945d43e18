-- Packs of checkpoint objects and where their objects are found. state is 1 live,
-- 2 condemned, 3 damaged. apart is 1 for a pack that no index file has or that is
-- not live. blob_key is empty where the bytes are in content_data, or in the row.

-- +goose Up
CREATE TABLE content_orgs (
  org        INTEGER PRIMARY KEY,
  version    INTEGER NOT NULL,
  generation INTEGER NOT NULL
) STRICT;

CREATE TABLE content_packs (
  org        INTEGER NOT NULL,
  id         BLOB    NOT NULL,
  state      INTEGER NOT NULL,
  apart      INTEGER NOT NULL,
  in_index   BLOB    NOT NULL,
  blob_key   BLOB    NOT NULL,
  bytes      INTEGER NOT NULL,
  raw_bytes  INTEGER NOT NULL,
  table_at   INTEGER NOT NULL,
  objects    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  checked_at INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX content_packs_apart ON content_packs (org) WHERE apart = 1;
CREATE INDEX content_packs_size ON content_packs (org, bytes) WHERE state = 1;
CREATE INDEX content_packs_checked ON content_packs (checked_at);
CREATE INDEX content_packs_index ON content_packs (org, in_index);

CREATE TABLE content_data (
  org  INTEGER NOT NULL,
  id   BLOB    NOT NULL,
  data BLOB    NOT NULL,
  PRIMARY KEY (org, id)
) STRICT;

CREATE TABLE content_indexes (
  org        INTEGER NOT NULL,
  id         BLOB    NOT NULL,
  blob_key   BLOB    NOT NULL,
  bytes      INTEGER NOT NULL,
  objects    INTEGER NOT NULL,
  packs      INTEGER NOT NULL,
  dead       BLOB    NOT NULL,
  PRIMARY KEY (org, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE content_uploads (
  org        INTEGER NOT NULL,
  id         BLOB    NOT NULL,
  thread     BLOB    NOT NULL,
  begun_at   INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE content_lists (
  org      INTEGER NOT NULL,
  upload   BLOB    NOT NULL,
  id       BLOB    NOT NULL,
  blob_key BLOB    NOT NULL,
  bytes    INTEGER NOT NULL,
  objects  INTEGER NOT NULL,
  data     BLOB    NOT NULL,
  PRIMARY KEY (org, upload, id)
) STRICT;
