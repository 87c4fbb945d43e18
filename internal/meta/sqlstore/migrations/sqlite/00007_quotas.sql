-- Bytes and limits of orgs and repositories. repos.used_bytes are those of the
-- packs that the repository made and lists. Those of an org are counted while it
-- is metered, that is while it or one of its repositories has a limit. A
-- reservation lasts as long as its process. ephemeral_age is in microseconds; 0
-- is none for an org and that of the org for a repository, -1 is none.

-- +goose Up
ALTER TABLE orgs ADD COLUMN metered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN max_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN max_repo_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN max_repos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN used_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN live_repos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE orgs ADD COLUMN ephemeral_age INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repos ADD COLUMN used_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repos ADD COLUMN max_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repos ADD COLUMN ephemeral_age INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repos ADD COLUMN emptied INTEGER NOT NULL DEFAULT 0;
CREATE INDEX repos_deleted ON repos (id) WHERE deleted_at <> 0 AND emptied = 0;
ALTER TABLE packs ADD COLUMN org INTEGER NOT NULL DEFAULT 0;
ALTER TABLE refs ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;

CREATE TABLE reservations (
  id      BLOB    NOT NULL PRIMARY KEY,
  process BLOB    NOT NULL,
  org     INTEGER NOT NULL,
  repo    INTEGER NOT NULL,
  bytes   INTEGER NOT NULL,
  at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_org ON reservations (org);

CREATE INDEX packs_by_repo ON packs (repo);
UPDATE packs SET org = coalesce((SELECT r.org FROM repos r WHERE r.id = packs.repo), 0);
UPDATE packs SET org = coalesce((SELECT r.org FROM pack_sets s JOIN repos r ON r.pack_set = s.id
  WHERE instr(s.packs, unhex(printf('%016x', packs.id))) > 0 LIMIT 1), 0) WHERE org = 0;
UPDATE repos SET used_bytes = coalesce((SELECT sum(p.bytes) FROM packs p JOIN pack_sets s ON s.id = repos.pack_set
  WHERE p.repo = repos.id AND instr(s.packs, unhex(printf('%016x', p.id))) > 0), 0);
UPDATE refs SET updated_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000000;
DROP INDEX packs_by_repo;
