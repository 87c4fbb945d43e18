-- Endpoints that events are delivered to, and how far that came. events are the
-- types, one a line; none means all. position is the last event up to which all
-- are delivered or given up. owner may deliver until lease_until; fence grows
-- with each new owner.

-- +goose Up
CREATE TABLE webhooks (
  id             bigint  PRIMARY KEY,
  org            bigint  NOT NULL,
  repo           bigint  NOT NULL,
  url            bytea   NOT NULL,
  secret         bytea   NOT NULL,
  events         bytea   NOT NULL,
  mute_ephemeral smallint NOT NULL,
  enabled        smallint NOT NULL,
  reason         bytea   NOT NULL,
  created_at     bigint  NOT NULL,
  updated_at     bigint  NOT NULL,
  position       bigint  NOT NULL,
  failing_since  bigint  NOT NULL,
  owner          bytea   NOT NULL,
  lease_until    bigint  NOT NULL,
  fence          bigint  NOT NULL
);
CREATE INDEX webhooks_org ON webhooks (org, id);

-- What became of events at endpoints: the newest ones, and those that will be
-- tried again (state 0; 1 is delivered, 2 given up).
CREATE TABLE webhook_deliveries (
  webhook        bigint  NOT NULL,
  position       bigint  NOT NULL,
  type           bytea   NOT NULL,
  state          smallint NOT NULL,
  attempts       integer NOT NULL,
  status         integer NOT NULL,
  error          bytea   NOT NULL,
  at             bigint  NOT NULL,
  next_at        bigint  NOT NULL,
  PRIMARY KEY (webhook, position)
);
