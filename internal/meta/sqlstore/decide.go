package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// decide evaluates a Change on the state that the ones before left and, when
// all preconditions hold, stages what it writes.
func (b *batch) decide(ctx context.Context, c *meta.Change) (meta.Verdict, error) {
	conflict := b.orgConflict(c)
	if conflict == nil {
		conflict = b.floorConflict(c)
	}
	if conflict == nil && c.Repo != 0 {
		conflict = b.repoConflict(c)
	}
	if conflict == nil && c.Repo != 0 {
		conflict = b.packConflict(c)
	}
	if conflict == nil && b.orgs[c.Org].counts {
		conflict = b.quotaConflict(c)
	}
	if conflict == nil && c.Follow != nil {
		conflict = b.followConflict(c)
	}
	if conflict == nil && c.Thread != nil {
		conflict = b.threadConflict(c)
	}
	if conflict == nil && c.Content != nil {
		conflict = b.contentConflict(c)
	}
	if conflict == nil && len(c.Refs) > 0 {
		conflict = b.moveRefs(c)
	}
	if conflict != nil {
		return meta.Verdict{Conflict: conflict}, nil
	}
	if c.DeleteOrg {
		if err := b.purgeAll(ctx, b.orgs[c.Org].deleted); err != nil {
			return meta.Verdict{}, err
		}
	}
	b.stageOrg(c)
	v := meta.Verdict{Applied: true, At: timeOf(b.now)}
	if c.Repo != 0 {
		v.Version = b.stageRepo(c)
	}
	if c.Thread != nil {
		v.Thread = b.stageThread(c)
	}
	if p := c.PutBlob; p != nil {
		b.write(exec(`INSERT INTO large_blobs (org, sum, recipe, size, put_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (org, sum) DO UPDATE SET recipe = excluded.recipe, size = excluded.size,
			put_at = CASE WHEN excluded.put_at > large_blobs.put_at THEN excluded.put_at ELSE large_blobs.put_at + 1 END`,
			c.Org, p.Sum[:], p.Recipe[:], p.Size, b.now))
	}
	for i := range c.ForgetBlobs {
		p := &c.ForgetBlobs[i]
		b.write(exec(`DELETE FROM large_blobs WHERE org = $1 AND sum = $2 AND put_at = $3`, c.Org, p.Sum[:], unixMicro(p.PutAt)))
	}
	if c.Reserve != nil {
		v.Granted = b.stageReserve(c)
	}
	if c.Content != nil {
		b.stageContent(c)
	}
	b.stageLimits(c)
	b.stageEvents(c, v.Version)
	b.stageAudit(c)
	return v, nil
}

// conflict makes a Conflict that needs no more than its kind.
func conflict(kind meta.ConflictKind) *meta.Conflict { return &meta.Conflict{Kind: kind} }

// orgConflict checks the preconditions on the org and the idempotency key.
func (b *batch) orgConflict(c *meta.Change) *meta.Conflict {
	org := b.orgs[c.Org]
	switch {
	case c.CreateOrg != nil && org.nameTaken:
		return conflict(meta.ConflictName)
	case c.CreateOrg != nil && org.found:
		return conflict(meta.ConflictID)
	case c.CreateOrg == nil && !org.found:
		return conflict(meta.ConflictOrgGone)
	}
	if c.Idempotency != nil {
		if row := b.replays[replayKey{c.Org, c.Idempotency.Key}]; row != nil {
			return &meta.Conflict{Kind: meta.ConflictReplay, Replay: row}
		}
	}
	if c.DeleteOrg && org.live {
		return conflict(meta.ConflictNotEmpty)
	}
	if c.RemoveKey != "" {
		if _, ok := org.keys[c.RemoveKey]; !ok {
			return conflict(meta.ConflictKey)
		}
	}
	if c.RemoveSigningKey != "" && !org.signing[c.RemoveSigningKey] {
		return conflict(meta.ConflictKey)
	}
	if c.PutKey != nil && c.PutKey.KID != "" {
		for fingerprint, kid := range org.keys {
			if kid == c.PutKey.KID && fingerprint != c.PutKey.Fingerprint && fingerprint != c.RemoveKey {
				return conflict(meta.ConflictKey)
			}
		}
	}
	return nil
}

// floorConflict checks the Change's token against the floors that cover it.
func (b *batch) floorConflict(c *meta.Change) *meta.Conflict {
	if c.Token == nil {
		return nil
	}
	covers := func(kind meta.FloorKind, repo meta.RepoID, target string) bool {
		floor := b.floors[floorKey{c.Org, kind, repo, target}]
		return floor != 0 && floor >= c.Token.IssuedAt
	}
	refused := covers(meta.FloorOrg, 0, "") ||
		c.Token.Subject != "" && covers(meta.FloorSubject, 0, c.Token.Subject) ||
		c.Token.Thread != "" && covers(meta.FloorThread, 0, c.Token.Thread)
	if c.CreateRepo != nil {
		refused = refused || covers(meta.FloorRepo, 0, c.CreateRepo.Name)
	} else if c.Repo != 0 {
		refused = refused || covers(meta.FloorRepo, 0, b.repos[c.Repo].Name)
	}
	for i := range c.Refs {
		refused = refused || covers(meta.FloorRef, c.Repo, c.Refs[i].Name)
	}
	if c.Thread != nil {
		refused = refused || covers(meta.FloorThread, 0, c.Thread.Name)
	}
	if refused {
		return conflict(meta.ConflictFloor)
	}
	return nil
}

// repoConflict checks that the repository is in the state the Change needs.
func (b *batch) repoConflict(c *meta.Change) *meta.Conflict {
	r := b.repos[c.Repo]
	if c.CreateRepo != nil {
		return b.createConflict(c, r)
	}
	deleted := !r.Deleted.IsZero()
	switch {
	case !r.found || r.Org != c.Org:
		return conflict(meta.ConflictRepoGone)
	case c.UndeleteRepo && !deleted, !c.EmptyRepo.IsZero() && (!deleted || r.Deleted.After(c.EmptyRepo)):
		return conflict(meta.ConflictNotDeleted)
	case c.UndeleteRepo && r.Emptied:
		return conflict(meta.ConflictRepoGone)
	case c.UndeleteRepo, !c.EmptyRepo.IsZero():
		return nil
	case deleted && c.DeleteRepo && !c.PurgeRepo:
		return conflict(meta.ConflictDeleted)
	case deleted && !c.PurgeRepo:
		return conflict(meta.ConflictRepoGone)
	case !deleted && c.PurgeRepo && !c.DeleteRepo:
		return conflict(meta.ConflictNotDeleted)
	}
	return nil
}

func (b *batch) createConflict(c *meta.Change, r *repoState) *meta.Conflict {
	if name := b.names[repoName{c.Org, c.CreateRepo.Name}]; name != nil {
		deleted := name.deleted
		if other := b.repos[name.id]; other != nil {
			deleted = !other.Deleted.IsZero()
		}
		if deleted {
			return conflict(meta.ConflictDeleted)
		}
		return conflict(meta.ConflictName)
	}
	if r.found {
		return conflict(meta.ConflictID)
	}
	if c.CreateRepo.Source == 0 {
		return nil
	}
	source := b.repos[c.CreateRepo.Source]
	if !source.found || source.Org != c.Org || !source.Deleted.IsZero() || source.PackSet != c.SourcePackSet {
		return conflict(meta.ConflictSource)
	}
	return nil
}

// packConflict checks the preconditions on packs.
func (b *batch) packConflict(c *meta.Change) *meta.Conflict {
	var added []*meta.PackWrite
	if c.AddPack != nil {
		added = append(added, c.AddPack)
	}
	if c.ReplacePacks != nil {
		listed := b.list(b.repos[c.Repo])
		for _, ids := range [][]meta.PackID{c.ReplacePacks.Remove, c.ReplacePacks.Keep} {
			for _, id := range ids {
				if !slices.Contains(listed, id) {
					return conflict(meta.ConflictPackSet)
				}
			}
		}
		for i := range c.ReplacePacks.Add {
			added = append(added, &c.ReplacePacks.Add[i])
		}
	}
	for i, p := range added {
		same := func(other *meta.PackWrite) bool {
			return other.ID == p.ID || !p.Inline && !other.Inline && other.Key == p.Key
		}
		if b.packs[p.ID].taken || slices.ContainsFunc(added[:i], same) {
			return conflict(meta.ConflictID)
		}
		if !p.Inline && !b.uploads[p.Key] {
			return conflict(meta.ConflictUpload)
		}
	}
	return nil
}

// list returns the packs that a repository lists now.
func (b *batch) list(r *repoState) []meta.PackID {
	if set := b.sets[r.PackSet]; set != nil {
		return set.packs
	}
	return nil
}

// ownList is list, of which appending changes no other.
func (b *batch) ownList(r *repoState) []meta.PackID {
	if set := b.sets[r.PackSet]; set != nil && set.fresh {
		return set.packs
	}
	return slices.Clip(b.list(r))
}

// moveRefs checks the Change's refs and moves them, or moves none.
func (b *batch) moveRefs(c *meta.Change) *meta.Conflict {
	r := b.repos[c.Repo]
	for i := range c.Refs {
		w := &c.Refs[i]
		if now := r.refs[w.Name].now; !w.AnyOld && now.ID != w.Old {
			return &meta.Conflict{Kind: meta.ConflictRef, Ref: w.Name, Current: now.ID}
		}
	}
	before := make([]meta.Ref, len(c.Refs))
	for i := range c.Refs {
		w := &c.Refs[i]
		ref := r.refs[w.Name]
		before[i] = ref.now
		if !w.VerifyOnly && ref.now.ID != w.New {
			b.moveRef(r, ref, w)
		}
	}
	clash := r.pathConflict(c.Refs, before)
	if clash != nil {
		for i := range c.Refs {
			r.refs[c.Refs[i].Name].now = before[i]
		}
		return clash
	}
	for i := range c.Refs {
		w := &c.Refs[i]
		if !w.VerifyOnly && before[i].ID != w.New {
			r.log = append(r.log, meta.RefLogEntry{
				Version: r.Version + 1, Name: w.Name, Old: before[i].ID, New: w.New, Peeled: w.Peeled,
				Subject: c.Subject, Route: c.Route, Agent: agentOf(c),
			})
		}
	}
	return nil
}

// moveRef stages the new value of a ref.
func (b *batch) moveRef(r *repoState, ref *refState, w *meta.RefWrite) {
	if w.New.IsZero() {
		ref.now = meta.Ref{}
		return
	}
	if ref.now.ID.IsZero() {
		ref.now = meta.Ref{Name: w.Name, CreatedAt: timeOf(b.now), CreatedVersion: r.Version + 1}
		for dir := range parents(w.Name) {
			r.dirs[dir] = append(r.dirs[dir], w.Name)
		}
	}
	ref.now.ID, ref.now.Peeled = w.New, w.Peeled
}

// pathConflict finds a ref that was created although another one exists above
// or below it.
func (r *repoState) pathConflict(writes []meta.RefWrite, before []meta.Ref) *meta.Conflict {
	for i := range writes {
		name := writes[i].Name
		if !before[i].ID.IsZero() || r.refs[name].now.ID.IsZero() {
			continue
		}
		for dir := range parents(name) {
			if r.exists(dir) {
				return &meta.Conflict{Kind: meta.ConflictRefPath, Ref: name, Other: dir, Current: r.refs[dir].now.ID}
			}
		}
		for _, below := range [...][]string{r.below[name], r.dirs[name]} {
			for _, other := range below {
				if r.exists(other) {
					return &meta.Conflict{Kind: meta.ConflictRefPath, Ref: name, Other: other}
				}
			}
		}
	}
	return nil
}

// exists reports whether a ref exists as the batch leaves it. A name that the
// batch does not know was read from the database and is untouched.
func (r *repoState) exists(name string) bool {
	ref := r.refs[name]
	return ref == nil || !ref.now.ID.IsZero()
}

// stageRepo stages a Change that has passed all checks and returns the
// repository's version after it.
func (b *batch) stageRepo(c *meta.Change) int64 {
	r := b.repos[c.Repo]
	if n := c.CreateRepo; n != nil {
		log := r.log
		r.Repo = meta.Repo{
			ID: c.Repo, Org: c.Org, Name: n.Name, DefaultBranch: n.DefaultBranch, Source: n.Source,
			PackSet: n.PackSet, Tidy: n.Tidy, CreatedAt: timeOf(b.now),
		}
		r.found, r.created, r.log = true, true, log
		b.names[repoName{c.Org, n.Name}] = &nameState{id: c.Repo}
		if set := b.sets[n.PackSet]; set != nil {
			set.repos++
		}
		b.add(c.Org, 0, 1)
	}
	r.dirty = true
	if p := c.AddPack; p != nil {
		b.relist(r, append(b.ownList(r), p.ID))
		b.addPack(r, p)
		if c.Reservation != "" {
			b.orgs[c.Org].account.end(c.Reservation)
			b.write(exec(`DELETE FROM reservations WHERE id = $1`, c.Reservation))
		}
	}
	if p := c.ReplacePacks; p != nil {
		b.replacePacks(r, p)
	}
	if c.Untidy {
		r.Tidy = false
	}
	if c.SetDefaultBranch != "" {
		r.DefaultBranch = c.SetDefaultBranch
	}
	if c.SetProtections != nil {
		r.protections = c.SetProtections
	}
	if c.DeleteRepo && r.Deleted.IsZero() {
		r.Deleted = timeOf(b.now)
		b.add(r.Org, 0, -1)
	}
	if c.UndeleteRepo {
		r.Deleted = time.Time{}
		b.add(r.Org, 0, 1)
	}
	if !c.EmptyRepo.IsZero() {
		b.empty(r)
	}
	if c.PurgeRepo {
		b.purge(r)
	}
	if c.Follow != nil {
		b.stageFollow(c)
	}
	r.Version++
	return r.Version
}

// replacePacks puts the new packs where the first removed one was.
func (b *batch) replacePacks(r *repoState, p *meta.PackReplace) {
	old := b.list(r)
	at := len(old)
	kept := make([]meta.PackID, 0, len(old))
	for i, id := range old {
		if slices.Contains(p.Remove, id) {
			at = min(at, i)
			continue
		}
		kept = append(kept, id)
	}
	at = min(at, len(kept))
	r.dropped = append(r.dropped, p.Remove...)
	added := make([]meta.PackID, len(p.Add))
	for i := range p.Add {
		added[i] = p.Add[i].ID
		b.addPack(r, &p.Add[i])
	}
	b.relist(r, slices.Insert(kept, at, added...))
	if p.Tidy && p.AtVersion == r.Version {
		r.Tidy = true
	}
}

// addPack stages a new pack of a repository.
func (b *batch) addPack(r *repoState, p *meta.PackWrite) {
	state := b.pack(p.ID)
	state.taken, state.write, state.org, state.repo = true, p, r.Org, r.ID
	r.Used += p.Bytes
	b.add(r.Org, p.Bytes, 0)
	if !p.Inline {
		b.uploads[p.Key] = false
	}
}

// relist points a repository to a set with the given packs: one new set for all
// Changes of the batch.
func (b *batch) relist(r *repoState, packs []meta.PackID) {
	set := b.sets[r.PackSet]
	if set != nil && set.fresh && len(packs) > 0 {
		set.packs = packs
		return
	}
	if set != nil {
		set.repos--
	}
	r.PackSet = 0
	if len(packs) > 0 {
		r.PackSet = meta.NewID(time.Now())
		fresh := &setState{packs: packs, repos: 1, fresh: true}
		b.sets[r.PackSet] = fresh
		if set != nil && set.repos == 0 {
			set.next, fresh.from = fresh, set
		}
	}
}

// purge stages the end of a repository.
func (b *batch) purge(r *repoState) {
	r.purged = true
	if set := b.sets[r.PackSet]; set != nil {
		set.repos--
	}
}

// empty stages the end of all that a deleted repository holds.
func (b *batch) empty(r *repoState) {
	r.emptied = true
	if set := b.sets[r.PackSet]; set != nil {
		set.repos--
	}
	r.PackSet, r.Used, r.Emptied = 0, 0, true
}

// purgeAll stages the end of an org's deleted repositories.
func (b *batch) purgeAll(ctx context.Context, ids []meta.RepoID) error {
	var stmts []stmt
	slices.Sort(ids)
	for _, id := range ids {
		r := b.repo(id)
		r.lock, r.useSet, r.dirty = true, true, true
		stmts = b.loadRepo(stmts, id)
	}
	for _, id := range ids {
		stmts = b.loadSet(stmts, id)
	}
	if err := b.tx.run(ctx, stmts); err != nil {
		return err
	}
	for _, id := range ids {
		b.purge(b.repos[id])
	}
	return nil
}
