-- Packs of checkpoint objects and where their objects are found. state is 1 live,
-- 2 condemned, 3 damaged. apart is 1 for a pack that no index file has or that is
-- not live. blob_key is empty where the bytes are in content_data, or in the row.

-- +goose Up
CREATE TABLE content_orgs (
  org        bigint PRIMARY KEY,
  version    bigint NOT NULL,
  generation bigint NOT NULL
);

CREATE TABLE content_packs (
  org        bigint NOT NULL,
  id         bytea  NOT NULL,
  state      bigint NOT NULL,
  apart      bigint NOT NULL,
  in_index   bytea  NOT NULL,
  blob_key   bytea  NOT NULL,
  bytes      bigint NOT NULL,
  raw_bytes  bigint NOT NULL,
  table_at   bigint NOT NULL,
  objects    bigint NOT NULL,
  created_at bigint NOT NULL,
  changed_at bigint NOT NULL,
  checked_at bigint NOT NULL,
  PRIMARY KEY (org, id)
);
CREATE INDEX content_packs_apart ON content_packs (org) WHERE apart = 1;
CREATE INDEX content_packs_size ON content_packs (org, bytes) WHERE state = 1;
CREATE INDEX content_packs_checked ON content_packs (checked_at);
CREATE INDEX content_packs_index ON content_packs (org, in_index);

CREATE TABLE content_data (
  org  bigint NOT NULL,
  id   bytea  NOT NULL,
  data bytea  NOT NULL,
  PRIMARY KEY (org, id)
);

CREATE TABLE content_indexes (
  org        bigint NOT NULL,
  id         bytea  NOT NULL,
  blob_key   bytea  NOT NULL,
  bytes      bigint NOT NULL,
  objects    bigint NOT NULL,
  packs      bigint NOT NULL,
  dead       bytea  NOT NULL,
  PRIMARY KEY (org, id)
);

CREATE TABLE content_uploads (
  org        bigint NOT NULL,
  id         bytea  NOT NULL,
  thread     bytea  NOT NULL,
  begun_at   bigint NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (org, id)
);

CREATE TABLE content_lists (
  org      bigint NOT NULL,
  upload   bytea  NOT NULL,
  id       bytea  NOT NULL,
  blob_key bytea  NOT NULL,
  bytes    bigint NOT NULL,
  objects  bigint NOT NULL,
  data     bytea  NOT NULL,
  PRIMARY KEY (org, upload, id)
);
