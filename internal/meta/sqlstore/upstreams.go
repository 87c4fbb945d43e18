package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

const credentialColumns = `c.id, c.org, c.repo, c.created_at, c.updated_at, c.username, c.secret`

func scanCredential(scan scanFunc) (meta.Credential, error) {
	var id, org, repo, created, updated int64
	var username, secret []byte
	err := scan(&id, &org, &repo, &created, &updated, &username, &secret)
	return meta.Credential{
		ID: meta.CredentialID(id), Org: meta.OrgID(org), Repo: meta.RepoID(repo), Username: string(username), Secret: secret,
		CreatedAt: timeOf(created), UpdatedAt: timeOf(updated),
	}, err
}

// Credential implements meta.Store.
func (s *Store) Credential(ctx context.Context, org meta.OrgID, id meta.CredentialID) (c meta.Credential, err error) {
	const text = `SELECT ` + credentialColumns + ` FROM credentials c JOIN repos r ON r.id = c.repo AND r.deleted_at = 0
		WHERE c.id = $1 AND c.org = $2`
	err = s.one(ctx, text, []any{id, org}, func(scan scanFunc) (err error) {
		c, err = scanCredential(scan)
		return err
	})
	return c, err
}

// RepoCredential implements meta.Store.
func (s *Store) RepoCredential(ctx context.Context, repo meta.RepoID) (c meta.Credential, err error) {
	err = s.one(ctx, `SELECT `+credentialColumns+` FROM credentials c WHERE c.repo = $1`, []any{repo}, func(scan scanFunc) (err error) {
		c, err = scanCredential(scan)
		return err
	})
	return c, err
}

// Credentials implements meta.Store.
func (s *Store) Credentials(ctx context.Context, after meta.CredentialID, limit int) ([]meta.Credential, error) {
	var list []meta.Credential
	const text = `SELECT ` + credentialColumns + ` FROM credentials c WHERE c.id > $1 ORDER BY c.id LIMIT $2`
	err := s.query(ctx, text, []any{after, limit}, func(scan scanFunc) error {
		c, err := scanCredential(scan)
		list = append(list, c)
		return err
	})
	return list, err
}

const upstreamColumns = `u.repo, u.public, u.runs, u.synced_at, u.provider, u.host, u.owner, u.name, u.default_branch, u.head, u.last_error`

func scanUpstream(scan scanFunc, more ...any) (meta.Upstream, error) {
	var repo, public, runs, synced int64
	var provider, host, owner, name, branch, head, last []byte
	err := scan(append([]any{&repo, &public, &runs, &synced, &provider, &host, &owner, &name, &branch, &head, &last}, more...)...)
	return meta.Upstream{
		Repo: meta.RepoID(repo), Provider: string(provider), Host: string(host), Owner: string(owner), Name: string(name),
		Public: public != 0, DefaultBranch: string(branch), Head: string(head), Runs: runs, SyncedAt: timeOf(synced), LastError: string(last),
	}, err
}

// Upstream implements meta.Store.
func (s *Store) Upstream(ctx context.Context, repo meta.RepoID) (u meta.Upstream, err error) {
	var seen []byte
	err = s.one(ctx, `SELECT `+upstreamColumns+`, u.seen FROM upstreams u WHERE u.repo = $1`, []any{repo}, func(scan scanFunc) (err error) {
		u, err = scanUpstream(scan, &seen)
		u.Seen = seen
		return err
	})
	return u, err
}

// Upstreams implements meta.Store.
func (s *Store) Upstreams(ctx context.Context, repos []meta.RepoID) ([]meta.Upstream, error) {
	var list []meta.Upstream
	for ids := range slices.Chunk(slices.Sorted(slices.Values(repos)), maxIn) {
		marks, size := inList(1, len(ids))
		text := `SELECT ` + upstreamColumns + ` FROM upstreams u WHERE u.repo IN (` + marks + `) ORDER BY u.repo`
		err := s.query(ctx, text, inArgs(nil, ids, size), func(scan scanFunc) error {
			u, err := scanUpstream(scan)
			list = append(list, u)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

const syncColumns = `s.id, s.org, s.repo, s.attempts, s.issued_at, s.created_at, s.due, s.lease_until, s.writer, s.owner`

func scanSync(scan scanFunc) (meta.Sync, error) {
	var id, org, repo, attempts, issued, created, due, until int64
	var writer, owner []byte
	err := scan(&id, &org, &repo, &attempts, &issued, &created, &due, &until, &writer, &owner)
	return meta.Sync{
		ID: meta.SyncID(id), Org: meta.OrgID(org), Repo: meta.RepoID(repo), Writer: writer, IssuedAt: issued, Attempts: int(attempts),
		CreatedAt: timeOf(created), Due: timeOf(due), Owner: string(owner), Until: timeOf(until),
	}, err
}

// SyncsDue implements meta.Store.
func (s *Store) SyncsDue(ctx context.Context, limit int) ([]meta.Sync, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	const text = `SELECT ` + syncColumns + ` FROM syncs s JOIN repos r ON r.id = s.repo AND r.deleted_at = 0
		WHERE s.due <= $1
		AND NOT EXISTS (SELECT 1 FROM syncs h WHERE h.repo = s.repo AND h.lease_until > $1)
		AND NOT EXISTS (SELECT 1 FROM syncs e WHERE e.repo = s.repo AND e.due <= $1 AND e.id < s.id)
		ORDER BY s.due, s.id LIMIT $2`
	var list []meta.Sync
	err = s.query(ctx, text, []any{now, limit}, func(scan scanFunc) error {
		sync, err := scanSync(scan)
		list = append(list, sync)
		return err
	})
	return list, err
}

// RenewSync implements meta.Store.
func (s *Store) RenewSync(ctx context.Context, id meta.SyncID, owner string, lease time.Duration) error {
	found := false
	err := s.write(ctx, func(now int64) []stmt {
		found = false
		renew := exec(`UPDATE syncs SET lease_until = $3 WHERE id = $1 AND owner = $2 RETURNING id`, id, owner, now+lease.Microseconds())
		renew.row = func(scan scanFunc) error {
			found = true
			var id int64
			return scan(&id)
		}
		return []stmt{renew}
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return err
}
