-- Repositories that follow one on another host. following is 1 for those that
-- do, 2 until the first import has ended. secret is encrypted. seen holds the
-- upstream's refs as the last sync saw them. A sync row is a sync that was asked
-- for; owner holds it until lease_until.

-- +goose Up
ALTER TABLE repos ADD COLUMN following INTEGER NOT NULL DEFAULT 0;

CREATE TABLE credentials (
  id         INTEGER PRIMARY KEY,
  org        INTEGER NOT NULL,
  repo       INTEGER NOT NULL UNIQUE,
  username   BLOB    NOT NULL,
  secret     BLOB    NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE upstreams (
  repo           INTEGER PRIMARY KEY,
  provider       BLOB    NOT NULL,
  host           BLOB    NOT NULL,
  owner          BLOB    NOT NULL,
  name           BLOB    NOT NULL,
  public         INTEGER NOT NULL,
  default_branch BLOB    NOT NULL,
  head           BLOB    NOT NULL,
  seen           BLOB    NOT NULL,
  runs           INTEGER NOT NULL,
  synced_at      INTEGER NOT NULL,
  last_error     BLOB    NOT NULL
) STRICT;

CREATE TABLE syncs (
  id          INTEGER PRIMARY KEY,
  org         INTEGER NOT NULL,
  repo        INTEGER NOT NULL,
  writer      BLOB    NOT NULL,
  issued_at   INTEGER NOT NULL,
  attempts    INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  due         INTEGER NOT NULL,
  owner       BLOB    NOT NULL,
  lease_until INTEGER NOT NULL
) STRICT;
CREATE INDEX syncs_repo ON syncs (repo, id);
