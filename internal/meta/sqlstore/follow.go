package sqlstore

import (
	"bytes"

	"github.com/cairnstate/cairn/internal/meta"
)

// followState is what a Change with a FollowChange depends on, besides the
// repository. Such a Change has a transaction of its own.
type followState struct {
	taken      bool // the id that a new row is to have
	credential meta.CredentialID
	updated    int64 // when the credential was
	upstream   bool
	runs       int64
	syncs      []meta.Sync
}

// wantFollow reads what a FollowChange depends on. The repository is locked by
// then.
func (b *batch) wantFollow(stmts []stmt, c *meta.Change) []stmt {
	f := new(followState)
	b.follow = f
	taken := func(table string, id int64) {
		stmts = append(stmts, stmt{`SELECT id FROM ` + table + ` WHERE id = $1`, []any{id},
			func(scanFunc) error { f.taken = true; return nil }})
	}
	if p := c.Follow.PutCredential; p != nil && !c.Follow.Replace {
		taken("credentials", int64(p.ID))
	}
	if c.Follow.AddSync != nil {
		taken("syncs", int64(c.Follow.AddSync.ID))
	}
	return append(stmts,
		stmt{`SELECT id, updated_at FROM credentials WHERE repo = $1`, []any{c.Repo}, func(scan scanFunc) error {
			var id int64
			err := scan(&id, &f.updated)
			f.credential = meta.CredentialID(id)
			return err
		}},
		stmt{`SELECT runs FROM upstreams WHERE repo = $1`, []any{c.Repo}, func(scan scanFunc) error {
			f.upstream = true
			return scan(&f.runs)
		}},
		stmt{`SELECT ` + syncColumns + ` FROM syncs s WHERE s.repo = $1 ORDER BY s.id`, []any{c.Repo}, func(scan scanFunc) error {
			sync, err := scanSync(scan)
			f.syncs = append(f.syncs, sync)
			return err
		}})
}

// followConflict checks the preconditions of a FollowChange.
func (b *batch) followConflict(c *meta.Change) *meta.Conflict {
	f, now := b.follow, timeOf(b.now)
	if f.taken {
		return conflict(meta.ConflictID)
	}
	if p := c.Follow.PutCredential; p != nil {
		switch {
		case c.Follow.Replace && (p.ID != f.credential || !p.UpdatedAt.IsZero() && unixMicro(p.UpdatedAt) != f.updated):
			return conflict(meta.ConflictNoCredential)
		case !c.Follow.Replace && f.credential != 0:
			return conflict(meta.ConflictCredential)
		}
	}
	if id := c.Follow.DeleteCredential; id != 0 && id != f.credential {
		return conflict(meta.ConflictNoCredential)
	}
	if c.Follow.AddSync != nil {
		switch {
		case !f.upstream && c.Follow.PutUpstream == nil:
			return conflict(meta.ConflictNoUpstream)
		case f.waiting(c.Follow.AddSync) == nil && len(f.syncs) >= meta.MaxSyncs:
			return conflict(meta.ConflictBusy)
		}
	}
	if p := c.Follow.BeginSync; p != nil {
		s := f.sync(p.ID)
		if s == nil || s.Due.After(now) || !f.upstream || f.runs != p.AtRuns {
			return conflict(meta.ConflictSync)
		}
		for i := range f.syncs {
			if f.syncs[i].Owner != "" && f.syncs[i].Until.After(now) {
				return conflict(meta.ConflictSync)
			}
		}
	}
	if p := c.Follow.EndSync; p != nil {
		if s := f.sync(p.ID); s == nil || s.Owner != p.Owner {
			return conflict(meta.ConflictSync)
		}
	}
	return nil
}

// sync returns a sync of the repository, nil for none.
func (f *followState) sync(id meta.SyncID) *meta.Sync {
	for i := range f.syncs {
		if f.syncs[i].ID == id {
			return &f.syncs[i]
		}
	}
	return nil
}

// waiting returns a sync for the same writer that has not begun, nil for none.
func (f *followState) waiting(add *meta.Sync) *meta.Sync {
	for i := range f.syncs {
		if s := &f.syncs[i]; s.Attempts == 0 && s.Owner == "" && bytes.Equal(s.Writer, add.Writer) {
			return s
		}
	}
	return nil
}

// stageFollow stages a FollowChange that has passed all checks.
func (b *batch) stageFollow(c *meta.Change) {
	p := c.Follow
	if n := p.PutCredential; n != nil && p.Replace {
		b.write(exec(`UPDATE credentials SET username = $2, secret = $3, updated_at = $4 WHERE id = $1`, n.ID, n.Username, notNil(n.Secret), b.now))
	} else if n != nil {
		created := b.now
		if !n.CreatedAt.IsZero() {
			created = unixMicro(n.CreatedAt)
		}
		b.write(exec(`INSERT INTO credentials (id, org, repo, username, secret, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			n.ID, c.Org, c.Repo, n.Username, notNil(n.Secret), created, b.now))
	}
	if p.DeleteCredential != 0 {
		b.write(exec(`DELETE FROM credentials WHERE id = $1`, p.DeleteCredential))
	}
	if n := p.PutUpstream; n != nil {
		b.write(exec(`INSERT INTO upstreams (repo, provider, host, owner, name, public, default_branch, head, seen, runs, synced_at, last_error)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, $8)`,
			c.Repo, n.Provider, n.Host, n.Owner, n.Name, n.Public, n.DefaultBranch, "", notNil(n.Seen)))
		b.setFollowing(c.Repo, meta.Importing)
	}
	if p.Detach {
		b.write(exec(`DELETE FROM upstreams WHERE repo = $1`, c.Repo), exec(`DELETE FROM syncs WHERE repo = $1`, c.Repo))
		b.setFollowing(c.Repo, meta.NotFollowing)
	}
	if n := p.AddSync; n != nil {
		if w := b.follow.waiting(n); w != nil {
			b.write(exec(`UPDATE syncs SET issued_at = $2 WHERE id = $1`, w.ID, max(w.IssuedAt, n.IssuedAt)))
		} else {
			b.write(exec(`INSERT INTO syncs (id, org, repo, writer, issued_at, attempts, created_at, due, owner, lease_until)
				VALUES ($1, $2, $3, $4, $5, 0, $6, $6, $7, 0)`, n.ID, c.Org, c.Repo, notNil(n.Writer), n.IssuedAt, b.now, ""))
		}
	}
	if n := p.BeginSync; n != nil {
		b.write(
			exec(`UPDATE syncs SET owner = $2, lease_until = $3, attempts = attempts + 1 WHERE id = $1`, n.ID, n.Owner, b.now+n.Lease.Microseconds()),
			exec(`UPDATE upstreams SET runs = runs + 1 WHERE repo = $1`, c.Repo))
	}
	if p.EndSync != nil {
		b.stageEndSync(c.Repo, p.EndSync)
	}
}

// stageEndSync stages the end of a sync. A success also ends those that wait to
// be begun again.
func (b *batch) stageEndSync(repo meta.RepoID, p *meta.EndSync) {
	if p.Error != "" {
		b.write(exec(`UPDATE upstreams SET last_error = $2 WHERE repo = $1`, repo, p.Error))
	} else {
		b.write(
			exec(`UPDATE upstreams SET last_error = $2, head = $3, seen = $4, synced_at = $5 WHERE repo = $1`, repo, "", p.Head, notNil(p.Seen), b.now),
			exec(`DELETE FROM syncs WHERE repo = $1 AND attempts > 0`, repo))
	}
	if p.Again > 0 {
		b.write(exec(`UPDATE syncs SET due = $2, owner = $3, lease_until = 0 WHERE id = $1`, p.ID, b.now+p.Again.Microseconds(), ""))
		return
	}
	b.write(exec(`DELETE FROM syncs WHERE id = $1`, p.ID))
	b.setFollowing(repo, meta.Follows)
}

// setFollowing stages whether a repository follows an upstream.
func (b *batch) setFollowing(id meta.RepoID, f meta.Following) {
	r := b.repos[id]
	r.Following = f
	r.refollow = true
}
