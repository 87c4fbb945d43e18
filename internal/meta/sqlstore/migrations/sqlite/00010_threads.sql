-- Threads, their checkpoints, and what they know. A thread's row stays after its
-- checkpoints are deleted when it had a lease: the fence never starts again.
-- checkpoints.created is a float64 as an integer that sorts alike.

-- +goose Up
CREATE TABLE threads (
  org         INTEGER NOT NULL,
  name        BLOB NOT NULL,
  id          INTEGER NOT NULL,
  head        BLOB NOT NULL,
  checkpoints INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  owner       BLOB NOT NULL,
  lease_until INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  dirty       INTEGER NOT NULL,
  known       INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  org        INTEGER NOT NULL,
  id         BLOB NOT NULL,
  thread     INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  parent     BLOB NOT NULL,
  created    INTEGER NOT NULL,
  label      BLOB NOT NULL,
  pinned     INTEGER NOT NULL,
  added      INTEGER NOT NULL,
  manifest   INTEGER NOT NULL,
  body       BLOB NOT NULL,
  written_at INTEGER NOT NULL,
  PRIMARY KEY (org, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (thread, seq);
CREATE INDEX checkpoints_created ON checkpoints (thread, created, id);

CREATE TABLE thread_segments (
  thread INTEGER NOT NULL,
  id     INTEGER NOT NULL,
  org    INTEGER NOT NULL,
  entries INTEGER NOT NULL,
  data   BLOB NOT NULL,
  ref    BLOB NOT NULL,
  PRIMARY KEY (thread, id)
) STRICT;
CREATE INDEX thread_segments_ref ON thread_segments (org) WHERE length(ref) > 0;

-- Blobs that were put one by one and are too large to be one object: the recipe
-- of the bytes with a SHA-256.
CREATE TABLE large_blobs (
  org    INTEGER NOT NULL,
  sum    BLOB NOT NULL,
  recipe BLOB NOT NULL,
  size   INTEGER NOT NULL,
  PRIMARY KEY (org, sum)
) STRICT, WITHOUT ROWID;

ALTER TABLE orgs ADD COLUMN max_thread_bytes INTEGER NOT NULL DEFAULT 0;
