-- put_at is when a blob was last put: one whose recipe went is forgotten only as it
-- was seen.

-- +goose Up
ALTER TABLE large_blobs ADD COLUMN put_at INTEGER NOT NULL DEFAULT 0;
