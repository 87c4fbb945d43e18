package sqlstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
)

// batch is what the Changes of one transaction are decided on: the rows that
// they depend on, as the applied ones before leave them.
type batch struct {
	dialect
	tx  txn
	now int64

	orgs    map[meta.OrgID]*orgState
	repos   map[meta.RepoID]*repoState
	names   map[repoName]*nameState
	sets    map[int64]*setState
	packs   map[meta.PackID]*packState
	floors  map[floorKey]int64
	covered map[covered]bool
	replays map[replayKey]*meta.Idempotency
	uploads map[string]bool // by key: nobody has published or retired it
	follow  *followState    // of the one Change, if it has such a part
	thread  *threadState    // likewise
	content map[meta.OrgID]*contentState

	out []stmt // what will be written, besides the states above
}

// orgState is an org as the batch has found it.
type orgState struct {
	found     bool
	nameTaken bool              // CreateOrg: by another org
	keys      map[string]string // PutKey, RemoveKey: kid by fingerprint
	signing   map[string]bool   // RemoveSigningKey: whether the fingerprint is there
	live      bool              // DeleteOrg: it has a repository that is not deleted
	deleted   []meta.RepoID     // DeleteOrg: its deleted repositories
	lock      bool              // a Change of the batch writes the org
	counts    bool              // the account is needed
	account   account
}

// repoName names a repository of an org.
type repoName struct {
	org  meta.OrgID
	name string
}

// nameState is who has a repository name; 0 when it is free.
type nameState struct {
	id      meta.RepoID
	deleted bool
}

// repoState is a repository as the batch leaves it.
type repoState struct {
	meta.Repo
	found   bool
	created bool
	dirty   bool
	lock    bool // a Change of the batch writes it
	blank   bool // a Change of the batch makes it: there is nothing to load
	useSet  bool // its pack set is needed

	refs    map[string]*refState
	order   []string            // names of refs in the order they were asked for
	below   map[string][]string // refs found under a name that is to be created
	deletes int
	dirs    map[string][]string // names created by the batch, by directory

	log         []meta.RefLogEntry
	protections *[]meta.Protection
	purged      bool          // nothing stays, or
	emptied     bool          // the row alone
	dropped     []meta.PackID // that it lists no more
	refollow    bool          // Following is to be written
}

// refState is a ref as it was stored and as the batch leaves it; a zero ID says
// that it does not exist.
type refState struct {
	stored, now meta.Ref
}

// setState is a pack set; its list never changes.
type setState struct {
	packs         []meta.PackID
	stored, repos int64
	fresh         bool // made by the batch; the repository's list is its list
	// from is the stored set whose last repository went over to this fresh one,
	// and next the way back.
	from, next *setState
}

// moved reports whether a fresh set takes the place of a stored one, so that for
// the packs that begin both nothing changes.
func moved(from, to *setState) bool {
	return from != nil && to != nil && !from.fresh && from.repos <= 0 && to.repos > 0
}

// begins returns how many packs two sets begin with in common.
func begins(a, b *setState) int {
	n := 0
	for n < min(len(a.packs), len(b.packs)) && a.packs[n] == b.packs[n] {
		n++
	}
	return n
}

// packState says how the batch changes a pack.
type packState struct {
	taken bool
	write *meta.PackWrite // made by the batch
	org   meta.OrgID      // whose it is
	repo  meta.RepoID     // whose Change made it
	delta int64           // in the number of sets that list it
}

type floorKey struct {
	org    meta.OrgID
	kind   meta.FloorKind
	repo   meta.RepoID
	target string
}

// covered is what the floors of a token were read for.
type covered struct {
	org                   meta.OrgID
	repo                  meta.RepoID
	name, thread, subject string
}

type replayKey struct {
	org meta.OrgID
	key string
}

func newBatch(d dialect, tx txn) *batch {
	return &batch{
		dialect: d, tx: tx,
		orgs:    make(map[meta.OrgID]*orgState),
		repos:   make(map[meta.RepoID]*repoState),
		names:   make(map[repoName]*nameState),
		sets:    make(map[int64]*setState),
		packs:   make(map[meta.PackID]*packState),
		floors:  make(map[floorKey]int64),
		covered: make(map[covered]bool),
		replays: make(map[replayKey]*meta.Idempotency),
		uploads: make(map[string]bool),
		content: make(map[meta.OrgID]*contentState),
	}
}

// write adds statements to what the transaction writes.
func (b *batch) write(stmts ...stmt) { b.out = append(b.out, stmts...) }

// load reads all rows that the jobs depend on and locks those they write: orgs
// first, then repositories by id, then sets.
func (b *batch) load(ctx context.Context, jobs []*job) error {
	var rows []stmt
	for _, j := range jobs {
		if j.change != nil {
			rows = b.want(rows, j.change)
		}
	}
	var stmts []stmt
	for _, id := range slices.Sorted(maps.Keys(b.orgs)) {
		stmts = b.loadOrg(stmts, id)
	}
	ids := slices.Sorted(maps.Keys(b.repos))
	for _, id := range ids {
		stmts = b.loadRepo(stmts, id)
	}
	for _, id := range ids {
		if r := b.repos[id]; !r.blank {
			stmts = b.loadSet(stmts, id)
			stmts = b.loadRefs(stmts, id)
		}
	}
	stmts = append(stmts, rows...)
	stmts = b.loadPacks(stmts)
	stmts = b.loadUploads(stmts)
	stmts = append(stmts, b.clockStmt()...)
	if err := b.tx.run(ctx, stmts); err != nil {
		return err
	}
	return b.tx.run(ctx, b.loadCollided(ids))
}

// loadCollided reads the rest of repositories that were to be made and whose id
// turned out to be taken: other Changes of the batch may mean the older one.
func (b *batch) loadCollided(ids []meta.RepoID) []stmt {
	var stmts []stmt
	for _, id := range ids {
		if r := b.repos[id]; r.blank && r.found {
			stmts = b.loadSet(stmts, id)
			stmts = b.loadRefs(stmts, id)
		}
	}
	return stmts
}

// clockStmt reads the time after all locks are held.
func (b *batch) clockStmt() []stmt {
	if b.dialect.now != nil {
		b.now = b.dialect.now().UnixMicro()
		return nil
	}
	return []stmt{{text: b.clock, row: func(scan scanFunc) error { return scan(&b.now) }}}
}

// want notes what a Change depends on and returns the statements that no other
// Change of the batch shares.
func (b *batch) want(stmts []stmt, c *meta.Change) []stmt {
	org := b.orgs[c.Org]
	if org == nil {
		org = new(orgState)
		b.orgs[c.Org] = org
	}
	org.lock = org.lock || len(c.RaiseFloors) > 0 || c.CreateOrg != nil || c.DeleteOrg || c.PutKey != nil ||
		c.RemoveKey != "" || c.SetMaxTTL != nil || c.PutSigningKey != nil || c.RemoveSigningKey != "" || c.SetServerKey != nil ||
		c.SetQuota != nil || c.SetRepoQuota != nil || c.SetEphemeralAge != nil
	org.counts = org.counts || counts(c)
	if c.CreateOrg != nil {
		stmts = append(stmts, stmt{`SELECT id FROM orgs WHERE name = $1`, []any{c.CreateOrg.Name},
			func(scan scanFunc) error { org.nameTaken = true; return nil }})
	}
	if c.PutKey != nil || c.RemoveKey != "" {
		stmts = append(stmts, b.loadKeys(org, c.Org))
	}
	if c.RemoveSigningKey != "" {
		stmts = append(stmts, b.loadSigningKey(org, c.Org, c.RemoveSigningKey))
	}
	if c.DeleteOrg {
		stmts = append(stmts, b.loadDeleted(org, c.Org)...)
	}
	if i := c.Idempotency; i != nil {
		stmts = append(stmts, b.loadReplay(replayKey{c.Org, i.Key}))
	}
	if c.Repo != 0 {
		stmts = b.wantRepo(stmts, c)
	}
	if c.Reserve != nil && c.Reserve.Repo != 0 {
		b.repo(c.Reserve.Repo).lock = true
	}
	if c.Follow != nil {
		stmts = b.wantFollow(stmts, c)
	}
	if c.Thread != nil {
		stmts = b.wantThread(stmts, c)
	}
	if c.Content != nil {
		stmts = b.wantContent(stmts, c)
	}
	if c.Token != nil {
		stmts = b.loadFloors(stmts, c)
	}
	for i := range c.RaiseFloors {
		f := &c.RaiseFloors[i]
		stmts = b.loadFloor(stmts, floorKey{c.Org, f.Kind, f.Repo, f.Target})
	}
	if c.AddPack != nil {
		b.wantPack(c.AddPack)
	}
	if c.ReplacePacks != nil {
		for i := range c.ReplacePacks.Add {
			b.wantPack(&c.ReplacePacks.Add[i])
		}
	}
	return stmts
}

// repo returns the state of a repository, noting that it is wanted.
func (b *batch) repo(id meta.RepoID) *repoState {
	r := b.repos[id]
	if r == nil {
		r = &repoState{
			refs: make(map[string]*refState), below: make(map[string][]string), dirs: make(map[string][]string),
		}
		b.repos[id] = r
	}
	return r
}

// pack returns the state of a pack, noting that it is wanted.
func (b *batch) pack(id meta.PackID) *packState {
	p := b.packs[id]
	if p == nil {
		p = new(packState)
		b.packs[id] = p
	}
	return p
}

// wantRepo notes what a Change of a repository depends on.
func (b *batch) wantRepo(stmts []stmt, c *meta.Change) []stmt {
	r := b.repos[c.Repo]
	if r == nil {
		r = b.repo(c.Repo)
		r.blank = c.CreateRepo != nil
	}
	r.lock = true
	r.useSet = r.useSet || c.AddPack != nil || c.ReplacePacks != nil || c.PurgeRepo || !c.EmptyRepo.IsZero()
	if n := c.CreateRepo; n != nil {
		stmts = append(stmts, b.loadName(repoName{c.Org, n.Name}))
		if n.Source != 0 {
			b.repo(n.Source).useSet = true
		}
	}
	for i := range c.Refs {
		w := &c.Refs[i]
		r.wantRef(w.Name)
		if w.VerifyOnly || w.New.IsZero() {
			if !w.VerifyOnly {
				r.deletes++
			}
			continue
		}
		if !w.Old.IsZero() && !w.AnyOld {
			continue
		}
		for dir := range parents(w.Name) {
			r.wantRef(dir)
		}
		r.below[w.Name] = nil
	}
	return stmts
}

// wantRef notes that a ref's value is needed.
func (r *repoState) wantRef(name string) {
	if r.refs[name] == nil {
		r.refs[name] = new(refState)
		r.order = append(r.order, name)
	}
}

// parents yields the directories that a ref name lies in.
func parents(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			if !yield(name[:i]) {
				return
			}
		}
	}
}

func (b *batch) loadReplay(k replayKey) stmt {
	return stmt{selectIdempotency, []any{k.org, k.key}, func(scan scanFunc) error {
		row, err := scanIdempotency(k.key, scan)
		b.replays[k] = &row
		return err
	}}
}

func (b *batch) loadName(k repoName) stmt {
	return stmt{`SELECT id, deleted_at FROM repos WHERE org = $1 AND name = $2`, []any{k.org, k.name},
		func(scan scanFunc) error {
			var id, deleted int64
			err := scan(&id, &deleted)
			b.names[k] = &nameState{meta.RepoID(id), deleted != 0}
			return err
		}}
}

func (b *batch) loadRepo(stmts []stmt, id meta.RepoID) []stmt {
	r := b.repos[id]
	lock := b.forShare
	if r.lock {
		lock = b.forUpdate
	}
	return append(stmts, stmt{`SELECT ` + repoColumns + ` FROM repos r WHERE r.id = $1` + lock, []any{id},
		func(scan scanFunc) error {
			var err error
			r.found = true
			r.Repo, err = scanRepo(scan)
			return err
		}})
}

// loadSet reads the pack set that a repository points to.
func (b *batch) loadSet(stmts []stmt, id meta.RepoID) []stmt {
	if !b.repos[id].useSet {
		return stmts
	}
	return append(stmts, stmt{
		`SELECT id, repos, packs FROM pack_sets WHERE id = (SELECT pack_set FROM repos WHERE id = $1)` + b.forUpdate,
		[]any{id}, func(scan scanFunc) error {
			var set, repos int64
			var packs []byte
			if err := scan(&set, &repos, &packs); err != nil {
				return err
			}
			ids, err := packsOf(packs)
			b.sets[set] = &setState{packs: ids, stored: repos, repos: repos}
			return err
		}})
}

// loadRefs reads the refs that the batch names and, for each that may be
// created, some that lie below it: more than the batch can delete.
func (b *batch) loadRefs(stmts []stmt, id meta.RepoID) []stmt {
	r := b.repos[id]
	for names := range slices.Chunk(r.order, maxIn) {
		marks, size := inList(2, len(names))
		stmts = append(stmts, stmt{
			`SELECT ` + refColumns + ` FROM refs f WHERE f.repo = $1 AND f.name IN (` + marks + `)`,
			inArgs([]any{id}, names, size), func(scan scanFunc) error {
				ref, err := scanRef(scan)
				if err == nil {
					*r.refs[ref.Name] = refState{stored: ref, now: ref}
				}
				return err
			}})
	}
	for name := range r.below {
		stmts = append(stmts, stmt{
			`SELECT name FROM refs WHERE repo = $1 AND name > $2 AND name < $3 ORDER BY name LIMIT $4`,
			[]any{id, name + "/", name + "0", r.deletes + 1}, func(scan scanFunc) error {
				var below []byte
				err := scan(&below)
				r.below[name] = append(r.below[name], string(below))
				return err
			}})
	}
	return stmts
}

// selectFloors reads the floors on an org, a repository by its id or name, a
// thread and a subject.
const selectFloors = `
SELECT kind, repo, target, not_before FROM floors WHERE org = $1 AND kind = 1 AND repo = 0 AND target = $6
UNION ALL SELECT kind, repo, target, not_before FROM floors WHERE org = $1 AND kind = 2 AND repo = 0
  AND target IN ($2, (SELECT name FROM repos WHERE id = $3))
UNION ALL SELECT kind, repo, target, not_before FROM floors WHERE org = $1 AND kind = 4 AND repo = 0 AND target = $4
UNION ALL SELECT kind, repo, target, not_before FROM floors WHERE org = $1 AND kind = 5 AND repo = 0 AND target = $5`

// loadFloors reads the floors that may cover the token of a Change.
func (b *batch) loadFloors(stmts []stmt, c *meta.Change) []stmt {
	name := ""
	if c.CreateRepo != nil {
		name = c.CreateRepo.Name
	}
	// Writers often have a token, and so floors, in common.
	if k := (covered{c.Org, c.Repo, name, c.Token.Thread, c.Token.Subject}); !b.covered[k] {
		b.covered[k] = true
		stmts = append(stmts, stmt{selectFloors, []any{c.Org, name, c.Repo, c.Token.Thread, c.Token.Subject, ""},
			func(scan scanFunc) error { return b.scanFloor(c.Org, scan) }})
	}
	for i := range c.Refs {
		stmts = b.loadFloor(stmts, floorKey{c.Org, meta.FloorRef, c.Repo, c.Refs[i].Name})
	}
	if c.Thread != nil {
		stmts = b.loadFloor(stmts, floorKey{c.Org, meta.FloorThread, 0, c.Thread.Name})
	}
	return stmts
}

func (b *batch) loadFloor(stmts []stmt, k floorKey) []stmt {
	if _, asked := b.floors[k]; asked {
		return stmts
	}
	b.floors[k] = 0
	return append(stmts, stmt{
		`SELECT kind, repo, target, not_before FROM floors WHERE org = $1 AND kind = $2 AND repo = $3 AND target = $4`,
		[]any{k.org, kindNumber[k.kind], k.repo, k.target},
		func(scan scanFunc) error { return b.scanFloor(k.org, scan) }})
}

func (b *batch) scanFloor(org meta.OrgID, scan scanFunc) error {
	f, err := scanFloor(scan)
	b.floors[floorKey{org, f.Kind, f.Repo, f.Target}] = f.NotBefore
	return err
}
