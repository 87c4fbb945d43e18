-- Every string is stored as its bytes (bytea), so that comparison and order are
-- those of bytes and no text encoding can refuse a name. Times are Unix
-- microseconds; 0 and the empty blob stand for "none".

-- +goose Up
CREATE TABLE orgs (
  id          bigint  PRIMARY KEY,
  name        bytea   NOT NULL UNIQUE,
  key_version bigint  NOT NULL,
  max_ttl     bigint  NOT NULL,
  created_at  bigint  NOT NULL
);

CREATE TABLE org_keys (
  org         bigint  NOT NULL,
  fingerprint bytea   NOT NULL,
  kid         bytea   NOT NULL,
  pem         bytea   NOT NULL,
  created_at  bigint  NOT NULL,
  PRIMARY KEY (org, fingerprint)
);

CREATE TABLE floors (
  org        bigint  NOT NULL,
  kind       smallint NOT NULL,
  repo       bigint  NOT NULL,
  target     bytea   NOT NULL,
  not_before bigint  NOT NULL,
  PRIMARY KEY (org, kind, repo, target)
);

CREATE TABLE repos (
  id             bigint  PRIMARY KEY,
  org            bigint  NOT NULL,
  name           bytea   NOT NULL,
  default_branch bytea   NOT NULL,
  version        bigint  NOT NULL,
  pack_set       bigint  NOT NULL,
  tidy           smallint NOT NULL,
  source         bigint  NOT NULL,
  created_at     bigint  NOT NULL,
  deleted_at     bigint  NOT NULL,
  UNIQUE (org, name)
);
CREATE INDEX repos_newest ON repos (org, created_at, id) WHERE deleted_at = 0;

-- space is a small hash of the first two components of the name: it keeps the
-- refs of one namespace together in the index by age.
CREATE TABLE refs (
  repo            bigint  NOT NULL,
  name            bytea   NOT NULL,
  id              bytea   NOT NULL,
  peeled          bytea   NOT NULL,
  created_at      bigint  NOT NULL,
  created_version bigint  NOT NULL,
  space           smallint NOT NULL,
  PRIMARY KEY (repo, name)
);
CREATE INDEX refs_age ON refs (repo, space, created_version, name);

CREATE TABLE ref_log (
  repo    bigint  NOT NULL,
  version bigint  NOT NULL,
  name    bytea   NOT NULL,
  old_id  bytea   NOT NULL,
  new_id  bytea   NOT NULL,
  peeled  bytea   NOT NULL,
  at      bigint  NOT NULL,
  subject bytea   NOT NULL,
  route   bytea   NOT NULL,
  PRIMARY KEY (repo, version, name)
);

CREATE TABLE protections (
  repo    bigint  NOT NULL,
  place   integer NOT NULL,
  pattern bytea   NOT NULL,
  ops     bytea   NOT NULL,
  PRIMARY KEY (repo, place)
);

-- packs holds the ids of the set's packs, 8 bytes each, big endian. repos
-- counts the repositories that point to the set.
CREATE TABLE pack_sets (
  id    bigint  PRIMARY KEY,
  repos bigint  NOT NULL,
  packs bytea   NOT NULL
);

-- sets counts the pack sets that list the pack; at 0 the pack is retired.
CREATE TABLE packs (
  id         bigint  PRIMARY KEY,
  class      smallint NOT NULL,
  inline     smallint NOT NULL,
  exact      smallint NOT NULL,
  sets       bigint  NOT NULL,
  bytes      bigint  NOT NULL,
  objects    bigint  NOT NULL,
  created_at bigint  NOT NULL,
  blob_key   bytea   NOT NULL,
  tips       bytea   NOT NULL,
  boundary   bytea   NOT NULL
);

CREATE TABLE small_packs (
  pack bigint  PRIMARY KEY,
  data bytea   NOT NULL
);

-- Readers give positions to the events they see committed and that have none,
-- in the order of id, holding the row of event_head.
CREATE TABLE events (
  id       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  position bigint,
  org      bigint  NOT NULL,
  repo     bigint  NOT NULL,
  version  bigint  NOT NULL,
  type     bytea   NOT NULL,
  body     bytea   NOT NULL,
  at       bigint  NOT NULL
);
CREATE UNIQUE INDEX events_position ON events (position);
CREATE INDEX events_org ON events (org, position);
CREATE INDEX events_unplaced ON events (id) WHERE position IS NULL;

CREATE TABLE event_head (
  last bigint NOT NULL
);
INSERT INTO event_head VALUES (0);

CREATE TABLE idempotency (
  org          bigint  NOT NULL,
  idem_key     bytea   NOT NULL,
  request      bytea   NOT NULL,
  status       integer NOT NULL,
  body         bytea   NOT NULL,
  at           bigint  NOT NULL,
  PRIMARY KEY (org, idem_key)
);

CREATE TABLE uploads (
  blob_key bytea   NOT NULL PRIMARY KEY,
  process  bytea   NOT NULL,
  at       bigint  NOT NULL
);

CREATE TABLE processes (
  id      bytea   NOT NULL PRIMARY KEY,
  oldest  bigint  NOT NULL,
  lease   bigint  NOT NULL,
  renewed bigint  NOT NULL
);

CREATE TABLE retired (
  blob_key bytea   NOT NULL PRIMARY KEY,
  at       bigint  NOT NULL
);
CREATE INDEX retired_at ON retired (at, blob_key);
