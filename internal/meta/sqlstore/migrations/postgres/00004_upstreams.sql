-- Repositories that follow one on another host. following is 1 for those that
-- do, 2 until the first import has ended. secret is encrypted. seen holds the
-- upstream's refs as the last sync saw them. A sync row is a sync that was asked
-- for; owner holds it until lease_until.

-- +goose Up
ALTER TABLE repos ADD COLUMN following bigint NOT NULL DEFAULT 0;

CREATE TABLE credentials (
  id         bigint  PRIMARY KEY,
  org        bigint  NOT NULL,
  repo       bigint  NOT NULL UNIQUE,
  username   bytea   NOT NULL,
  secret     bytea   NOT NULL,
  created_at bigint  NOT NULL,
  updated_at bigint  NOT NULL
);

CREATE TABLE upstreams (
  repo           bigint  PRIMARY KEY,
  provider       bytea   NOT NULL,
  host           bytea   NOT NULL,
  owner          bytea   NOT NULL,
  name           bytea   NOT NULL,
  public         bigint  NOT NULL,
  default_branch bytea   NOT NULL,
  head           bytea   NOT NULL,
  seen           bytea   NOT NULL,
  runs           bigint  NOT NULL,
  synced_at      bigint  NOT NULL,
  last_error     bytea   NOT NULL
);

CREATE TABLE syncs (
  id          bigint  PRIMARY KEY,
  org         bigint  NOT NULL,
  repo        bigint  NOT NULL,
  writer      bytea   NOT NULL,
  issued_at   bigint  NOT NULL,
  attempts    bigint  NOT NULL,
  created_at  bigint  NOT NULL,
  due         bigint  NOT NULL,
  owner       bytea   NOT NULL,
  lease_until bigint  NOT NULL
);
CREATE INDEX syncs_repo ON syncs (repo, id);
