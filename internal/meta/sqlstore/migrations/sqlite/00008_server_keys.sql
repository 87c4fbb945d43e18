-- The key with which the server signs the commits that it makes in an org: the
-- fingerprint of one of its signing_keys, empty for none, and the private half
-- as its owner stores it.

-- +goose Up
ALTER TABLE orgs ADD COLUMN signer BLOB NOT NULL DEFAULT x'';
ALTER TABLE orgs ADD COLUMN signer_secret BLOB NOT NULL DEFAULT x'';
