package sqlstore

import (
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

// account is what a metered org has and may have, as the batch leaves it.
type account struct {
	meta.OrgQuota
	metered  bool
	used     int64
	repos    int64 // that are not deleted
	reserved []reservation

	addedBytes, addedRepos int64 // by the batch
}

// reservation is a row of reservations, until when it counts.
type reservation struct {
	id    string
	repo  meta.RepoID
	bytes int64
	until int64
}

// counts reports whether a Change adds or removes something that limits are on.
func counts(c *meta.Change) bool {
	return c.AddPack != nil || c.ReplacePacks != nil || c.CreateRepo != nil || c.DeleteRepo || c.PurgeRepo ||
		c.UndeleteRepo || !c.EmptyRepo.IsZero() || c.Reserve != nil || c.Thread != nil && c.Thread.Append != nil ||
		c.Content != nil && len(c.Content.AddPacks)+len(c.Content.RemovePacks) > 0
}

// loadAccount reads an org and, if it is metered, its account. The lock comes
// first: what is read is read under it.
func (b *batch) loadAccount(stmts []stmt, id meta.OrgID) []stmt {
	org := b.orgs[id]
	if b.forUpdate != "" {
		stmts = append(stmts, exec(`SELECT id FROM orgs WHERE id = $1 AND metered = 1`+b.forUpdate, id))
	}
	return append(stmts, stmt{`SELECT o.metered, o.max_bytes, o.max_repo_bytes, o.max_repos, o.max_thread_bytes, o.used_bytes, o.live_repos,
		coalesce(v.repo, 0), coalesce(v.bytes, 0), coalesce(p.renewed + p.lease, 0), coalesce(v.id, $2)
		FROM orgs o LEFT JOIN reservations v ON o.metered = 1 AND v.org = o.id LEFT JOIN processes p ON p.id = v.process
		WHERE o.id = $1`, []any{id, ""}, func(scan scanFunc) error {
		var metered, repo int64
		var held []byte
		var r reservation
		a := &org.account
		err := scan(&metered, &a.Bytes, &a.RepoBytes, &a.Repos, &a.ThreadBytes, &a.used, &a.repos, &repo, &r.bytes, &r.until, &held)
		org.found, a.metered = true, metered != 0
		if len(held) > 0 {
			r.id, r.repo = string(held), meta.RepoID(repo)
			a.reserved = append(a.reserved, r)
		}
		return err
	}})
}

// others sums up the bytes that reservations other than one hold, in the org or,
// if one is named, in a repository.
func (a *account) others(now int64, except string, repo meta.RepoID) (sum int64) {
	for _, r := range a.reserved {
		if r.until > now && r.id != except && (repo == 0 || r.repo == repo) {
			sum += r.bytes
		}
	}
	return sum
}

// noRepo stands for what belongs to no repository.
const noRepo meta.RepoID = -1

// reservedFor returns the repository whose limit a reservation falls under.
func reservedFor(v *meta.Reserve) meta.RepoID {
	if v.Content {
		return noRepo
	}
	return v.Repo
}

// room returns how many bytes the limits leave, or the limit that has no room for
// those that are needed.
func (b *batch) room(a *account, id meta.RepoID, except string, needed, want int64) (int64, *meta.QuotaConflict) {
	var r meta.Repo // one that is to be made has nothing
	var reserved int64
	if state := b.repos[id]; state != nil && state.found {
		r, reserved = state.Repo, a.others(b.now, except, id)
	}
	limit := r.Quota
	if limit == 0 {
		limit = a.RepoBytes
	}
	if id == noRepo {
		limit = 0
	}
	for _, q := range [...]meta.QuotaConflict{
		{OfRepo: true, Limit: limit, Used: r.Used, Reserved: reserved},
		{Limit: a.Bytes, Used: a.used, Reserved: a.others(b.now, except, 0)},
	} {
		if q.Limit <= 0 {
			continue
		}
		free := q.Limit - q.Used - q.Reserved
		if needed > free {
			q.Needed = needed
			return 0, &q
		}
		want = min(want, free)
	}
	return want, nil
}

// quotaConflict checks the limits of a metered org.
func (b *batch) quotaConflict(c *meta.Change) *meta.Conflict {
	a := &b.orgs[c.Org].account
	if c.Reserve != nil && c.Reserve.Repo != 0 {
		if r := b.repos[c.Reserve.Repo]; !r.found || r.Org != c.Org || !r.Deleted.IsZero() {
			return conflict(meta.ConflictRepoGone)
		}
	}
	if !a.metered {
		return nil
	}
	var refused *meta.QuotaConflict
	if more := c.CreateRepo != nil || c.UndeleteRepo; more && a.Repos > 0 && a.repos >= a.Repos {
		refused = &meta.QuotaConflict{Repos: true, Limit: a.Repos, Used: a.repos, Needed: 1}
	}
	if p := c.AddPack; p != nil && refused == nil {
		_, refused = b.room(a, c.Repo, c.Reservation, p.Bytes, p.Bytes)
	}
	if v := c.Reserve; v != nil && refused == nil {
		_, refused = b.room(a, reservedFor(v), v.ID, v.Bytes, v.Want)
	}
	if n := c.Content; n != nil && n.PutUpload != nil && refused == nil {
		refused = b.contentRoom(a, n)
	}
	if refused != nil {
		return &meta.Conflict{Kind: meta.ConflictQuota, Quota: refused}
	}
	return nil
}

// contentRoom returns the limit of the org that has no room for the packs of an
// upload. What the background moves is never refused.
func (b *batch) contentRoom(a *account, n *meta.ContentChange) *meta.QuotaConflict {
	q := &meta.QuotaConflict{Limit: a.Bytes, Used: a.used, Reserved: a.others(b.now, n.Reservation, 0)}
	for i := range n.AddPacks {
		q.Needed += n.AddPacks[i].Bytes
	}
	if q.Limit <= 0 || q.Needed == 0 || q.Needed <= q.Limit-q.Used-q.Reserved {
		return nil
	}
	return q
}

// stageReserve stages a reservation and returns its bytes. In an org without
// limits nothing needs to be kept.
func (b *batch) stageReserve(c *meta.Change) int64 {
	v, a := c.Reserve, &b.orgs[c.Org].account
	if !a.metered {
		return max(v.Bytes, v.Want)
	}
	granted, _ := b.room(a, reservedFor(v), v.ID, v.Bytes, max(v.Bytes, v.Want))
	a.end(v.ID)
	a.reserved = append(a.reserved, reservation{v.ID, v.Repo, granted, b.now + 1})
	b.write(exec(`INSERT INTO reservations (id, process, org, repo, bytes, at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes`, v.ID, v.Process, c.Org, v.Repo, granted, b.now))
	return granted
}

// end forgets a reservation.
func (a *account) end(id string) {
	a.reserved = slices.DeleteFunc(a.reserved, func(r reservation) bool { return r.id == id })
}

// add counts bytes and repositories that a Change adds to an org.
func (b *batch) add(org meta.OrgID, bytes, repos int64) {
	a := &b.orgs[org].account
	a.used, a.addedBytes = a.used+bytes, a.addedBytes+bytes
	a.repos, a.addedRepos = a.repos+repos, a.addedRepos+repos
}

// flushAccount stores what the batch added to a metered org.
func (b *batch) flushAccount(id meta.OrgID) {
	a := &b.orgs[id].account
	if a.metered && (a.addedBytes != 0 || a.addedRepos != 0) {
		b.write(exec(`UPDATE orgs SET used_bytes = used_bytes + $2, live_repos = live_repos + $3 WHERE id = $1`,
			id, a.addedBytes, a.addedRepos))
	}
}

// deduct takes packs that a repository lists no more from its bytes.
func (b *batch) deduct(id meta.RepoID, packs []meta.PackID) {
	for ids := range slices.Chunk(packs, maxIn) {
		marks, size := inList(2, len(ids))
		b.write(exec(`UPDATE repos SET used_bytes = used_bytes - (SELECT coalesce(sum(bytes), 0) FROM packs
			WHERE repo = $1 AND id IN (`+marks+`)) WHERE id = $1`, inArgs([]any{id}, ids, size)...))
	}
}

// deductRetired takes those of the packs that nothing lists any more from the
// bytes of their org.
func (b *batch) deductRetired(ids []meta.PackID) {
	for org, state := range b.orgs {
		if !state.account.metered {
			continue
		}
		marks, size := inList(2, len(ids))
		b.write(exec(`UPDATE orgs SET used_bytes = used_bytes - (SELECT coalesce(sum(bytes), 0) FROM packs
			WHERE org = $1 AND sets = 0 AND id IN (`+marks+`)) WHERE id = $1`, inArgs([]any{org}, ids, size)...))
	}
}

// stageLimits stages the limits of an org or a repository. Whether the org is
// metered follows from them, and what it has is counted anew: nothing else
// changes it meanwhile.
func (b *batch) stageLimits(c *meta.Change) {
	if q := c.SetQuota; q != nil {
		b.write(exec(`UPDATE orgs SET max_bytes = $2, max_repo_bytes = $3, max_repos = $4, max_thread_bytes = $5 WHERE id = $1`,
			c.Org, q.Bytes, q.RepoBytes, q.Repos, q.ThreadBytes))
	}
	if c.SetRepoQuota != nil {
		b.write(exec(`UPDATE repos SET max_bytes = $2 WHERE id = $1`, c.Repo, *c.SetRepoQuota))
	}
	if c.SetQuota != nil || c.SetRepoQuota != nil {
		b.write(exec(`UPDATE orgs SET
			metered = CASE WHEN max_bytes > 0 OR max_repo_bytes > 0 OR max_repos > 0 OR max_thread_bytes > 0
				OR EXISTS (SELECT 1 FROM repos WHERE org = $1 AND max_bytes > 0) THEN 1 ELSE 0 END,
			used_bytes = (SELECT coalesce(sum(bytes), 0) FROM packs WHERE org = $1)
				+ (SELECT coalesce(sum(bytes), 0) FROM content_packs WHERE org = $1),
			live_repos = (SELECT count(*) FROM repos WHERE org = $1 AND deleted_at = 0) WHERE id = $1`, c.Org))
	}
	if c.SetEphemeralAge != nil {
		b.write(exec(`UPDATE orgs SET ephemeral_age = $2 WHERE id = $1`, c.Org, storedAge(*c.SetEphemeralAge)))
	}
	if c.SetRepoAge != nil {
		b.write(exec(`UPDATE repos SET ephemeral_age = $2 WHERE id = $1`, c.Repo, storedAge(*c.SetRepoAge)))
	}
}

// checkLimits refuses limits that mean nothing.
func checkLimits(c *meta.Change) error {
	if c.Repo == 0 && (c.UndeleteRepo || !c.EmptyRepo.IsZero() || c.SetRepoQuota != nil || c.SetRepoAge != nil) {
		return fmt.Errorf("a change of a repository must name it")
	}
	if q := c.SetQuota; q != nil && (q.Bytes < 0 || q.RepoBytes < 0 || q.Repos < 0 || q.ThreadBytes < 0) {
		return fmt.Errorf("the limits %+v of an org: none may be negative", *q)
	}
	if q := c.SetRepoQuota; q != nil && *q < meta.NoLimit {
		return fmt.Errorf("a repository cannot be limited to %d bytes", *q)
	}
	if a := c.SetEphemeralAge; a != nil && *a < 0 {
		return fmt.Errorf("ephemeral branches of an org cannot have the age %v", *a)
	}
	if v := c.Reserve; v != nil && (v.ID == "" || len(v.ID) > meta.MaxName || v.Bytes < 0 || c.Repo != 0) {
		return fmt.Errorf("reservation %q of %d bytes: it needs an id and a change of its own", v.ID, v.Bytes)
	}
	return nil
}
