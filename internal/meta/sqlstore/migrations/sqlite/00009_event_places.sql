-- place orders the events of one repository and says nothing of others: the
-- version of the Change times 2^24, plus the number of the event in it.
-- event_floors has the last position that was pruned from an org's events
-- (repo 0), and the last place that was pruned from a repository's.

-- +goose Up
ALTER TABLE events ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
UPDATE events SET place = p.place FROM (
  SELECT position, version * 16777216 + row_number() OVER (PARTITION BY repo, version ORDER BY position) - 1 AS place FROM events
) AS p WHERE p.position = events.position;
CREATE INDEX events_repo ON events (repo, place);

CREATE TABLE event_floors (
  org  INTEGER NOT NULL,
  repo INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (org, repo)
) STRICT, WITHOUT ROWID;
