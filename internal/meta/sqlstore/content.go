package sqlstore

import (
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

// contentState is what a Change with a ContentChange depends on. One that writes
// more than the end of an upload has a transaction of its own.
type contentState struct {
	meta.ContentVersion
	threads map[string]string // of uploads
	packs   map[meta.ContentID]*meta.ContentPack
	indexes map[meta.ContentID]*meta.ContentIndex
}

// writesContent reports whether a ContentChange changes packs or index files.
func writesContent(c *meta.ContentChange) bool {
	return len(c.AddPacks) > 0 || len(c.SetPacks) > 0 || len(c.RemovePacks) > 0 || c.AddIndex != nil
}

// soloContent reports whether others of its batch could not be decided on top of
// a ContentChange.
func soloContent(c *meta.ContentChange) bool {
	return c != nil && (writesContent(c) || c.PutUpload != nil || c.ExpireUploads || len(c.Checked) > 0)
}

// wantContent reads what a ContentChange depends on, under the lock of the org's
// content.
func (b *batch) wantContent(stmts []stmt, c *meta.Change) []stmt {
	n := c.Content
	state := b.content[c.Org]
	if state == nil {
		state = &contentState{
			threads: make(map[string]string), packs: make(map[meta.ContentID]*meta.ContentPack), indexes: make(map[meta.ContentID]*meta.ContentIndex),
		}
		b.content[c.Org] = state
		lock := b.forShare
		if soloContent(n) {
			lock = b.forUpdate
		}
		stmts = append(stmts, stmt{`SELECT version, generation FROM content_orgs WHERE org = $1` + lock, []any{c.Org},
			func(scan scanFunc) error { return scan(&state.Version, &state.Generation) }})
	}
	if u := n.PutUpload; u != nil {
		stmts = append(stmts, stmt{`SELECT id, thread FROM content_uploads WHERE org = $1 AND id = $2`, []any{c.Org, u.ID}, func(scan scanFunc) error {
			var id, thread []byte
			err := scan(&id, &thread)
			state.threads[string(id)] = string(thread)
			return err
		}})
		if l := u.AddList; l != nil && l.Key != "" {
			b.uploads[l.Key] = false
		}
	}
	for i := range n.AddPacks {
		if key := n.AddPacks[i].Key; key != "" {
			b.uploads[key] = false
		}
	}
	if x := n.AddIndex; x != nil {
		b.uploads[x.Key] = false
	}
	if x := n.AddIndex; x != nil || len(n.RemovePacks) > 0 {
		stmts = append(stmts, stmt{`SELECT bytes, objects, packs, id, dead, blob_key FROM content_indexes WHERE org = $1`, []any{c.Org},
			func(scan scanFunc) error {
				var index meta.ContentIndex
				var id, dead, key []byte
				err := scan(&index.Bytes, &index.Objects, &index.Packs, &id, &dead, &key)
				if err == nil {
					index.Key = string(key)
					if index.ID, err = contentID(id); err == nil {
						index.Dead, err = contentIDs(dead)
					}
				}
				state.indexes[index.ID] = &index
				return err
			}})
	}
	return b.loadContentPacks(stmts, c, state)
}

// loadContentPacks reads the packs that a ContentChange names.
func (b *batch) loadContentPacks(stmts []stmt, c *meta.Change, state *contentState) []stmt {
	var ids [][]byte
	for i := range c.Content.AddPacks {
		ids = append(ids, c.Content.AddPacks[i].ID[:])
	}
	for _, list := range [][]meta.ContentPackState{c.Content.SetPacks, c.Content.RemovePacks} {
		for i := range list {
			ids = append(ids, list[i].ID[:])
		}
	}
	if x := c.Content.AddIndex; x != nil {
		for i := range x.Covers {
			ids = append(ids, x.Covers[i][:])
		}
	}
	for some := range slices.Chunk(ids, maxIn) {
		marks, size := inList(2, len(some))
		stmts = append(stmts, stmt{`SELECT ` + contentPackColumns + ` FROM content_packs p WHERE p.org = $1 AND p.id IN (` + marks + `)`,
			inArgs([]any{c.Org}, some, size), func(scan scanFunc) error {
				p, err := scanContentPack(scan)
				state.packs[p.ID] = &p
				return err
			}})
	}
	return stmts
}

// contentConflict checks the preconditions of a ContentChange.
func (b *batch) contentConflict(c *meta.Change) *meta.Conflict {
	n, state := c.Content, b.content[c.Org]
	if n.Generation != nil && *n.Generation != state.Generation {
		return conflict(meta.ConflictGeneration)
	}
	if u := n.PutUpload; u != nil {
		if thread, ok := state.threads[u.ID]; ok && thread != u.Thread {
			return conflict(meta.ConflictUploadThread)
		}
		if l := u.AddList; l != nil && l.Key != "" && !b.uploads[l.Key] {
			return conflict(meta.ConflictUpload)
		}
	}
	for i := range n.AddPacks {
		p := &n.AddPacks[i]
		if state.packs[p.ID] != nil {
			return conflict(meta.ConflictID)
		}
		if p.Key != "" && !b.uploads[p.Key] {
			return conflict(meta.ConflictUpload)
		}
	}
	for _, list := range [][]meta.ContentPackState{n.SetPacks, n.RemovePacks} {
		for _, p := range list {
			if row := state.packs[p.ID]; row == nil || row.State != p.From {
				return conflict(meta.ConflictContent)
			}
		}
	}
	if x := n.AddIndex; x != nil {
		if !b.uploads[x.Key] {
			return conflict(meta.ConflictUpload)
		}
		for _, old := range x.Replaces {
			if row := state.indexes[old.ID]; row == nil || len(row.Dead) < old.Dead {
				return conflict(meta.ConflictContent)
			}
		}
		for _, id := range x.Covers {
			if row := state.packs[id]; row != nil && row.Index != (meta.ContentID{}) {
				return conflict(meta.ConflictContent)
			}
		}
	}
	return nil
}

// stageContent stages a ContentChange that has passed all checks.
func (b *batch) stageContent(c *meta.Change) {
	n := c.Content
	if n.EndUpload != "" {
		b.endUploads(c.Org, `id = $2`, n.EndUpload)
	}
	if !soloContent(n) {
		return
	}
	if n.Reservation != "" {
		b.orgs[c.Org].account.end(n.Reservation)
		b.write(exec(`DELETE FROM reservations WHERE id = $1`, n.Reservation))
	}
	generation := int64(0)
	for _, p := range n.SetPacks {
		if p.To != meta.ContentLive {
			generation = 1
		}
	}
	for _, p := range n.RemovePacks {
		if p.From == meta.ContentLive && !n.Moved {
			generation = 1
		}
	}
	if writesContent(n) {
		b.write(exec(`INSERT INTO content_orgs (org, version, generation) VALUES ($1, 1, $2) ON CONFLICT (org) DO UPDATE
			SET version = content_orgs.version + 1, generation = content_orgs.generation + excluded.generation`, c.Org, generation))
	}
	for i := range n.AddPacks {
		b.addContentPack(c.Org, &n.AddPacks[i])
	}
	for _, p := range n.SetPacks {
		apart := p.To != meta.ContentLive || b.content[c.Org].packs[p.ID].Index == (meta.ContentID{})
		b.write(exec(`UPDATE content_packs SET state = $3, changed_at = $4, apart = $5 WHERE org = $1 AND id = $2`,
			c.Org, p.ID[:], int64(p.To), b.now, apart))
	}
	b.removeContentPacks(c)
	for _, id := range n.Checked {
		b.write(exec(`UPDATE content_packs SET checked_at = $3 WHERE org = $1 AND id = $2`, c.Org, id[:], b.now))
	}
	if n.AddIndex != nil {
		b.addContentIndex(c.Org, n.AddIndex)
	}
	if n.ExpireUploads {
		b.endUploads(c.Org, `expires_at <= $2`, b.now)
	}
	if n.PutUpload != nil {
		b.putContentUpload(c.Org, n.PutUpload)
	}
}

func (b *batch) addContentPack(org meta.OrgID, p *meta.ContentPackWrite) {
	b.add(org, p.Bytes, 0)
	b.write(exec(`INSERT INTO content_packs
		(org, id, state, apart, in_index, blob_key, bytes, raw_bytes, table_at, objects, created_at, changed_at, checked_at)
		VALUES ($1, $2, 1, 1, $3, $4, $5, $6, $7, $8, $9, $9, $9)`,
		org, p.ID[:], []byte{}, p.Key, p.Bytes, p.RawBytes, p.TableAt, p.Objects, b.now))
	if p.Key == "" {
		b.write(exec(`INSERT INTO content_data (org, id, data) VALUES ($1, $2, $3)`, org, p.ID[:], notNil(p.Data)))
		return
	}
	b.write(exec(`DELETE FROM uploads WHERE blob_key = $1`, p.Key))
}

// retire stages that a key is no longer named.
func (b *batch) retire(key string) {
	if key != "" {
		b.write(exec(`INSERT INTO retired (blob_key, at) VALUES ($1, $2) ON CONFLICT (blob_key) DO NOTHING`, key, b.now))
	}
}

func (b *batch) removeContentPacks(c *meta.Change) {
	state := b.content[c.Org]
	touched := make(map[meta.ContentID]bool)
	for _, p := range c.Content.RemovePacks {
		row := state.packs[p.ID]
		b.add(c.Org, -row.Bytes, 0)
		b.write(exec(`DELETE FROM content_packs WHERE org = $1 AND id = $2`, c.Org, p.ID[:]))
		if row.Key == "" {
			b.write(exec(`DELETE FROM content_data WHERE org = $1 AND id = $2`, c.Org, p.ID[:]))
		}
		b.retire(row.Key)
		if index := state.indexes[row.Index]; index != nil {
			index.Dead = append(index.Dead, p.ID)
			touched[index.ID] = true
		}
	}
	for id := range touched {
		b.write(exec(`UPDATE content_indexes SET dead = $3 WHERE org = $1 AND id = $2`, c.Org, id[:], storedContentIDs(state.indexes[id].Dead)))
	}
}

func (b *batch) addContentIndex(org meta.OrgID, x *meta.ContentIndexWrite) {
	state := b.content[org]
	dead := slices.Clone(x.Dead)
	for _, old := range x.Replaces {
		row := state.indexes[old.ID]
		dead = append(dead, row.Dead[old.Dead:]...)
		b.write(exec(`UPDATE content_packs SET in_index = $3 WHERE org = $1 AND in_index = $2`, org, old.ID[:], x.ID[:]),
			exec(`DELETE FROM content_indexes WHERE org = $1 AND id = $2`, org, old.ID[:]))
		b.retire(row.Key)
	}
	var covers [][]byte
	for i, id := range x.Covers {
		if state.packs[id] == nil {
			dead = append(dead, id)
			continue
		}
		covers = append(covers, x.Covers[i][:])
	}
	for some := range slices.Chunk(covers, maxIn) {
		marks, size := inList(3, len(some))
		b.write(exec(`UPDATE content_packs SET in_index = $2, apart = CASE WHEN state = 1 THEN 0 ELSE 1 END
			WHERE org = $1 AND id IN (`+marks+`)`, inArgs([]any{org, x.ID[:]}, some, size)...))
	}
	b.write(
		exec(`INSERT INTO content_indexes (org, id, blob_key, bytes, objects, packs, dead) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			org, x.ID[:], x.Key, x.Bytes, x.Objects, x.Packs, storedContentIDs(dead)),
		exec(`DELETE FROM uploads WHERE blob_key = $1`, x.Key))
}

func (b *batch) putContentUpload(org meta.OrgID, u *meta.ContentUploadWrite) {
	b.write(exec(`INSERT INTO content_uploads (org, id, thread, begun_at, expires_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (org, id) DO UPDATE SET expires_at = excluded.expires_at`, org, u.ID, u.Thread, b.now, b.now+u.Lease.Microseconds()))
	for _, id := range u.Replaces {
		b.dropLists(org, `upload = $2 AND id = $3`, u.ID, id[:])
	}
	if l := u.AddList; l != nil {
		b.write(exec(`INSERT INTO content_lists (org, upload, id, blob_key, bytes, objects, data) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			org, u.ID, l.ID[:], l.Key, l.Bytes, l.Objects, notNil(l.Data)))
		if l.Key != "" {
			b.write(exec(`DELETE FROM uploads WHERE blob_key = $1`, l.Key))
		}
	}
}

// endUploads stages the end of uploads; the condition is on their rows.
func (b *batch) endUploads(org meta.OrgID, where string, arg any) {
	b.dropLists(org, `upload IN (SELECT id FROM content_uploads WHERE org = $1 AND `+where+`)`, arg)
	b.write(exec(`DELETE FROM content_uploads WHERE org = $1 AND `+where, org, arg))
}

// dropLists stages the end of lists.
func (b *batch) dropLists(org meta.OrgID, where string, args ...any) {
	args = append([]any{org}, args...)
	b.retireKeys("content_lists", where, args)
	b.write(exec(`DELETE FROM content_lists WHERE org = $1 AND `+where, args...))
}

// retireKeys stages that the keys of an org's rows are no longer named.
func (b *batch) retireKeys(table, where string, args []any) {
	now := fmt.Sprintf("$%d", len(args)+1)
	b.write(exec(`INSERT INTO retired (blob_key, at) SELECT blob_key, `+now+` FROM `+table+` WHERE org = $1 AND length(blob_key) > 0 AND `+where+`
		ON CONFLICT (blob_key) DO NOTHING`, append(slices.Clone(args), b.now)...))
}

// deleteContent stages the end of all of an org's content.
func (b *batch) deleteContent(org meta.OrgID) {
	for _, table := range [...]string{"content_packs", "content_indexes", "content_lists"} {
		b.retireKeys(table, `1 = 1`, []any{org})
	}
	for _, table := range [...]string{"content_packs", "content_data", "content_indexes", "content_lists", "content_uploads", "content_orgs"} {
		b.write(exec(`DELETE FROM `+table+` WHERE org = $1`, org))
	}
}
