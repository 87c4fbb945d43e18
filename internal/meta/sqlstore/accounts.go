package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// storedAge is an age of ephemeral branches as it is stored, ageOf its inverse.
func storedAge(age time.Duration) int64 {
	if age < 0 {
		return -1
	}
	return age.Microseconds()
}

func ageOf(stored int64) time.Duration {
	if stored < 0 {
		return meta.NeverRetire
	}
	return time.Duration(stored) * time.Microsecond
}

// sums reads one row of sums.
func (s *Store) sums(ctx context.Context, text string, args []any, into ...any) error {
	return s.query(ctx, text, args, func(scan scanFunc) error { return scan(into...) })
}

// Usage implements meta.Store.
func (s *Store) Usage(ctx context.Context, org meta.OrgID, repo meta.RepoID) (meta.Usage, error) {
	var u meta.Usage
	count := s.orgPacks
	of, id := `r.org = $1`, any(org)
	if repo != 0 {
		count = s.repoPacks
		of, id = `r.id = $1`, repo
	}
	if err := count(ctx, org, repo, &u); err != nil {
		return u, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return u, err
	}
	for _, q := range []struct {
		text string
		args []any
		into []any
	}{
		{`SELECT coalesce(sum(CASE WHEN deleted_at = 0 THEN 1 ELSE 0 END), 0),
			coalesce(sum(CASE WHEN deleted_at <> 0 AND emptied = 0 THEN 1 ELSE 0 END), 0) FROM repos r WHERE ` + of,
			[]any{id}, []any{&u.Repos, &u.DeletedRepos}},
		{`SELECT coalesce(sum(v.bytes), 0) FROM reservations v JOIN processes p ON p.id = v.process
			WHERE v.org = $1 AND (v.repo = $2 OR $2 = 0) AND p.renewed + p.lease > $3`,
			[]any{org, repo, now}, []any{&u.Reserved}},
	} {
		if err := s.sums(ctx, q.text, q.args, q.into...); err != nil {
			return u, err
		}
	}
	if err := s.countRefs(ctx, of, id, &u.Refs); err != nil || repo != 0 {
		return u, err
	}
	if err := s.countCheckpoints(ctx, org, &u); err != nil {
		return u, err
	}
	if err := s.sums(ctx, `SELECT count(*) FROM events WHERE org = $1`, []any{org}, &u.Events); err != nil {
		return u, err
	}
	return u, s.sums(ctx, `SELECT count(*) FROM idempotency WHERE org = $1`, []any{org}, &u.Idempotency)
}

// countCheckpoints counts threads and checkpoints of an org.
func (s *Store) countCheckpoints(ctx context.Context, org meta.OrgID, u *meta.Usage) error {
	return s.sums(ctx, `SELECT count(*), coalesce(sum(checkpoints), 0) FROM threads WHERE org = $1 AND checkpoints > 0`, []any{org}, &u.Threads, &u.Checkpoints)
}

// accountPage is how many packs are summed up in one statement, so that none
// lasts.
const accountPage = 20000

// orgPacks sums up the packs of an org.
func (s *Store) orgPacks(ctx context.Context, org meta.OrgID, _ meta.RepoID, u *meta.Usage) error {
	const text = `SELECT count(*), coalesce(max(id), 0), coalesce(sum(CASE WHEN org = $1 THEN 1 ELSE 0 END), 0),
		coalesce(sum(CASE WHEN org = $1 THEN bytes ELSE 0 END), 0), coalesce(sum(CASE WHEN org = $1 THEN objects ELSE 0 END), 0),
		coalesce(sum(CASE WHEN org = $1 AND class = $4 THEN bytes ELSE 0 END), 0)
		FROM (SELECT id, org, bytes, objects, class FROM packs WHERE id > $2 ORDER BY id LIMIT $3) AS page`
	after := int64(-1 << 63)
	for n := int64(accountPage); n == accountPage; {
		var packs, bytes, objects, garbage, last int64
		if err := s.sums(ctx, text, []any{org, after, accountPage, int64(meta.PackGarbage)}, &n, &last, &packs, &bytes, &objects, &garbage); err != nil {
			return err
		}
		after = last
		u.Packs, u.Bytes, u.Objects, u.GarbageBytes = u.Packs+packs, u.Bytes+bytes, u.Objects+objects, u.GarbageBytes+garbage
	}
	var packs, objects int64
	err := s.sums(ctx, `SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(objects), 0) FROM content_packs WHERE org = $1`,
		[]any{org}, &packs, &u.CheckpointBytes, &objects)
	u.Packs, u.Bytes, u.Objects = u.Packs+packs, u.Bytes+u.CheckpointBytes, u.Objects+objects
	return err
}

// repoPacks sums up the packs that a repository lists.
func (s *Store) repoPacks(ctx context.Context, _ meta.OrgID, repo meta.RepoID, u *meta.Usage) error {
	var packs []meta.ListedPack
	for range maxAttempts { // it may get another set meanwhile
		row, err := s.Repo(ctx, repo)
		if err != nil {
			return err
		}
		packs, err = s.PackSet(ctx, row.PackSet)
		if err == nil {
			break
		}
		if !errors.Is(err, meta.ErrNotFound) {
			return err
		}
	}
	for i := range packs {
		p := &packs[i]
		if p.Repo != repo {
			u.SharedBytes += p.Bytes
			continue
		}
		u.Packs++
		u.Bytes += p.Bytes
		u.Objects += p.Objects
		if p.Class == meta.PackGarbage {
			u.GarbageBytes += p.Bytes
		}
	}
	return nil
}

// The namespaces by which refs are counted.
const (
	branchRefs    = "refs/heads/"
	tagRefs       = "refs/tags/"
	ephemeralRefs = "refs/namespaces/ephemeral/refs/heads/"
)

// countRefs counts the refs of some repositories by namespace.
func (s *Store) countRefs(ctx context.Context, of string, id any, n *meta.RefCounts) error {
	var all int64
	err := s.sums(ctx, `SELECT count(*) FROM repos r JOIN refs f ON f.repo = r.id WHERE `+of, []any{id}, &all)
	for _, part := range []struct {
		prefix string
		into   *int64
	}{{branchRefs, &n.Branches}, {tagRefs, &n.Tags}, {ephemeralRefs, &n.Ephemeral}} {
		end, _ := prefixEnd(part.prefix)
		if err == nil {
			err = s.sums(ctx, `SELECT count(*) FROM repos r JOIN refs f ON f.repo = r.id AND f.name >= $2 AND f.name < $3 WHERE `+of,
				[]any{id, part.prefix, end}, part.into)
		}
	}
	n.Other = max(all-n.Branches-n.Tags-n.Ephemeral, 0)
	return err
}

// Reservations implements meta.Store.
func (s *Store) Reservations(ctx context.Context) ([]meta.Reservation, error) {
	var rows []meta.Reservation
	err := s.query(ctx, `SELECT id, process, org, repo, bytes, at FROM reservations ORDER BY at, id`, nil, func(scan scanFunc) error {
		var id, process []byte
		var org, repo, bytes, at int64
		err := scan(&id, &process, &org, &repo, &bytes, &at)
		rows = append(rows, meta.Reservation{
			ID: string(id), Process: string(process), Org: meta.OrgID(org), Repo: meta.RepoID(repo), Bytes: bytes, At: timeOf(at),
		})
		return err
	})
	return rows, err
}

// EndReservations implements meta.Store.
func (s *Store) EndReservations(ctx context.Context, ids []string) error {
	return s.write(ctx, func(int64) []stmt {
		stmts := make([]stmt, len(ids))
		for i, id := range ids {
			stmts[i] = exec(`DELETE FROM reservations WHERE id = $1`, id)
		}
		return stmts
	})
}

// DeletedRepos implements meta.Store.
func (s *Store) DeletedRepos(ctx context.Context, before time.Time, after meta.RepoID, limit int) ([]meta.Repo, error) {
	var repos []meta.Repo
	const text = `SELECT ` + repoColumns + ` FROM repos r WHERE r.deleted_at <> 0 AND r.emptied = 0 AND r.deleted_at <= $1 AND r.id > $2
		ORDER BY r.id LIMIT $3`
	err := s.query(ctx, text, []any{before.UnixMicro(), after, limit}, func(scan scanFunc) error {
		r, err := scanRepo(scan)
		repos = append(repos, r)
		return err
	})
	return repos, err
}

// RetainedRepos implements meta.Store.
func (s *Store) RetainedRepos(ctx context.Context, after meta.RepoID, limit int) ([]meta.RetainedRepo, error) {
	var repos []meta.RetainedRepo
	const text = `SELECT o.ephemeral_age, ` + repoColumns + ` FROM repos r JOIN orgs o ON o.id = r.org
		WHERE r.deleted_at = 0 AND r.id > $1 AND (r.ephemeral_age > 0 OR r.ephemeral_age = 0 AND o.ephemeral_age > 0)
		ORDER BY r.id LIMIT $2`
	err := s.query(ctx, text, []any{after, limit}, func(scan scanFunc) error {
		var row repoRow
		var age int64
		err := scan(append([]any{&age}, row.dest()...)...)
		r := meta.RetainedRepo{Repo: row.repo(), Age: ageOf(age)}
		if r.EphemeralAge > 0 {
			r.Age = r.EphemeralAge
		}
		repos = append(repos, r)
		return err
	})
	return repos, err
}

// StaleRefs implements meta.Store.
func (s *Store) StaleRefs(ctx context.Context, q meta.StaleQuery) ([]meta.Ref, error) {
	const text = `SELECT ` + refColumns + ` FROM refs f WHERE f.repo = $1 AND f.name > $2 AND f.name < $3 AND f.updated_at < $4
		ORDER BY f.name LIMIT $5`
	end, _ := prefixEnd(q.Prefix)
	var refs []meta.Ref
	err := s.query(ctx, text, []any{q.Repo, max(q.After, q.Prefix), end, q.Before.UnixMicro(), q.Limit}, func(scan scanFunc) error {
		ref, err := scanRef(scan)
		refs = append(refs, ref)
		return err
	})
	return refs, err
}
