-- Every string is stored as its bytes (BLOB), so that comparison and order are
-- those of bytes and no text encoding can refuse a name. Times are Unix
-- microseconds; 0 and the empty blob stand for "none".

-- +goose Up
CREATE TABLE orgs (
  id          INTEGER PRIMARY KEY,
  name        BLOB    NOT NULL UNIQUE,
  key_version INTEGER NOT NULL,
  max_ttl     INTEGER NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE org_keys (
  org         INTEGER NOT NULL,
  fingerprint BLOB    NOT NULL,
  kid         BLOB    NOT NULL,
  pem         BLOB    NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (org, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE TABLE floors (
  org        INTEGER NOT NULL,
  kind       INTEGER NOT NULL,
  repo       INTEGER NOT NULL,
  target     BLOB    NOT NULL,
  not_before INTEGER NOT NULL,
  PRIMARY KEY (org, kind, repo, target)
) STRICT, WITHOUT ROWID;

CREATE TABLE repos (
  id             INTEGER PRIMARY KEY,
  org            INTEGER NOT NULL,
  name           BLOB    NOT NULL,
  default_branch BLOB    NOT NULL,
  version        INTEGER NOT NULL,
  pack_set       INTEGER NOT NULL,
  tidy           INTEGER NOT NULL,
  source         INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  deleted_at     INTEGER NOT NULL,
  UNIQUE (org, name)
) STRICT;
CREATE INDEX repos_newest ON repos (org, created_at, id) WHERE deleted_at = 0;

-- space is a small hash of the first two components of the name: it keeps the
-- refs of one namespace together in the index by age.
CREATE TABLE refs (
  repo            INTEGER NOT NULL,
  name            BLOB    NOT NULL,
  id              BLOB    NOT NULL,
  peeled          BLOB    NOT NULL,
  created_at      INTEGER NOT NULL,
  created_version INTEGER NOT NULL,
  space           INTEGER NOT NULL,
  PRIMARY KEY (repo, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX refs_age ON refs (repo, space, created_version, name);

CREATE TABLE ref_log (
  repo    INTEGER NOT NULL,
  version INTEGER NOT NULL,
  name    BLOB    NOT NULL,
  old_id  BLOB    NOT NULL,
  new_id  BLOB    NOT NULL,
  peeled  BLOB    NOT NULL,
  at      INTEGER NOT NULL,
  subject BLOB    NOT NULL,
  route   BLOB    NOT NULL,
  PRIMARY KEY (repo, version, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE protections (
  repo    INTEGER NOT NULL,
  place   INTEGER NOT NULL,
  pattern BLOB    NOT NULL,
  ops     BLOB    NOT NULL,
  PRIMARY KEY (repo, place)
) STRICT, WITHOUT ROWID;

-- packs holds the ids of the set's packs, 8 bytes each, big endian. repos
-- counts the repositories that point to the set.
CREATE TABLE pack_sets (
  id    INTEGER PRIMARY KEY,
  repos INTEGER NOT NULL,
  packs BLOB    NOT NULL
) STRICT;

-- sets counts the pack sets that list the pack; at 0 the pack is retired.
CREATE TABLE packs (
  id         INTEGER PRIMARY KEY,
  class      INTEGER NOT NULL,
  inline     INTEGER NOT NULL,
  exact      INTEGER NOT NULL,
  sets       INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  objects    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  blob_key   BLOB    NOT NULL,
  tips       BLOB    NOT NULL,
  boundary   BLOB    NOT NULL
) STRICT;

CREATE TABLE small_packs (
  pack INTEGER PRIMARY KEY,
  data BLOB    NOT NULL
) STRICT;

-- There is one writer, so the order of positions is the order of commits.
CREATE TABLE events (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  org      INTEGER NOT NULL,
  repo     INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  type     BLOB    NOT NULL,
  body     BLOB    NOT NULL,
  at       INTEGER NOT NULL
) STRICT;
CREATE INDEX events_org ON events (org, position);

CREATE TABLE idempotency (
  org          INTEGER NOT NULL,
  idem_key     BLOB    NOT NULL,
  request      BLOB    NOT NULL,
  status       INTEGER NOT NULL,
  body         BLOB    NOT NULL,
  at           INTEGER NOT NULL,
  PRIMARY KEY (org, idem_key)
) STRICT;

CREATE TABLE uploads (
  blob_key BLOB    NOT NULL PRIMARY KEY,
  process  BLOB    NOT NULL,
  at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE processes (
  id      BLOB    NOT NULL PRIMARY KEY,
  oldest  INTEGER NOT NULL,
  lease   INTEGER NOT NULL,
  renewed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE retired (
  blob_key BLOB    NOT NULL PRIMARY KEY,
  at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX retired_at ON retired (at, blob_key);
