-- Endpoints that events are delivered to, and how far that came. events are the
-- types, one a line; none means all. position is the last event up to which all
-- are delivered or given up. owner may deliver until lease_until; fence grows
-- with each new owner.

-- +goose Up
CREATE TABLE webhooks (
  id             INTEGER PRIMARY KEY,
  org            INTEGER NOT NULL,
  repo           INTEGER NOT NULL,
  url            BLOB    NOT NULL,
  secret         BLOB    NOT NULL,
  events         BLOB    NOT NULL,
  mute_ephemeral INTEGER NOT NULL,
  enabled        INTEGER NOT NULL,
  reason         BLOB    NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  position       INTEGER NOT NULL,
  failing_since  INTEGER NOT NULL,
  owner          BLOB    NOT NULL,
  lease_until    INTEGER NOT NULL,
  fence          INTEGER NOT NULL
) STRICT;
CREATE INDEX webhooks_org ON webhooks (org, id);

-- What became of events at endpoints: the newest ones, and those that will be
-- tried again (state 0; 1 is delivered, 2 given up).
CREATE TABLE webhook_deliveries (
  webhook        INTEGER NOT NULL,
  position       INTEGER NOT NULL,
  type           BLOB    NOT NULL,
  state          INTEGER NOT NULL,
  attempts       INTEGER NOT NULL,
  status         INTEGER NOT NULL,
  error          BLOB    NOT NULL,
  at             INTEGER NOT NULL,
  next_at        INTEGER NOT NULL,
  PRIMARY KEY (webhook, position)
) STRICT, WITHOUT ROWID;
