package sqlstore

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

// threadState is what a Change with a ThreadChange depends on. Such a Change has
// a transaction of its own.
type threadState struct {
	meta.Thread
	found bool
	seq   int64
	owner []byte
	byID  map[string]*checkpointState // those that the Change names
	left  string                      // the newest one that it does not delete
}

// checkpointState is a checkpoint as it was found.
type checkpointState struct {
	thread meta.ThreadID
	name   string // of the thread
	seq    int64
	pinned bool
}

const threadColumns = `t.id, t.org, t.name, t.head, t.checkpoints, t.bytes, t.fence, t.lease_until, t.version, t.dirty, t.known,
	t.created_at, t.updated_at`

// threadRow receives threadColumns.
type threadRow struct {
	id, org, checkpoints, bytes, fence, leaseUntil, version, dirty, known, createdAt, updatedAt int64
	name, head                                                                                  []byte
}

func (r *threadRow) dest() []any {
	return []any{
		&r.id, &r.org, &r.name, &r.head, &r.checkpoints, &r.bytes, &r.fence, &r.leaseUntil, &r.version, &r.dirty, &r.known,
		&r.createdAt, &r.updatedAt,
	}
}

func (r *threadRow) thread() meta.Thread {
	return meta.Thread{
		ID: meta.ThreadID(r.id), Org: meta.OrgID(r.org), Name: string(r.name), Head: string(r.head), Checkpoints: r.checkpoints,
		Bytes: r.bytes, Fence: r.fence, LeaseUntil: timeOf(r.leaseUntil), Version: r.version, Dirty: r.dirty != 0, Known: r.known,
		CreatedAt: timeOf(r.createdAt), UpdatedAt: timeOf(r.updatedAt),
	}
}

// sortable is a finite number as an integer that sorts alike; numberOf its
// inverse. Zero has one form.
func sortable(f float64) int64 {
	n := int64(math.Float64bits(f + 0))
	if n < 0 {
		n ^= math.MaxInt64
	}
	return n
}

func numberOf(n int64) float64 {
	if n < 0 {
		n ^= math.MaxInt64
	}
	return math.Float64frombits(uint64(n))
}

// wantThread reads what a ThreadChange depends on. The thread is locked first.
func (b *batch) wantThread(stmts []stmt, c *meta.Change) []stmt {
	p := c.Thread
	t := &threadState{byID: make(map[string]*checkpointState)}
	b.thread = t
	stmts = append(stmts, stmt{`SELECT t.seq, t.owner, ` + threadColumns + ` FROM threads t WHERE t.org = $1 AND t.name = $2` + b.forUpdate,
		[]any{c.Org, p.Name}, func(scan scanFunc) error {
			var row threadRow
			err := scan(append([]any{&t.seq, &t.owner}, row.dest()...)...)
			t.found, t.Thread = true, row.thread()
			return err
		}})
	gone := slices.Clone(p.Prune)
	for _, id := range []string{p.DeleteHead, p.Delete} {
		if id != "" {
			gone = append(gone, id)
		}
	}
	named := slices.Clone(gone)
	if p.Append != nil {
		named = append(named, p.Append.ID)
	}
	if p.ForkOf != nil {
		named = append(named, p.ForkOf.ID)
	}
	if p.SetPinned != nil {
		named = append(named, p.SetPinned.ID)
	}
	if p.ForkOf != nil && b.forShare != "" {
		stmts = append(stmts, exec(`SELECT id FROM checkpoints WHERE org = $1 AND id = $2`+b.forShare, c.Org, p.ForkOf.ID))
	}
	for ids := range slices.Chunk(named, maxIn) {
		marks, size := inList(2, len(ids))
		stmts = append(stmts, stmt{`SELECT c.id, c.thread, c.seq, c.pinned, t.name FROM checkpoints c JOIN threads t ON t.org = c.org AND t.id = c.thread
			WHERE c.org = $1 AND c.id IN (` + marks + `)`, inArgs([]any{c.Org}, ids, size), t.scanCheckpoint})
	}
	if id := p.DeleteHead + p.Delete; id != "" {
		stmts = append(stmts, stmt{`SELECT id FROM checkpoints WHERE thread = (SELECT id FROM threads WHERE org = $1 AND name = $2) AND id <> $3
			ORDER BY seq DESC LIMIT 1`, []any{c.Org, p.Name, id}, func(scan scanFunc) error {
			var id []byte
			err := scan(&id)
			t.left = string(id)
			return err
		}})
	}
	return stmts
}

func (t *threadState) scanCheckpoint(scan scanFunc) error {
	var id, name []byte
	var thread, seq, pinned int64
	err := scan(&id, &thread, &seq, &pinned, &name)
	t.byID[string(id)] = &checkpointState{meta.ThreadID(thread), string(name), seq, pinned != 0}
	return err
}

// own returns a checkpoint of the thread, nil where it is none.
func (t *threadState) own(id string) *checkpointState {
	c := t.byID[id]
	if c == nil || !t.found || c.thread != t.ID {
		return nil
	}
	return c
}

// held reports whether somebody holds the lease.
func (b *batch) held() bool {
	t := b.thread
	return len(t.owner) > 0 && unixMicro(t.LeaseUntil) > b.now
}

// holds reports whether w holds the lease.
func (b *batch) holds(w *meta.ThreadWriter) bool {
	return b.held() && w != nil && w.Fence == b.thread.Fence && string(w.Owner) == string(b.thread.owner)
}

// threadConflict checks the preconditions of a ThreadChange in their order.
func (b *batch) threadConflict(c *meta.Change) *meta.Conflict {
	p, t := c.Thread, b.thread
	if f := p.ForkOf; f != nil {
		source := t.byID[f.ID]
		switch {
		case source == nil:
			return conflict(meta.ConflictForkSource)
		case f.Thread != "" && source.name != f.Thread:
			return conflict(meta.ConflictForkThread)
		}
	}
	switch {
	case p.Writer != nil && !p.Release && !b.holds(p.Writer):
		return conflict(meta.ConflictWriterLost)
	case p.Unheld && b.held(), p.Acquire != nil && b.held() && string(p.Acquire.Owner) != string(t.owner):
		return conflict(meta.ConflictWriterHeld)
	}
	if n := p.Append; n != nil {
		if kind := t.appendConflict(p); kind == meta.ConflictHead {
			return &meta.Conflict{Kind: kind, Other: t.Head}
		} else if kind != "" {
			return conflict(kind)
		}
	}
	if kind := t.deleteConflict(p); kind != "" {
		return conflict(kind)
	}
	if a := &b.orgs[c.Org].account; p.Append != nil && a.metered && a.ThreadBytes > 0 && t.Bytes+p.Append.Added > a.ThreadBytes {
		return &meta.Conflict{Kind: meta.ConflictQuota, Quota: &meta.QuotaConflict{
			OfThread: true, Limit: a.ThreadBytes, Used: t.Bytes, Needed: p.Append.Added,
		}}
	}
	if s := p.Segments; s != nil && s.AtVersion != t.Version {
		return conflict(meta.ConflictThreadMoved)
	}
	return nil
}

func (t *threadState) appendConflict(p *meta.ThreadChange) meta.ConflictKind {
	taken := t.byID[p.Append.ID] != nil
	switch {
	case p.ForkOf != nil && (taken || t.Checkpoints > 0):
		return meta.ConflictForkTarget
	case taken:
		return meta.ConflictCheckpointID
	case p.AnyHead:
		return ""
	case t.Head != p.Expected:
		return meta.ConflictHead
	case p.Append.Parent != p.Expected:
		return meta.ConflictParent
	}
	return ""
}

func (t *threadState) deleteConflict(p *meta.ThreadChange) meta.ConflictKind {
	if id := p.DeleteHead; id != "" {
		if c := t.own(id); c == nil || t.Head != id {
			return meta.ConflictNotHead
		} else if c.pinned {
			return meta.ConflictPinned
		}
	}
	if id := p.Delete; id != "" {
		if c := t.own(id); c == nil {
			return meta.ConflictNoCheckpoint
		} else if c.pinned {
			return meta.ConflictPinned
		}
	}
	if p.DeleteThread && t.Checkpoints == 0 {
		return meta.ConflictNoThread
	}
	if p.SetPinned != nil && t.own(p.SetPinned.ID) == nil {
		return meta.ConflictNoCheckpoint
	}
	return ""
}

// stageThread stages a ThreadChange that has passed all checks.
func (b *batch) stageThread(c *meta.Change) *meta.ThreadVerdict {
	p, t := c.Thread, b.thread
	created := !t.found
	if created {
		now := timeOf(b.now)
		t.Thread = meta.Thread{ID: meta.ThreadID(meta.NewID(now)), Org: c.Org, Name: p.Name, CreatedAt: now, UpdatedAt: now}
		t.owner = []byte{}
	}
	v := new(meta.ThreadVerdict)
	b.stageLease(p)
	b.stageDeletions(c, v)
	b.stageSegments(c)
	if n := p.Append; n != nil {
		t.seq++
		v.Seq, v.Parent = t.seq, n.Parent
		if p.AnyHead {
			v.Parent = t.Head
		}
		b.write(exec(`INSERT INTO checkpoints (org, id, thread, seq, parent, created, label, pinned, added, manifest, body, written_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, c.Org, n.ID, t.ID, t.seq, v.Parent, sortable(n.Created), n.Label,
			n.Pinned, n.Added, n.Manifest, notNil(n.Body), b.now))
		t.Head = n.ID
		t.Checkpoints++
		t.Bytes += n.Added
		t.Version++
		t.UpdatedAt = timeOf(b.now)
		if p.ForkOf != nil {
			t.Known = -1
		}
	}
	if n := p.SetPinned; n != nil {
		b.write(exec(`UPDATE checkpoints SET pinned = $3 WHERE org = $1 AND id = $2`, c.Org, n.ID, n.Pinned))
		t.Version++
	}
	b.flushThread(c.Org, created)
	v.Thread = t.Thread
	return v
}

// stageLease stages what becomes of the lease.
func (b *batch) stageLease(p *meta.ThreadChange) {
	t := b.thread
	switch {
	case p.Acquire != nil:
		if !b.held() {
			t.Fence++
		}
		t.owner, t.LeaseUntil = p.Acquire.Owner, timeOf(b.now+p.Acquire.Duration.Microseconds())
	case p.Release && b.holds(p.Writer):
		t.owner, t.LeaseUntil = []byte{}, timeOf(0)
	case p.Renew > 0:
		t.LeaseUntil = timeOf(b.now + p.Renew.Microseconds())
	case p.Unheld && p.Append != nil:
		t.Fence++
		t.owner, t.LeaseUntil = []byte{}, timeOf(0)
	}
}

// stageDeletions stages the end of checkpoints.
func (b *batch) stageDeletions(c *meta.Change, v *meta.ThreadVerdict) {
	p, t := c.Thread, b.thread
	if p.DeleteThread {
		v.DeletedCount = t.Checkpoints
		b.write(exec(`DELETE FROM checkpoints WHERE thread = $1`, t.ID), exec(`DELETE FROM thread_segments WHERE thread = $1`, t.ID))
		t.Head, t.Checkpoints, t.Bytes, t.Dirty, t.Known = "", 0, 0, false, 0
		t.Version++
		return
	}
	if id := p.DeleteHead + p.Delete; id != "" {
		v.Deleted = append(v.Deleted, id)
		if t.Head == id {
			t.Head = t.left
		}
	}
	for _, id := range p.Prune {
		if c := t.own(id); c != nil && !c.pinned && t.Head != id && !slices.Contains(v.Deleted, id) {
			v.Deleted = append(v.Deleted, id)
		}
	}
	if len(v.Deleted) == 0 {
		return
	}
	slices.SortFunc(v.Deleted, func(x, y string) int { return int(t.byID[x].seq - t.byID[y].seq) })
	for ids := range slices.Chunk(v.Deleted, maxIn) {
		marks, size := inList(2, len(ids))
		b.write(exec(`DELETE FROM checkpoints WHERE org = $1 AND id IN (`+marks+`)`, inArgs([]any{c.Org}, ids, size)...))
	}
	v.DeletedCount = int64(len(v.Deleted))
	t.Checkpoints -= v.DeletedCount
	t.Dirty = true
	t.Version++
	t.UpdatedAt = timeOf(b.now)
}

// stageSegments stages what the thread knows.
func (b *batch) stageSegments(c *meta.Change) {
	s, t := c.Thread.Segments, b.thread
	if s == nil {
		return
	}
	if s.Anew {
		b.write(exec(`DELETE FROM thread_segments WHERE thread = $1`, t.ID))
		t.Dirty, t.Known, t.Bytes = false, s.Known, s.Bytes
	}
	for _, id := range s.Remove {
		b.write(exec(`DELETE FROM thread_segments WHERE thread = $1 AND id = $2`, t.ID, id))
	}
	for i := range s.Add {
		n := &s.Add[i]
		b.write(exec(`INSERT INTO thread_segments (thread, id, org, entries, data, ref) VALUES ($1, $2, $3, $4, $5, $6)`,
			t.ID, n.ID, c.Org, n.Keys, notNil(n.Data), notNil(n.Ref)))
	}
	t.Version++
}

// flushThread stores the row of the thread. One without checkpoints stays when it
// had a lease.
func (b *batch) flushThread(org meta.OrgID, created bool) {
	t := b.thread
	args := []any{
		org, t.Name, t.ID, t.Head, t.Checkpoints, t.seq, t.Bytes, t.Fence, notNil(t.owner), unixMicro(t.LeaseUntil), t.Version, t.Dirty, t.Known,
		unixMicro(t.CreatedAt), unixMicro(t.UpdatedAt),
	}
	switch {
	case t.Checkpoints == 0 && t.Fence == 0 && !created:
		b.write(exec(`DELETE FROM threads WHERE org = $1 AND name = $2`, org, t.Name))
	case t.Checkpoints == 0 && t.Fence == 0:
	case created:
		b.write(exec(`INSERT INTO threads (org, name, id, head, checkpoints, seq, bytes, fence, owner, lease_until, version, dirty, known,
			created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`, args...))
	default:
		b.write(exec(`UPDATE threads SET id = $3, head = $4, checkpoints = $5, seq = $6, bytes = $7, fence = $8, owner = $9, lease_until = $10,
			version = $11, dirty = $12, known = $13, created_at = $14, updated_at = $15 WHERE org = $1 AND name = $2`, args...))
	}
}

// checkThread refuses a ThreadChange that means nothing.
func checkThread(c *meta.Change) error {
	p := c.Thread
	switch {
	case c.Repo != 0:
		return errors.New("a change of a thread cannot be one of a repository")
	case p.Name == "" || len(p.Name) > meta.MaxName:
		return fmt.Errorf("thread %q: the name must have 1 to %d bytes", p.Name, meta.MaxName)
	case p.Renew != 0 && (p.Writer == nil || p.Renew < 0), p.Release && p.Writer == nil,
		p.Acquire != nil && (len(p.Acquire.Owner) == 0 || p.Acquire.Duration <= 0):
		return errors.New("a lease needs its owner and a duration")
	case p.ForkOf != nil && p.Append == nil:
		return errors.New("a fork appends")
	case p.DeleteHead != "" && p.Delete != "", p.Append != nil && (p.DeleteHead+p.Delete != "" || p.DeleteThread || len(p.Prune) > 0):
		return errors.New("one change appends to a thread or deletes, and deletes one checkpoint or prunes")
	}
	if n := p.Append; n != nil && (n.ID == "" || len(n.ID) > meta.MaxName || len(n.Label) > meta.MaxLabel ||
		math.IsNaN(n.Created) || math.IsInf(n.Created, 0)) {
		return fmt.Errorf("checkpoint %q: its id, label or time cannot be stored", n.ID)
	}
	return nil
}
