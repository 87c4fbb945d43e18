-- place orders the events of one repository and says nothing of others: the
-- version of the Change times 2^24, plus the number of the event in it.
-- event_floors has the last position that was pruned from an org's events
-- (repo 0), and the last place that was pruned from a repository's.

-- +goose Up
ALTER TABLE events ADD COLUMN place bigint NOT NULL DEFAULT 0;
UPDATE events e SET place = p.place FROM (
  SELECT id, version * 16777216 + row_number() OVER (PARTITION BY repo, version ORDER BY id) - 1 AS place FROM events
) p WHERE p.id = e.id;
CREATE INDEX events_repo ON events (repo, place);

CREATE TABLE event_floors (
  org  bigint NOT NULL,
  repo bigint NOT NULL,
  last bigint NOT NULL,
  PRIMARY KEY (org, repo)
);
