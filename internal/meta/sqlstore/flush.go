package sqlstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
)

// stageOrg stages what a Change writes to its org. Only floors can be read
// again by a later Change of the batch: the others have it to themselves.
func (b *batch) stageOrg(c *meta.Change) {
	if n := c.CreateOrg; n != nil {
		b.write(exec(`INSERT INTO orgs (id, name, key_version, max_ttl, created_at) VALUES ($1, $2, $3, $4, $5)`,
			c.Org, n.Name, 1, int64(n.MaxTTL), b.now))
	}
	if c.RemoveKey != "" {
		b.write(exec(`DELETE FROM org_keys WHERE org = $1 AND fingerprint = $2`, c.Org, c.RemoveKey))
	}
	if k := c.PutKey; k != nil {
		b.write(exec(`INSERT INTO org_keys (org, fingerprint, kid, pem, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (org, fingerprint) DO UPDATE SET kid = excluded.kid, pem = excluded.pem`,
			c.Org, k.Fingerprint, k.KID, k.PEM, b.now))
	}
	if c.SetMaxTTL != nil {
		b.write(exec(`UPDATE orgs SET max_ttl = $2 WHERE id = $1`, c.Org, int64(*c.SetMaxTTL)))
	}
	if c.CreateOrg == nil && (c.RemoveKey != "" || c.PutKey != nil || c.SetMaxTTL != nil) {
		b.write(exec(`UPDATE orgs SET key_version = key_version + 1 WHERE id = $1`, c.Org))
	}
	b.stageSigningKey(c)
	for i := range c.RaiseFloors {
		b.raiseFloor(c.Org, &c.RaiseFloors[i])
	}
	b.stageWebhooks(c)
	if c.DeleteOrg {
		b.write(exec(`DELETE FROM webhook_deliveries WHERE webhook IN (SELECT id FROM webhooks WHERE org = $1)`, c.Org))
		for _, table := range [...]string{
			"org_keys", "signing_keys", "audit", "floors", "idempotency", "webhooks", "reservations", "event_floors",
			"threads", "checkpoints", "thread_segments", "large_blobs",
		} {
			b.write(exec(`DELETE FROM `+table+` WHERE org = $1`, c.Org))
		}
		b.deleteContent(c.Org)
		b.write(exec(`DELETE FROM orgs WHERE id = $1`, c.Org))
	}
	if row := c.Idempotency; row != nil && !c.DeleteOrg {
		stored := *row
		stored.At = timeOf(b.now)
		b.replays[replayKey{c.Org, row.Key}] = &stored
		b.write(exec(`INSERT INTO idempotency (org, idem_key, request, status, body, at) VALUES ($1, $2, $3, $4, $5, $6)`,
			c.Org, row.Key, row.Request[:], row.Status, notNil(row.Body), b.now))
	}
}

// stageSigningKey stages what a Change does to the keys that verify commits.
func (b *batch) stageSigningKey(c *meta.Change) {
	if c.RemoveSigningKey != "" {
		b.write(
			exec(`DELETE FROM signing_keys WHERE org = $1 AND fingerprint = $2`, c.Org, c.RemoveSigningKey),
			exec(`UPDATE orgs SET signer = $3, signer_secret = $3 WHERE id = $1 AND signer = $2`, c.Org, []byte(c.RemoveSigningKey), []byte{}))
	}
	if k := c.SetServerKey; k != nil {
		b.write(exec(`UPDATE orgs SET signer = $2, signer_secret = $3 WHERE id = $1`, c.Org, []byte(k.Fingerprint), notNil(k.Secret)))
	}
	if k := c.PutSigningKey; k != nil {
		b.write(exec(`INSERT INTO signing_keys (org, fingerprint, kind, text, title, not_before, not_after, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (org, fingerprint) DO UPDATE SET kind = excluded.kind, text = excluded.text, title = excluded.title,
			not_before = excluded.not_before, not_after = excluded.not_after`,
			c.Org, k.Fingerprint, k.Kind, k.Text, k.Title, unixMicro(k.NotBefore), unixMicro(k.NotAfter), b.now))
	}
}

// raiseFloor stages a floor, which only ever rises.
func (b *batch) raiseFloor(org meta.OrgID, f *meta.Floor) {
	k := floorKey{org, f.Kind, f.Repo, f.Target}
	if f.NotBefore <= b.floors[k] {
		return
	}
	b.floors[k] = f.NotBefore
	b.write(exec(`INSERT INTO floors (org, kind, repo, target, not_before) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (org, kind, repo, target) DO UPDATE SET not_before = excluded.not_before`,
		org, kindNumber[f.Kind], f.Repo, f.Target, f.NotBefore))
}

// stageEvents stages the events of a Change.
func (b *batch) stageEvents(c *meta.Change, version int64) {
	for i := range c.Events {
		e := &c.Events[i]
		b.write(exec(`INSERT INTO events (org, repo, version, type, body, at, place) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			c.Org, c.Repo, version, e.Type, notNil(e.Body), b.now, meta.PlaceOf(version, i)))
	}
}

// flush turns the staged states into statements, in an order of ids that all
// transactions share.
func (b *batch) flush() {
	for _, id := range slices.Sorted(maps.Keys(b.orgs)) {
		b.flushAccount(id)
	}
	for _, id := range slices.Sorted(maps.Keys(b.repos)) {
		if r := b.repos[id]; r.dirty {
			b.flushRepo(id, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.sets)) {
		b.flushSet(id, b.sets[id])
	}
	b.flushPacks()
}

func (b *batch) flushRepo(id meta.RepoID, r *repoState) {
	if r.purged || r.emptied {
		b.flushEnd(id, r)
	}
	switch {
	case r.purged:
		b.write(
			exec(`DELETE FROM event_floors WHERE org = $1 AND repo = $2`, r.Org, id),
			exec(`DELETE FROM repos WHERE id = $1`, id))
		return
	case r.emptied:
		b.write(exec(`UPDATE repos SET version = $2, pack_set = 0, used_bytes = 0, following = 0, emptied = 1 WHERE id = $1`, id, r.Version))
		return
	case r.created:
		b.write(exec(`INSERT INTO repos
			(id, org, name, default_branch, version, pack_set, tidy, source, created_at, deleted_at, used_bytes)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			id, r.Org, r.Name, r.DefaultBranch, r.Version, r.PackSet, r.Tidy, r.Source,
			unixMicro(r.CreatedAt), unixMicro(r.Deleted), r.Used))
	default:
		b.write(exec(`UPDATE repos
			SET version = $2, pack_set = $3, tidy = $4, default_branch = $5, deleted_at = $6, used_bytes = $7 WHERE id = $1`,
			id, r.Version, r.PackSet, r.Tidy, r.DefaultBranch, unixMicro(r.Deleted), r.Used))
	}
	if r.refollow {
		b.write(exec(`UPDATE repos SET following = $2 WHERE id = $1`, id, int64(r.Following)))
	}
	for _, name := range r.order {
		b.flushRef(id, name, r.refs[name])
	}
	for i := range r.log {
		e := &r.log[i]
		b.write(exec(`INSERT INTO ref_log (repo, version, name, old_id, new_id, peeled, at, subject, route, agent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			id, e.Version, e.Name, storedID(e.Old), storedID(e.New), storedID(e.Peeled), b.now, e.Subject, e.Route, e.Agent))
	}
	if r.protections != nil {
		b.write(exec(`DELETE FROM protections WHERE repo = $1`, id))
		for i, p := range *r.protections {
			b.write(exec(`INSERT INTO protections (repo, place, pattern, ops) VALUES ($1, $2, $3, $4)`,
				id, i, p.Pattern, strings.Join(p.Ops, "\n")))
		}
	}
}

// flushEnd removes the rows of a repository but its own.
func (b *batch) flushEnd(id meta.RepoID, r *repoState) {
	for _, table := range [...]string{"refs", "ref_log", "protections", "credentials", "upstreams", "syncs"} {
		b.write(exec(`DELETE FROM `+table+` WHERE repo = $1`, id))
	}
	b.write(
		exec(`DELETE FROM webhook_deliveries WHERE webhook IN (SELECT id FROM webhooks WHERE org = $1 AND repo = $2)`, r.Org, id),
		exec(`DELETE FROM webhooks WHERE org = $1 AND repo = $2`, r.Org, id),
		exec(`DELETE FROM floors WHERE org = $1 AND kind = $2 AND repo = $3`, r.Org, kindNumber[meta.FloorRef], id))
}

func (b *batch) flushRef(repo meta.RepoID, name string, ref *refState) {
	switch {
	case ref.now == ref.stored:
	case ref.now.ID.IsZero():
		b.write(exec(`DELETE FROM refs WHERE repo = $1 AND name = $2`, repo, name))
	case ref.now.CreatedVersion == ref.stored.CreatedVersion:
		b.write(exec(`UPDATE refs SET id = $3, peeled = $4, updated_at = $5 WHERE repo = $1 AND name = $2`,
			repo, name, storedID(ref.now.ID), storedID(ref.now.Peeled), b.now))
	default:
		space, _ := spaceOf(name)
		b.write(exec(`INSERT INTO refs (repo, name, id, peeled, created_at, created_version, space, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (repo, name) DO UPDATE SET id = excluded.id, peeled = excluded.peeled,
			created_at = excluded.created_at, created_version = excluded.created_version, updated_at = excluded.updated_at`,
			repo, name, storedID(ref.now.ID), storedID(ref.now.Peeled),
			unixMicro(ref.now.CreatedAt), ref.now.CreatedVersion, space, b.now))
	}
}

// flushSet stores a new set, counts the repositories of an old one, and drops a
// set that none points to.
func (b *batch) flushSet(id int64, set *setState) {
	switch {
	case set.fresh && set.repos > 0:
		b.write(exec(`INSERT INTO pack_sets (id, repos, packs) VALUES ($1, $2, $3)`,
			id, set.repos, storedPacks(set.packs)))
		n := 0
		if moved(set.from, set) {
			n = begins(set.from, set)
		}
		b.count(set.packs[n:], 1)
	case set.fresh || set.repos == set.stored:
	case set.repos <= 0:
		b.write(exec(`DELETE FROM pack_sets WHERE id = $1`, id))
		n := 0
		if moved(set, set.next) {
			n = begins(set, set.next)
		}
		b.count(set.packs[n:], -1)
	default:
		b.write(exec(`UPDATE pack_sets SET repos = $2 WHERE id = $1`, id, set.repos))
	}
}

// count notes that packs are in n more sets.
func (b *batch) count(packs []meta.PackID, n int64) {
	for _, id := range packs {
		b.pack(id).delta += n
	}
}

// flushPacks stores new packs, counts the sets of others, and retires those
// that are in no set any more.
func (b *batch) flushPacks() {
	counted := make(map[int64][]meta.PackID) // by how many sets more list them
	var left []meta.PackID
	for _, id := range slices.Sorted(maps.Keys(b.packs)) {
		p := b.packs[id]
		if p.write != nil {
			b.insertPack(p)
		} else if p.delta != 0 {
			counted[p.delta] = append(counted[p.delta], id)
		}
		if p.delta < 0 || p.write != nil && p.delta == 0 {
			left = append(left, id)
		}
	}
	for _, delta := range slices.Sorted(maps.Keys(counted)) {
		for ids := range slices.Chunk(counted[delta], maxIn) {
			marks, size := inList(2, len(ids))
			b.write(exec(`UPDATE packs SET sets = sets + $1 WHERE id IN (`+marks+`)`, inArgs([]any{delta}, ids, size)...))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.repos)) {
		b.deduct(id, b.repos[id].dropped)
	}
	for ids := range slices.Chunk(left, maxIn) {
		b.deductRetired(ids)
		marks, size := inList(1, len(ids))
		unlisted := `id IN (` + marks + `) AND sets = 0`
		args := inArgs(nil, ids, size)
		b.write(
			exec(`DELETE FROM small_packs WHERE pack IN (SELECT id FROM packs WHERE `+unlisted+`)`, args...),
			exec(`INSERT INTO retired (blob_key, at) SELECT blob_key, `+fmt.Sprintf("$%d", size+1)+` FROM packs
				WHERE `+unlisted+` AND inline = 0 ON CONFLICT (blob_key) DO NOTHING`, append(slices.Clone(args), b.now)...),
			exec(`DELETE FROM packs WHERE `+unlisted, args...))
	}
}

func (b *batch) insertPack(p *packState) {
	w, key := p.write, p.write.Key
	if w.Inline {
		key = ""
		b.write(exec(`INSERT INTO small_packs (pack, data) VALUES ($1, $2)`, w.ID, notNil(w.Data)))
	} else {
		b.write(exec(`DELETE FROM uploads WHERE blob_key = $1`, key))
	}
	b.write(exec(`INSERT INTO packs
		(id, class, inline, exact, sets, bytes, objects, created_at, org, repo, blob_key, tips, boundary)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		w.ID, int64(w.Class), w.Inline, w.Exact, p.delta, w.Bytes, w.Objects, b.now, p.org, p.repo, key,
		storedIDs(w.Tips), storedIDs(w.Boundary)))
}

// notNil keeps the difference between no bytes and NULL away from the database.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
