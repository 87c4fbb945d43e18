-- The repository whose Change added the pack; 0 for packs from before, which
-- every repository that lists them takes for its own.

-- +goose Up
ALTER TABLE packs ADD COLUMN repo bigint NOT NULL DEFAULT 0;
