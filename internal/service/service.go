// Package service holds the use cases: what a request may do, decided once for
// Git, REST and the command line. Handlers translate, this package authorises,
// package repo does.
package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/upstream"
	"github.com/cairnstate/cairn/internal/webhook"
)

// Config is what a Service stands on.
type Config struct {
	Meta     meta.Store
	Engine   *repo.Engine
	Verifier *auth.Verifier
	// Feed is Meta for whoever waits for events; nil makes one, which knows of
	// events only when asked.
	Feed *events.Feed
	// Endpoints manages webhooks; nil allows public hosts and stores secrets as
	// they are.
	Endpoints *webhook.Endpoints
	// Secrets encrypts credentials; nil refuses them.
	Secrets *secret.Keyring
	// Checkpoints keeps threads.
	Checkpoints *checkpoint.Engine
	// Upstreams runs syncs; nil refuses to follow other hosts.
	Upstreams *upstream.Syncer
	// AnyName accepts repository names with characters that a shell may read.
	AnyName bool
	// DefaultNotesOnly refuses notes refs other than repo.DefaultNotes.
	DefaultNotesOnly bool
	// Rates bounds how many requests are answered.
	Rates Rates
	// Now is the clock for tokens; nil means time.Now.
	Now func() time.Time
}

// Service answers requests for one server. It is safe for concurrent use.
type Service struct {
	Config
	keys   keyCache
	limits limiter
}

// New returns a Service.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Feed == nil {
		c.Feed = events.NewFeed(c.Meta)
	}
	if c.Endpoints == nil {
		guard := new(netguard.Guard)
		c.Endpoints = &webhook.Endpoints{Meta: c.Meta, Secrets: c.Secrets, Guard: guard, Sender: webhook.NewSender(c.Secrets, guard, nil)}
	}
	return &Service{Config: c}
}

// Access is an authenticated request to one org, and to one repository of it
// when Repo.ID is set.
type Access struct {
	Principal *auth.Principal
	Org       meta.Org
	Repo      meta.Repo
	// Thread is the thread that the request is about, "" where that is not known yet.
	Thread string
	// Agent is what the client calls itself, for the audit log; it proves nothing.
	Agent string
	// Idempotency is the row that is kept for the request's idempotency key with
	// the Change that the request makes; nil for none.
	Idempotency *meta.Idempotency
	// Created makes that row for a request that makes a repository.
	Created func(meta.Repo) *meta.Idempotency
}

// Writer says who writes, for the function that changes refs. Route names what
// the request came through, for the ref log and the audit.
func (a *Access) Writer(route string) repo.Writer {
	return repo.Writer{
		Org:      a.Org.ID,
		OrgName:  a.Org.Name,
		Subject:  a.Principal.Subject,
		Token:    &meta.TokenStamp{IssuedAt: a.Principal.IssuedAt, Subject: a.Principal.Subject, Thread: a.Principal.Thread},
		Policies: a.Principal.Policies,
		Route:    route,
		Signer:   a.Org.Signer,
		Metered:  a.Org.Metered,
		Agent:    a.Agent,

		Idempotency: a.Idempotency,
		Created:     a.Created,
	}
}

// Identity is who stands in commits that a request makes without saying whose
// they are: the subject of its token.
func (a *Access) Identity() (name, email string) {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || strings.ContainsRune("<>@", r) {
			return '-'
		}
		return r
	}, strings.ToValidUTF8(a.Principal.Subject, "-"))
	name = strings.Trim(clean, "-.,:;\"'")
	if name == "" {
		name = "cairn"
	}
	return name, name + "@users.noreply." + a.Org.Name
}

// authenticate verifies a token and reads, in one round trip, the org and the
// repository that the token was made for. What the request asks for plays no
// part, so that a foreign repository and an absent one look alike.
func (s *Service) authenticate(ctx context.Context, token string) (*Access, error) {
	org, claimed, thread, subject, err := s.Verifier.Peek(token)
	if err != nil {
		return nil, err
	}
	var keys auth.OrgKeys
	gate, err := s.Meta.Gate(ctx, meta.GateQuery{Org: org, Repo: claimed, Thread: thread, Subject: subject})
	if err == nil {
		keys, err = s.keys.get(ctx, s.Meta, gate.Org)
	} else if errors.Is(err, meta.ErrNotFound) {
		keys, err = auth.OrgKeys{Name: org}, nil // no org: no key can have signed it
	}
	if err != nil {
		return nil, err
	}
	p, err := s.Verifier.Verify(token, keys, s.Now())
	if err != nil {
		return nil, err
	}
	if err := auth.Floor(gate.Floor, p); err != nil {
		return nil, err
	}
	if s.Rates != (Rates{}) {
		if err := s.limits.take(s.Rates, gate.Org.ID, p.Subject, s.Now()); err != nil {
			return nil, err
		}
	}
	return &Access{Principal: p, Org: gate.Org, Repo: gate.Repo}, nil
}

// Open authorises a request to a repository: the token must be valid, be made
// for this repository, and grant one of the scopes; then the repository must
// exist. name is "" where the route does not name the repository and the token's
// claim does. The refusals for a foreign and an absent repository are the same.
func (s *Service) Open(ctx context.Context, token, name string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.OpenImporting(ctx, token, name, scopes...)
	if err == nil && a.Repo.Following == meta.Importing {
		return nil, Refuse(Syncing, "repository sync in progress: try again when the first import has ended")
	}
	return a, err
}

// OpenImporting is Open for requests that make sense before the first import
// from an upstream has ended.
func (s *Service) OpenImporting(ctx context.Context, token, name string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.openAny(ctx, token, name, scopes)
	if err == nil && !a.Repo.Deleted.IsZero() {
		return nil, repositoryMissing()
	}
	return a, err
}

// OpenToChange authorises, as Open does, a change of a repository that is not a
// change of a ref. A token that may change next to no refs may not do it. The
// repository may be deleted already.
func (s *Service) OpenToChange(ctx context.Context, token, name string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.openAny(ctx, token, name, scopes)
	if err != nil {
		return nil, err
	}
	return a, a.unconfined()
}

// openAny is Open for repositories alive or deleted.
func (s *Service) openAny(ctx context.Context, token, name string, scopes []auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if name != "" && !a.Principal.CoversRepo(name) {
		return nil, repositoryMissing()
	}
	if err := a.require(scopes); err != nil {
		return nil, err
	}
	if a.Repo.ID == 0 {
		return nil, repositoryMissing()
	}
	return a, nil
}

// OpenOrg authorises a request to the org itself.
func (s *Service) OpenOrg(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	a.Repo = meta.Repo{}
	return a, a.require(scopes)
}

// OpenOrgToChange authorises a change of the org itself. A token that may change
// next to no refs may not do it.
func (s *Service) OpenOrgToChange(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.OpenOrg(ctx, token, scopes...)
	if err != nil {
		return nil, err
	}
	return a, a.unconfined()
}

// OpenNew authorises the creation of the repository that the token names; its
// row is zero when there was none by that name yet.
func (s *Service) OpenNew(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if err := a.require(scopes); err != nil {
		return nil, err
	}
	if a.Principal.Repo == wholeOrg {
		return nil, Refuse(ScopeMissing, "the token is for the whole org: mint one whose repo claim is the name of the new repository")
	}
	return a, a.unconfined()
}

// wholeOrg is the repo claim of tokens for the org; no repository has this name.
const wholeOrg = "org"

func (a *Access) require(scopes []auth.Scope) error {
	if slices.ContainsFunc(scopes, a.Principal.Allows) {
		return nil
	}
	names := make([]string, len(scopes))
	for i, sc := range scopes {
		names[i] = string(sc)
	}
	return Refuse(ScopeMissing, "the token does not grant %s here", strings.Join(names, " or "))
}

// unconfined refuses tokens whose policies deny every ref that they do not name.
func (a *Access) unconfined() error {
	if a.Principal.Policies.DeniesAll() {
		return Refuse(Denied, "denied by policy: the token is confined to some refs and may change nothing else")
	}
	return nil
}

// Begin registers a request that reads or writes repositories, so that nothing
// it may still read is removed. done must be called.
func (s *Service) Begin(ctx context.Context) (reqCtx context.Context, done func(), err error) {
	return s.Engine.Begin(ctx)
}

// View opens the repository of an Access for reading, at one version.
func (s *Service) View(ctx context.Context, a *Access) (*repo.View, error) {
	return s.Engine.View(ctx, a.Repo)
}

// Upload opens a repository for a fetch.
func (s *Service) Upload(ctx context.Context, token, name string, ns repo.Namespace) (wire.Uploader, error) {
	a, err := s.Open(ctx, token, name, auth.GitRead)
	if err != nil {
		return nil, err
	}
	v, err := s.View(ctx, a)
	if err != nil {
		return nil, err
	}
	return v.Uploader(ns), nil
}

// Receive opens a repository for a push by a client that calls itself agent.
func (s *Service) Receive(ctx context.Context, token, agent, name string, ns repo.Namespace) (wire.Receiver, error) {
	a, err := s.Open(ctx, token, name, auth.GitWrite)
	if err != nil {
		return nil, err
	}
	v, err := s.View(ctx, a)
	if err != nil {
		return nil, err
	}
	a.Agent = agent
	return s.Engine.Receiver(a.Writer("git push"), v, ns), nil
}
