-- Public keys that verify signatures of commits and tags.

-- +goose Up
CREATE TABLE signing_keys (
  org         bigint  NOT NULL,
  fingerprint bytea   NOT NULL,
  kind        bytea   NOT NULL,
  text        bytea   NOT NULL,
  title       bytea   NOT NULL,
  not_before  bigint  NOT NULL,
  not_after   bigint  NOT NULL,
  created_at  bigint  NOT NULL,
  PRIMARY KEY (org, fingerprint)
);
