package sqlstore

import "github.com/cairnstate/cairn/internal/meta"

func (b *batch) loadOrg(stmts []stmt, id meta.OrgID) []stmt {
	org := b.orgs[id]
	lock := b.shareOrg
	if org.lock {
		lock = b.lockOrg
	}
	if lock != "" {
		stmts = append(stmts, exec(lock, id))
	}
	if org.counts {
		return b.loadAccount(stmts, id)
	}
	return append(stmts, stmt{`SELECT id FROM orgs WHERE id = $1`, []any{id},
		func(scan scanFunc) error { org.found = true; return nil }})
}

func (b *batch) loadKeys(org *orgState, id meta.OrgID) stmt {
	org.keys = make(map[string]string)
	return stmt{`SELECT fingerprint, kid FROM org_keys WHERE org = $1`, []any{id}, func(scan scanFunc) error {
		var fingerprint, kid []byte
		err := scan(&fingerprint, &kid)
		org.keys[string(fingerprint)] = string(kid)
		return err
	}}
}

func (b *batch) loadSigningKey(org *orgState, id meta.OrgID, fingerprint string) stmt {
	if org.signing == nil {
		org.signing = make(map[string]bool)
	}
	return stmt{`SELECT 1 FROM signing_keys WHERE org = $1 AND fingerprint = $2`, []any{id, fingerprint}, func(scan scanFunc) error {
		var one int64
		org.signing[fingerprint] = true
		return scan(&one)
	}}
}

func (b *batch) loadDeleted(org *orgState, id meta.OrgID) []stmt {
	return []stmt{
		{`SELECT id FROM repos WHERE org = $1 AND deleted_at = 0 LIMIT 1`, []any{id},
			func(scan scanFunc) error { org.live = true; return nil }},
		{`SELECT id FROM repos WHERE org = $1 AND deleted_at <> 0`, []any{id}, func(scan scanFunc) error {
			var repo int64
			err := scan(&repo)
			org.deleted = append(org.deleted, meta.RepoID(repo))
			return err
		}},
	}
}
