-- What was done to an org, besides the changes of refs, which are in ref_log.

-- +goose Up
CREATE TABLE audit (
  org     INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  id      INTEGER NOT NULL,
  repo    INTEGER NOT NULL,
  action  BLOB    NOT NULL,
  detail  BLOB    NOT NULL,
  subject BLOB    NOT NULL,
  route   BLOB    NOT NULL,
  agent   BLOB    NOT NULL,
  PRIMARY KEY (org, at, id)
) STRICT, WITHOUT ROWID;
ALTER TABLE ref_log ADD COLUMN agent BLOB NOT NULL DEFAULT x'';
CREATE INDEX idempotency_at ON idempotency (at);
