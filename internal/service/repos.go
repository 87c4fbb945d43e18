package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
)

// RepoID is a repository's id as clients see it.
func RepoID(id meta.RepoID) string { return fmt.Sprintf("repo_%016x", uint64(id)) }

// maxRepoName bounds the name of a repository, in bytes.
const maxRepoName = 255

// CheckRepoName refuses names that URLs and the server's own paths cannot hold.
// Names that exist already are not checked again.
func CheckRepoName(name string, anyName bool) error {
	reason := ""
	switch {
	case name == wholeOrg:
		reason = "it is reserved"
	case len(name) > maxRepoName:
		reason = "it is longer than 255 bytes"
	case strings.HasSuffix(name, ".git"), strings.HasSuffix(name, "+ephemeral"), strings.HasSuffix(name, "+import"):
		reason = "it ends like the URL of a remote"
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		reason = "it contains a backslash, a control character or invalid UTF-8"
	case !anyName && strings.ContainsFunc(name, shellSpecial):
		reason = "it may contain letters, digits, '.', '_', '-' and '/' only"
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			reason = `it has a segment that is empty, "." or ".."`
		}
	}
	if reason != "" {
		return Refuse(Invalid, "repository name %.80q cannot be used: %s", name, reason)
	}
	return nil
}

func shellSpecial(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("._/-", r)
}

// Source is where a fork comes from.
type Source struct {
	Name string
	// Token grants git:read on the source, of the same org.
	Token string
	// Ref and SHA narrow the fork to one branch; SHA wins.
	Ref, SHA string
}

// CreateRepo makes the repository that the token names. defaultBranch may be
// empty; source is nil for an empty repository.
func (s *Service) CreateRepo(ctx context.Context, a *Access, defaultBranch string, source *Source) (meta.Repo, error) {
	name := a.Principal.Repo
	if err := CheckRepoName(name, s.AnyName); err != nil {
		return meta.Repo{}, err
	}
	req := repo.CreateRequest{Name: name, DefaultBranch: defaultBranch}
	if source == nil {
		return s.Engine.Create(ctx, a.Writer("POST repos"), req)
	}
	v, err := s.source(ctx, a, source)
	if err != nil {
		return meta.Repo{}, err
	}
	return s.Engine.Fork(ctx, a.Writer("POST repos"), v, repo.ForkRequest{CreateRequest: req, Revision: cmp.Or(source.SHA, source.Ref)})
}

// source opens the repository to fork with the token that was given for it.
func (s *Service) source(ctx context.Context, a *Access, source *Source) (*repo.View, error) {
	from, err := s.Open(ctx, source.Token, source.Name, auth.GitRead)
	if err != nil {
		switch p := Public(err); p.Status() {
		case 401, 403:
			return nil, &Error{Code: ScopeMissing, Message: "the token for the repository to fork is refused: " + p.Message, Err: err}
		case 404:
			return nil, &Error{Code: NotFound, Message: "the repository to fork is not found", Err: err}
		}
		return nil, err
	}
	if from.Org.ID != a.Org.ID {
		return nil, Refuse(NotFound, "the repository to fork is not found")
	}
	return s.View(ctx, from)
}

// Repos returns up to limit repositories of the org whose names contain a text,
// newest first, strictly after a position; zero values start at the newest.
func (s *Service) Repos(ctx context.Context, a *Access, contains string, before time.Time, id meta.RepoID, limit int) ([]meta.Repo, error) {
	rows, err := s.Meta.ListRepos(ctx, meta.RepoQuery{Org: a.Org.ID, Contains: contains, BeforeCreated: before, BeforeID: id, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("list repositories: %w", err)
	}
	return rows, nil
}

// RepoByID returns the repository of the org that has an id as clients see it.
// One of another org, a deleted one and none are refused alike.
func (s *Service) RepoByID(ctx context.Context, a *Access, id string) (meta.Repo, error) {
	digits, ok := strings.CutPrefix(id, "repo_")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || RepoID(meta.RepoID(n)) != id {
		return meta.Repo{}, repositoryMissing()
	}
	r, err := s.Meta.Repo(ctx, meta.RepoID(n))
	if errors.Is(err, meta.ErrNotFound) || err == nil && (r.Org != a.Org.ID || !r.Deleted.IsZero()) {
		return meta.Repo{}, repositoryMissing()
	}
	if err != nil {
		return meta.Repo{}, fmt.Errorf("read repository: %w", err)
	}
	return r, nil
}

// UpdateRepo makes a branch the default one, "" leaves it as it is, and returns
// the repository as it is then.
func (s *Service) UpdateRepo(ctx context.Context, a *Access, defaultBranch string) (meta.Repo, error) {
	r := a.Repo
	if !r.Deleted.IsZero() {
		return r, repositoryMissing()
	}
	if defaultBranch == "" || defaultBranch == r.DefaultBranch {
		return r, nil
	}
	v, err := s.View(ctx, a)
	if err != nil {
		return r, err
	}
	if err := s.Engine.SetDefaultBranch(ctx, a.Writer("PATCH repo"), v, defaultBranch); err != nil {
		return r, err
	}
	r.DefaultBranch = defaultBranch
	return r, nil
}

// DeleteRepo makes the repository disappear; its name stays taken.
func (s *Service) DeleteRepo(ctx context.Context, a *Access) error {
	return s.Engine.Delete(ctx, a.Writer("DELETE repo"), a.Repo)
}

// maxProtections bounds the rules of one repository.
const maxProtections = 1000

// Protections returns the protection rules of the repository in order.
func (s *Service) Protections(ctx context.Context, a *Access) ([]policy.Protection, error) {
	return s.Engine.Protections(ctx, a.Repo)
}

// SetProtections replaces the protection rules of the repository.
func (s *Service) SetProtections(ctx context.Context, a *Access, rules []policy.Protection) error {
	if !a.Repo.Deleted.IsZero() {
		return repositoryMissing()
	}
	if len(rules) > maxProtections {
		return Refuse(Invalid, "%d protection rules are more than the limit of %d", len(rules), maxProtections)
	}
	return s.Engine.SetProtections(ctx, a.Writer("PUT protections"), a.Repo, rules)
}
