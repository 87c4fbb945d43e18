-- What was done to an org, besides the changes of refs, which are in ref_log.

-- +goose Up
CREATE TABLE audit (
  org     bigint  NOT NULL,
  at      bigint  NOT NULL,
  id      bigint  NOT NULL,
  repo    bigint  NOT NULL,
  action  bytea   NOT NULL,
  detail  bytea   NOT NULL,
  subject bytea   NOT NULL,
  route   bytea   NOT NULL,
  agent   bytea   NOT NULL,
  PRIMARY KEY (org, at, id)
);
ALTER TABLE ref_log ADD COLUMN agent bytea NOT NULL DEFAULT '';
CREATE INDEX idempotency_at ON idempotency (at);
