package sqlstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

const orgColumns = `o.id, o.key_version, o.max_ttl, o.created_at, o.metered, o.max_bytes, o.max_repo_bytes, o.max_repos, o.max_thread_bytes, o.ephemeral_age, o.name, o.signer`

// orgRow receives orgColumns.
type orgRow struct {
	id, keyVersion, maxTTL, createdAt                                       int64
	metered, maxBytes, maxRepoBytes, maxRepos, maxThreadBytes, ephemeralAge int64
	name, signer                                                            []byte
}

func (r *orgRow) dest() []any {
	return []any{
		&r.id, &r.keyVersion, &r.maxTTL, &r.createdAt, &r.metered, &r.maxBytes, &r.maxRepoBytes, &r.maxRepos, &r.maxThreadBytes, &r.ephemeralAge, &r.name, &r.signer,
	}
}

func (r *orgRow) org() meta.Org {
	return meta.Org{
		ID: meta.OrgID(r.id), Name: string(r.name), KeyVersion: r.keyVersion,
		MaxTTL: time.Duration(r.maxTTL), CreatedAt: timeOf(r.createdAt), Metered: r.metered != 0, EphemeralAge: ageOf(r.ephemeralAge),
		Signer: string(r.signer),
		Quota:  meta.OrgQuota{Bytes: r.maxBytes, RepoBytes: r.maxRepoBytes, Repos: r.maxRepos, ThreadBytes: r.maxThreadBytes},
	}
}

// gateFloor reads one floor of the org in the outer query.
const gateFloor = `coalesce((SELECT f.not_before FROM floors f
	WHERE f.org = o.id AND f.kind = %d AND f.repo = 0 AND f.target = %s), 0)`

// selectGate reads all that a request needs first in one statement.
var selectGate = `SELECT ` + orgColumns + `,
	` + fmt.Sprintf(gateFloor, 1, "$5") + `,
	` + fmt.Sprintf(gateFloor, 2, "$2") + `,
	` + fmt.Sprintf(gateFloor, 4, "$3") + `,
	` + fmt.Sprintf(gateFloor, 5, "$4") + `,
	` + repoColumnsOrNone + `
	FROM orgs o LEFT JOIN repos r ON r.org = o.id AND r.name = $2 WHERE o.name = $1`

// Gate implements meta.Store.
func (s *Store) Gate(ctx context.Context, q meta.GateQuery) (meta.Gate, error) {
	var gate meta.Gate
	args := []any{q.Org, q.Repo, q.Thread, q.Subject, ""}
	err := s.one(ctx, selectGate, args, func(scan scanFunc) error {
		var org orgRow
		var repo repoRow
		var onOrg, onRepo, onThread, onSubject int64
		dest := append(org.dest(), &onOrg, &onRepo, &onThread, &onSubject)
		if err := scan(append(dest, repo.dest()...)...); err != nil {
			return err
		}
		gate.Org, gate.Floor = org.org(), onOrg
		if q.Repo != "" {
			gate.Floor = max(gate.Floor, onRepo)
		}
		if q.Thread != "" {
			gate.Floor = max(gate.Floor, onThread)
		}
		if q.Subject != "" {
			gate.Floor = max(gate.Floor, onSubject)
		}
		if repo.id != 0 {
			gate.Repo = repo.repo()
		}
		return nil
	})
	return gate, err
}

// Keys implements meta.Store.
func (s *Store) Keys(ctx context.Context, org meta.OrgID) (meta.OrgKeys, error) {
	var keys meta.OrgKeys
	const text = `SELECT ` + orgColumns + `, coalesce(k.created_at, 0),
		coalesce(k.fingerprint, $2), coalesce(k.kid, $2), coalesce(k.pem, $2)
		FROM orgs o LEFT JOIN org_keys k ON k.org = o.id WHERE o.id = $1 ORDER BY k.created_at, k.fingerprint`
	found := false
	err := s.query(ctx, text, []any{org, ""}, func(scan scanFunc) error {
		var row orgRow
		var at int64
		var fingerprint, kid, pem []byte
		if err := scan(append(row.dest(), &at, &fingerprint, &kid, &pem)...); err != nil {
			return err
		}
		found = true
		keys.Org = row.org()
		if len(fingerprint) > 0 {
			keys.Keys = append(keys.Keys, meta.OrgKey{
				KID: string(kid), Fingerprint: string(fingerprint), PEM: string(pem), CreatedAt: timeOf(at),
			})
		}
		return nil
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return keys, err
}

// SigningKeys implements meta.Store: oldest first.
func (s *Store) SigningKeys(ctx context.Context, org meta.OrgID) ([]meta.SigningKey, error) {
	var keys []meta.SigningKey
	const text = `SELECT fingerprint, kind, text, title, not_before, not_after, created_at
		FROM signing_keys WHERE org = $1 ORDER BY created_at, fingerprint`
	err := s.query(ctx, text, []any{org}, func(scan scanFunc) error {
		var fingerprint, kind, key, title []byte
		var notBefore, notAfter, at int64
		err := scan(&fingerprint, &kind, &key, &title, &notBefore, &notAfter, &at)
		keys = append(keys, meta.SigningKey{
			Fingerprint: string(fingerprint), Kind: string(kind), Text: string(key), Title: string(title),
			NotBefore: timeOf(notBefore), NotAfter: timeOf(notAfter), CreatedAt: timeOf(at),
		})
		return err
	})
	return keys, err
}

// ServerKey implements meta.Store.
func (s *Store) ServerKey(ctx context.Context, org meta.OrgID) (meta.ServerKey, error) {
	var key meta.ServerKey
	const text = `SELECT signer, signer_secret FROM orgs WHERE id = $1 AND signer <> $2`
	err := s.one(ctx, text, []any{org, []byte{}}, func(scan scanFunc) error {
		var fingerprint, secret []byte
		err := scan(&fingerprint, &secret)
		key = meta.ServerKey{Fingerprint: string(fingerprint), Secret: bytes.Clone(secret)}
		return err
	})
	return key, err
}

// SealServerKey implements meta.Store.
func (s *Store) SealServerKey(ctx context.Context, org meta.OrgID, from, to []byte) error {
	return s.write(ctx, func(int64) []stmt {
		return []stmt{exec(`UPDATE orgs SET signer_secret = $3 WHERE id = $1 AND signer_secret = $2`, org, from, to)}
	})
}

// ListOrgs implements meta.Store.
func (s *Store) ListOrgs(ctx context.Context, after string, limit int) ([]meta.Org, error) {
	var orgs []meta.Org
	const text = `SELECT ` + orgColumns + ` FROM orgs o WHERE o.name > $1 ORDER BY o.name LIMIT $2`
	err := s.query(ctx, text, []any{after, limit}, func(scan scanFunc) error {
		var row orgRow
		err := scan(row.dest()...)
		orgs = append(orgs, row.org())
		return err
	})
	return orgs, err
}

// Floors implements meta.Store: in order of kind, repository and target.
func (s *Store) Floors(ctx context.Context, org meta.OrgID) ([]meta.Floor, error) {
	var floors []meta.Floor
	const text = `SELECT kind, repo, target, not_before FROM floors WHERE org = $1 ORDER BY kind, repo, target`
	err := s.query(ctx, text, []any{org}, func(scan scanFunc) error {
		f, err := scanFloor(scan)
		floors = append(floors, f)
		return err
	})
	return floors, err
}

func scanFloor(scan scanFunc) (meta.Floor, error) {
	var kind, repo, notBefore int64
	var target []byte
	err := scan(&kind, &repo, &target, &notBefore)
	return meta.Floor{Kind: kindOf[kind], Repo: meta.RepoID(repo), Target: string(target), NotBefore: notBefore}, err
}
