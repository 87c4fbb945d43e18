package sqlstore

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

const repoColumns = `r.id, r.org, r.version, r.pack_set, r.tidy, r.source, r.created_at, r.deleted_at, r.following,
	r.used_bytes, r.max_bytes, r.ephemeral_age, r.emptied, r.name, r.default_branch`

// repoColumnsOrNone is repoColumns where the row may be absent; $5 is empty.
const repoColumnsOrNone = `coalesce(r.id, 0), coalesce(r.org, 0), coalesce(r.version, 0), coalesce(r.pack_set, 0),
	coalesce(r.tidy, 0), coalesce(r.source, 0), coalesce(r.created_at, 0), coalesce(r.deleted_at, 0), coalesce(r.following, 0),
	coalesce(r.used_bytes, 0), coalesce(r.max_bytes, 0), coalesce(r.ephemeral_age, 0), coalesce(r.emptied, 0),
	coalesce(r.name, $5), coalesce(r.default_branch, $5)`

// repoRow receives repoColumns.
type repoRow struct {
	id, org, version, packSet, tidy, source, createdAt, deletedAt, following int64
	used, quota, ephemeralAge, emptied                                       int64
	name, defaultBranch                                                      []byte
}

func (r *repoRow) dest() []any {
	return []any{
		&r.id, &r.org, &r.version, &r.packSet, &r.tidy, &r.source, &r.createdAt, &r.deletedAt, &r.following,
		&r.used, &r.quota, &r.ephemeralAge, &r.emptied, &r.name, &r.defaultBranch,
	}
}

func (r *repoRow) repo() meta.Repo {
	return meta.Repo{
		ID: meta.RepoID(r.id), Org: meta.OrgID(r.org), Name: string(r.name), DefaultBranch: string(r.defaultBranch),
		Version: r.version, PackSet: r.packSet, Tidy: r.tidy != 0, Source: meta.RepoID(r.source),
		CreatedAt: timeOf(r.createdAt), Deleted: timeOf(r.deletedAt), Following: meta.Following(r.following),
		Used: r.used, Quota: r.quota, EphemeralAge: ageOf(r.ephemeralAge), Emptied: r.emptied != 0,
	}
}

func scanRepo(scan scanFunc) (meta.Repo, error) {
	var row repoRow
	err := scan(row.dest()...)
	return row.repo(), err
}

// Repo implements meta.Store.
func (s *Store) Repo(ctx context.Context, id meta.RepoID) (meta.Repo, error) {
	var repo meta.Repo
	err := s.one(ctx, `SELECT `+repoColumns+` FROM repos r WHERE r.id = $1`, []any{id}, func(scan scanFunc) (err error) {
		repo, err = scanRepo(scan)
		return err
	})
	return repo, err
}

// ListRepos implements meta.Store.
func (s *Store) ListRepos(ctx context.Context, q meta.RepoQuery) ([]meta.Repo, error) {
	const text = `SELECT ` + repoColumns + ` FROM repos r
		WHERE r.org = $1 AND r.deleted_at = 0 AND (r.created_at, r.id) < ($2, $3)
		ORDER BY r.created_at DESC, r.id DESC LIMIT $4`
	at, id := int64(math.MaxInt64), int64(math.MaxInt64)
	if !q.BeforeCreated.IsZero() || q.BeforeID != 0 {
		at, id = unixMicro(q.BeforeCreated), int64(q.BeforeID)
	}
	page := q.Limit
	if q.Contains != "" {
		page = max(page, 1000)
	}
	contains := lowerASCII(q.Contains)
	var repos []meta.Repo
	for {
		n := 0
		err := s.query(ctx, text, []any{q.Org, at, id, page}, func(scan scanFunc) error {
			repo, err := scanRepo(scan)
			n++
			at, id = unixMicro(repo.CreatedAt), int64(repo.ID)
			if len(repos) < q.Limit && strings.Contains(lowerASCII(repo.Name), contains) {
				repos = append(repos, repo)
			}
			return err
		})
		if err != nil || n < page || len(repos) >= q.Limit {
			return repos, err
		}
	}
}

// lowerASCII lowers the letters A to Z and leaves all other bytes.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

const refColumns = `f.created_at, f.created_version, f.name, f.id, f.peeled`

// refRow receives refColumns.
type refRow struct {
	createdAt, createdVersion int64
	name, id, peeled          []byte
}

func (r *refRow) dest() []any {
	return []any{&r.createdAt, &r.createdVersion, &r.name, &r.id, &r.peeled}
}

func (r *refRow) ref() (meta.Ref, error) {
	id, err := idOf(r.id)
	if err != nil {
		return meta.Ref{}, err
	}
	peeled, err := idOf(r.peeled)
	return meta.Ref{
		Name: string(r.name), ID: id, Peeled: peeled,
		CreatedAt: timeOf(r.createdAt), CreatedVersion: r.createdVersion,
	}, err
}

func scanRef(scan scanFunc) (meta.Ref, error) {
	var row refRow
	if err := scan(row.dest()...); err != nil {
		return meta.Ref{}, err
	}
	return row.ref()
}

// selectRefs begins a statement that gives the repository's version with every
// ref, and once without a ref when none matches. $2 is empty.
const selectRefs = `SELECT r.version, coalesce(f.created_at, 0), coalesce(f.created_version, 0),
	coalesce(f.name, $2), coalesce(f.id, $2), coalesce(f.peeled, $2)
	FROM repos r LEFT JOIN refs f ON f.repo = r.id AND `

// Refs implements meta.Store.
func (s *Store) Refs(ctx context.Context, q meta.RefQuery) (meta.RefPage, error) {
	text, args, keep := refQuery(q)
	var page meta.RefPage
	found := false
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		var row refRow
		if err := scan(append([]any{&page.Version}, row.dest()...)...); err != nil {
			return err
		}
		found = true
		if len(row.name) == 0 || keep != nil && !keep[string(row.name)] {
			return nil
		}
		ref, err := row.ref()
		page.Refs = append(page.Refs, ref)
		return err
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return page, err
}

// refQuery writes the statement for a query. For a long list of names it reads
// the range that they span, of which only those in keep are wanted.
func refQuery(q meta.RefQuery) (text string, args []any, keep map[string]bool) {
	const tail = ` WHERE r.id = $1 ORDER BY f.name`
	args = []any{q.Repo, ""}
	switch n := len(q.Names); {
	case n > maxIn:
		keep = make(map[string]bool, n)
		for _, name := range q.Names {
			keep[name] = true
		}
		args = append(args, slices.Min(q.Names), slices.Max(q.Names))
		return selectRefs + `f.name >= $3 AND f.name <= $4` + tail, args, keep
	case n > 0:
		marks, size := inList(3, n)
		return selectRefs + `f.name IN (` + marks + `)` + tail, inArgs(args, q.Names, size), nil
	}
	cond := `f.name > $3`
	args = append(args, q.After)
	if q.Prefix > q.After {
		cond = `f.name >= $3`
		args[2] = q.Prefix
	}
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	args = append(args, limit)
	if end, ok := prefixEnd(q.Prefix); ok {
		return selectRefs + cond + ` AND f.name < $5` + tail + ` LIMIT $4`, append(args, end), nil
	}
	return selectRefs + cond + tail + ` LIMIT $4`, args, nil
}

// RefsByAge implements meta.Store.
func (s *Store) RefsByAge(ctx context.Context, q meta.RefAgeQuery) ([]meta.Ref, error) {
	// coalesce keeps the planner from reading the refs by name and sorting them.
	text := `SELECT ` + refColumns + ` FROM refs f
		WHERE f.repo = $1 AND (f.created_version, f.name) > ($2, $3) AND coalesce(f.name, $4) >= $4`
	args := []any{q.Repo, q.AfterVersion, q.AfterName, q.Prefix, q.Limit}
	if end, ok := prefixEnd(q.Prefix); ok {
		text += ` AND coalesce(f.name, $4) < $6`
		args = append(args, end)
	}
	if space, ok := spaceOf(q.Prefix); ok {
		text += ` AND f.space = $7`
		args = append(args, space)
	}
	text += ` ORDER BY f.created_version, f.name LIMIT $5`
	var refs []meta.Ref
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		ref, err := scanRef(scan)
		refs = append(refs, ref)
		return err
	})
	return refs, err
}

// RefLog implements meta.Store. No entry is ever dropped, so it is complete.
func (s *Store) RefLog(ctx context.Context, repo meta.RepoID, after int64, limit int) ([]meta.RefLogEntry, bool, error) {
	const text = `SELECT l.version, l.at, l.name, l.old_id, l.new_id, l.peeled, l.subject, l.route
		FROM ref_log l WHERE l.repo = $1 AND l.version > $2 ORDER BY l.version, l.name LIMIT $3`
	var entries []meta.RefLogEntry
	err := s.query(ctx, text, []any{repo, after, limit}, func(scan scanFunc) error {
		e, err := scanLog(scan)
		entries = append(entries, e)
		return err
	})
	return entries, true, err
}

func scanLog(scan scanFunc) (meta.RefLogEntry, error) {
	var version, at int64
	var name, oldID, newID, peeledID, subject, route []byte
	if err := scan(&version, &at, &name, &oldID, &newID, &peeledID, &subject, &route); err != nil {
		return meta.RefLogEntry{}, err
	}
	e := meta.RefLogEntry{
		Version: version, Name: string(name), At: timeOf(at), Subject: string(subject), Route: string(route),
	}
	var err error
	for _, p := range [...]struct {
		to   *object.ID
		from []byte
	}{{&e.Old, oldID}, {&e.New, newID}, {&e.Peeled, peeledID}} {
		if *p.to, err = idOf(p.from); err != nil {
			return e, err
		}
	}
	return e, nil
}

// Bounds of a walk back through the ref log: entries per page, and how much
// later than its successor an entry may say it was written, when a clock was
// set back.
const (
	logPage   = 500
	clockSlip = time.Minute
)

// RecentTips implements meta.Store.
func (s *Store) RecentTips(ctx context.Context, repo meta.RepoID, since time.Time) ([]object.ID, error) {
	return s.tipsSince(ctx, repo, since, false)
}

// LeftTips implements meta.Store.
func (s *Store) LeftTips(ctx context.Context, repo meta.RepoID, since time.Time) ([]object.ID, error) {
	return s.tipsSince(ctx, repo, since, true)
}

// tipsSince returns the old values that left a ref at or after since, with those
// of refs that were deleted or without.
func (s *Store) tipsSince(ctx context.Context, repo meta.RepoID, since time.Time, all bool) ([]object.ID, error) {
	const text = `SELECT l.version, l.at, l.name, l.old_id, l.new_id, l.peeled, l.subject, l.route
		FROM ref_log l WHERE l.repo = $1 AND (l.version, l.name) < ($2, $3)
		ORDER BY l.version DESC, l.name DESC LIMIT $4`
	deleted := make(map[string]bool)
	seen := make(map[object.ID]bool)
	var tips []object.ID
	version, name := int64(math.MaxInt64), ""
	for {
		n, ended := 0, false
		err := s.query(ctx, text, []any{repo, version, name, logPage}, func(scan scanFunc) error {
			e, err := scanLog(scan)
			n++
			version, name = e.Version, e.Name
			ended = ended || e.At.Before(since.Add(-clockSlip))
			deleted[e.Name] = !all && (deleted[e.Name] || e.New.IsZero())
			if !e.At.Before(since) && !e.Old.IsZero() && !deleted[e.Name] && !seen[e.Old] {
				seen[e.Old] = true
				tips = append(tips, e.Old)
			}
			return err
		})
		if err != nil || ended || n < logPage {
			return tips, err
		}
	}
}

// Protections implements meta.Store.
func (s *Store) Protections(ctx context.Context, repo meta.RepoID) ([]meta.Protection, error) {
	const text = `SELECT p.pattern, p.ops FROM protections p WHERE p.repo = $1 ORDER BY p.place`
	var rules []meta.Protection
	err := s.query(ctx, text, []any{repo}, func(scan scanFunc) error {
		var pattern, ops []byte
		err := scan(&pattern, &ops)
		rule := meta.Protection{Pattern: string(pattern)}
		if len(ops) > 0 {
			rule.Ops = strings.Split(string(ops), "\n")
		}
		rules = append(rules, rule)
		return err
	})
	return rules, err
}
