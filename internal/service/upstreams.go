package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/upstream"
)

// Upstream is what a new repository is to follow.
type Upstream struct {
	upstream.Source
	// Public says that it is asked without a credential.
	Public bool
}

// FollowRepo makes the repository that the token names and lets it follow a
// repository on another host; the import begins at once. defaultBranch "" takes
// the upstream's.
func (s *Service) FollowRepo(ctx context.Context, a *Access, defaultBranch string, u Upstream) (meta.Repo, error) {
	name := a.Principal.Repo
	if err := CheckRepoName(name, s.AnyName); err != nil {
		return meta.Repo{}, err
	}
	if s.Upstreams == nil {
		return meta.Repo{}, Refuse(Unsupported, "this server does not follow other hosts")
	}
	if u.Provider == "github" && !u.Public {
		return meta.Repo{}, Refuse(Precondition, "no GitHub App is configured here: only public repositories can be followed, with auth.auth_type \"public\"")
	}
	src, err := s.Upstreams.Check(u.Source)
	if err != nil {
		return meta.Repo{}, err
	}
	w := a.Writer("POST repos")
	sync, err := upstream.NewSync(w)
	if err != nil {
		return meta.Repo{}, err
	}
	r, err := s.Engine.Create(ctx, w, repo.CreateRequest{
		Name: name, DefaultBranch: defaultBranch, Sync: sync,
		Upstream: &meta.Upstream{Provider: src.Provider, Host: src.Host, Owner: src.Owner, Name: src.Name, Public: u.Public, DefaultBranch: defaultBranch},
	})
	if err == nil {
		s.Upstreams.Wake()
	}
	return r, err
}

// Snapshot is the one commit of a repository that begins as a snapshot.
type Snapshot struct {
	Message     string // "" takes a default
	Name, Email string // of the author; "" take those of the token's subject
}

// SnapshotRepo makes the repository that the token names, with one commit that
// holds the tree of a commit of the source.
func (s *Service) SnapshotRepo(ctx context.Context, a *Access, defaultBranch string, source Source, commit Snapshot) (meta.Repo, error) {
	name := a.Principal.Repo
	if err := CheckRepoName(name, s.AnyName); err != nil {
		return meta.Repo{}, err
	}
	v, err := s.source(ctx, a, &source)
	if err != nil {
		return meta.Repo{}, err
	}
	if commit.Message == "" {
		commit.Message = fmt.Sprintf("Snapshot of %s at %s\n", source.Name, source.Ref)
	}
	if commit.Name == "" {
		commit.Name = a.Principal.Subject
	}
	if commit.Name == "" {
		commit.Name = a.Org.Name
	}
	if commit.Email == "" {
		commit.Email = "snapshot@users.noreply." + a.Org.Name
	}
	return s.Engine.Snapshot(ctx, a.Writer("POST repos"), v, repo.SnapshotRequest{
		CreateRequest: repo.CreateRequest{Name: name, DefaultBranch: defaultBranch}, Revision: source.Ref, Message: commit.Message,
		Author: object.Signature{Name: commit.Name, Email: commit.Email, When: s.Now().Unix(), Zone: "+0000"},
	})
}

// UpstreamsOf returns the upstreams of those of the repositories that follow one.
func (s *Service) UpstreamsOf(ctx context.Context, repos ...meta.Repo) (map[meta.RepoID]meta.Upstream, error) {
	var ids []meta.RepoID
	for _, r := range repos {
		if r.Following != meta.NotFollowing {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.Meta.Upstreams(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read upstreams: %w", err)
	}
	of := make(map[meta.RepoID]meta.Upstream, len(rows))
	for _, u := range rows {
		of[u.Repo] = u
	}
	return of, nil
}

// PullUpstream asks for a sync of the repository, which then moves refs as the
// token may.
func (s *Service) PullUpstream(ctx context.Context, a *Access) error {
	if !a.Repo.Deleted.IsZero() {
		return repositoryMissing()
	}
	w := a.Writer("POST pull-upstream")
	sync, err := upstream.NewSync(w)
	if err != nil {
		return err
	}
	if err := s.Engine.Follow(ctx, w, a.Repo, meta.FollowChange{AddSync: sync}); err != nil {
		return err
	}
	if s.Upstreams != nil {
		s.Upstreams.Wake()
	}
	return nil
}

// DetachUpstream ends following. It succeeds when there is nothing to end.
func (s *Service) DetachUpstream(ctx context.Context, a *Access) error {
	if !a.Repo.Deleted.IsZero() {
		return repositoryMissing()
	}
	if a.Repo.Following == meta.NotFollowing {
		return nil
	}
	return s.Engine.Follow(ctx, a.Writer("DELETE base"), a.Repo, meta.FollowChange{Detach: true})
}

// CredentialID is a credential's id as clients see it.
func CredentialID(id meta.CredentialID) string { return fmt.Sprintf("cred_%016x", uint64(id)) }

// Bounds of credentials, in bytes.
const (
	maxUsername = 255
	maxPassword = 8 << 10
)

// CredentialRecord makes the row that is kept for the idempotency key of a
// request which stores a credential; nil keeps none.
type CredentialRecord func(meta.Credential) *meta.Idempotency

// CreateCredential stores what the repository's upstream is asked with. A
// repository has one at most, and may have one without an upstream.
func (s *Service) CreateCredential(ctx context.Context, a *Access, username, password string, record CredentialRecord) (meta.Credential, error) {
	if !a.Repo.Deleted.IsZero() {
		return meta.Credential{}, repositoryMissing()
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	return s.putCredential(ctx, a, meta.Credential{ID: meta.CredentialID(meta.NewID(now)), Username: username, CreatedAt: now}, password, false, record)
}

// UpdateCredential replaces name and secret of a credential.
func (s *Service) UpdateCredential(ctx context.Context, a *Access, id, username, password string, record CredentialRecord) (meta.Credential, error) {
	c, err := s.credential(ctx, a, id)
	if err != nil {
		return c, err
	}
	c.Username = username
	return s.putCredential(ctx, a, c, password, true, record)
}

func (s *Service) putCredential(ctx context.Context, a *Access, c meta.Credential, password string, replace bool, record CredentialRecord) (meta.Credential, error) {
	switch {
	case strings.TrimSpace(password) == "":
		return c, Refuse(Invalid, "password is missing or blank")
	case len(password) > maxPassword, len(c.Username) > maxUsername:
		return c, Refuse(Invalid, "the user name has more than %d bytes or the password more than %d", maxUsername, maxPassword)
	case strings.ContainsFunc(c.Username+password, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(c.Username, ":"):
		return c, Refuse(Invalid, "the user name or the password has a character that cannot be sent: a control character, or a colon in the name")
	}
	sealed, err := s.Secrets.Seal(upstream.CredentialRow(c.ID), []byte(password))
	if err != nil {
		return c, keyMissing(err)
	}
	c.Secret = sealed
	w := a.Writer("POST git-credentials")
	if replace {
		w.Route = "PUT git-credentials"
	}
	if record != nil {
		w.Idempotency = record(c)
	}
	err = s.Engine.Follow(ctx, w, a.Repo, meta.FollowChange{PutCredential: &c, Replace: replace})
	if exists, ok := errors.AsType[*repo.ExistsError](err); ok {
		return c, &Error{Code: AlreadyExists, Message: "the repository has a credential already: update or delete it", Err: exists}
	}
	return c, credentialMissing(err)
}

// keyMissing says to clients that the server has no key to keep a secret with.
func keyMissing(err error) error {
	if errors.Is(err, secret.ErrNoKey) {
		return &Error{Code: Unsupported, Message: "this server keeps no secrets: its operator must give it a key with --secret-key-file", Err: err}
	}
	return err
}

// DeleteCredential forgets a credential.
func (s *Service) DeleteCredential(ctx context.Context, a *Access, id string) error {
	c, err := s.credential(ctx, a, id)
	if err != nil {
		return err
	}
	return credentialMissing(s.Engine.Follow(ctx, a.Writer("DELETE git-credentials"), a.Repo, meta.FollowChange{DeleteCredential: c.ID}))
}

// credential finds a credential and, for an Access to the whole org, the
// repository that has it. Foreign ones and none are refused alike.
func (s *Service) credential(ctx context.Context, a *Access, id string) (meta.Credential, error) {
	missing := Refuse(NotFound, "credential not found")
	digits, ok := strings.CutPrefix(id, "cred_")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || CredentialID(meta.CredentialID(n)) != id {
		return meta.Credential{}, missing
	}
	c, err := s.Meta.Credential(ctx, a.Org.ID, meta.CredentialID(n))
	if errors.Is(err, meta.ErrNotFound) || err == nil && a.Repo.ID != 0 && c.Repo != a.Repo.ID {
		return meta.Credential{}, missing
	} else if err != nil {
		return c, fmt.Errorf("read credential: %w", err)
	}
	if a.Repo.ID == 0 {
		a.Repo, err = s.Meta.Repo(ctx, c.Repo)
	}
	return c, err
}

// credentialMissing names a credential that went meanwhile as one that is not
// there.
func credentialMissing(err error) error {
	if is[*repo.NotFoundError](err) {
		return Refuse(NotFound, "credential not found")
	}
	return err
}

// OpenCredentials authorises the calls that name a credential and no
// repository: with a token for the whole org all of its credentials, else that
// of the token's repository.
func (s *Service) OpenCredentials(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if err := a.require(scopes); err != nil {
		return nil, err
	}
	if err := a.unconfined(); err != nil {
		return nil, err
	}
	switch {
	case a.Principal.Repo == wholeOrg:
		a.Repo = meta.Repo{}
	case a.Repo.ID == 0 || !a.Repo.Deleted.IsZero():
		return nil, repositoryMissing()
	}
	return a, nil
}
