-- Threads, their checkpoints, and what they know. A thread's row stays after its
-- checkpoints are deleted when it had a lease: the fence never starts again.
-- checkpoints.created is a float64 as an integer that sorts alike.

-- +goose Up
CREATE TABLE threads (
  org         bigint NOT NULL,
  name        bytea NOT NULL,
  id          bigint NOT NULL,
  head        bytea NOT NULL,
  checkpoints bigint NOT NULL,
  seq         bigint NOT NULL,
  bytes       bigint NOT NULL,
  fence       bigint NOT NULL,
  owner       bytea NOT NULL,
  lease_until bigint NOT NULL,
  version     bigint NOT NULL,
  dirty       smallint NOT NULL,
  known       bigint NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL,
  PRIMARY KEY (org, name)
);

CREATE TABLE checkpoints (
  org        bigint NOT NULL,
  id         bytea NOT NULL,
  thread     bigint NOT NULL,
  seq        bigint NOT NULL,
  parent     bytea NOT NULL,
  created    bigint NOT NULL,
  label      bytea NOT NULL,
  pinned     smallint NOT NULL,
  added      bigint NOT NULL,
  manifest   smallint NOT NULL,
  body       bytea NOT NULL,
  written_at bigint NOT NULL,
  PRIMARY KEY (org, id)
);
CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (thread, seq);
CREATE INDEX checkpoints_created ON checkpoints (thread, created, id);

CREATE TABLE thread_segments (
  thread bigint NOT NULL,
  id     bigint NOT NULL,
  org    bigint NOT NULL,
  entries bigint NOT NULL,
  data   bytea NOT NULL,
  ref    bytea NOT NULL,
  PRIMARY KEY (thread, id)
);
CREATE INDEX thread_segments_ref ON thread_segments (org) WHERE length(ref) > 0;

-- Blobs that were put one by one and are too large to be one object: the recipe
-- of the bytes with a SHA-256.
CREATE TABLE large_blobs (
  org    bigint NOT NULL,
  sum    bytea NOT NULL,
  recipe bytea NOT NULL,
  size   bigint NOT NULL,
  PRIMARY KEY (org, sum)
);

ALTER TABLE orgs ADD COLUMN max_thread_bytes bigint NOT NULL DEFAULT 0;
