-- Bytes and limits of orgs and repositories. repos.used_bytes are those of the
-- packs that the repository made and lists. Those of an org are counted while it
-- is metered, that is while it or one of its repositories has a limit. A
-- reservation lasts as long as its process. ephemeral_age is in microseconds; 0
-- is none for an org and that of the org for a repository, -1 is none.

-- +goose Up
ALTER TABLE orgs
  ADD COLUMN metered smallint NOT NULL DEFAULT 0,
  ADD COLUMN max_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN max_repo_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN max_repos bigint NOT NULL DEFAULT 0,
  ADD COLUMN used_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN live_repos bigint NOT NULL DEFAULT 0,
  ADD COLUMN ephemeral_age bigint NOT NULL DEFAULT 0;
ALTER TABLE repos
  ADD COLUMN used_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN max_bytes bigint NOT NULL DEFAULT 0,
  ADD COLUMN ephemeral_age bigint NOT NULL DEFAULT 0,
  ADD COLUMN emptied smallint NOT NULL DEFAULT 0;
CREATE INDEX repos_deleted ON repos (id) WHERE deleted_at <> 0 AND emptied = 0;
ALTER TABLE packs ADD COLUMN org bigint NOT NULL DEFAULT 0;
ALTER TABLE refs ADD COLUMN updated_at bigint NOT NULL DEFAULT 0;

CREATE TABLE reservations (
  id      bytea  NOT NULL PRIMARY KEY,
  process bytea  NOT NULL,
  org     bigint NOT NULL,
  repo    bigint NOT NULL,
  bytes   bigint NOT NULL,
  at      bigint NOT NULL
);
CREATE INDEX reservations_org ON reservations (org);

CREATE INDEX packs_by_repo ON packs (repo);
UPDATE packs SET org = coalesce((SELECT r.org FROM repos r WHERE r.id = packs.repo), 0);
UPDATE packs SET org = coalesce((SELECT r.org FROM pack_sets s JOIN repos r ON r.pack_set = s.id
  WHERE position(int8send(packs.id) IN s.packs) > 0 LIMIT 1), 0) WHERE org = 0;
UPDATE repos SET used_bytes = coalesce((SELECT sum(p.bytes) FROM packs p JOIN pack_sets s ON s.id = repos.pack_set
  WHERE p.repo = repos.id AND position(int8send(p.id) IN s.packs) > 0), 0);
UPDATE refs SET updated_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
DROP INDEX packs_by_repo;
