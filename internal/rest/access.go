package rest

import (
	"context"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/service"
)

// access authorises a request with a token that grants one of the scopes. Where
// the path names no repository, the token's claim does.
type access struct {
	scopes []auth.Scope
	open   func(ctx context.Context, s *service.Service, token string, at place) (*service.Access, error)
}

// The kinds of access.
var (
	// reads and writes authorise work in a repository; who may change which ref is
	// decided where refs change.
	reads  = inRepo((*service.Service).Open)
	writes = reads
	// changes authorises changes of a repository itself.
	changes = inRepo((*service.Service).OpenToChange)
	// describes authorises reading what is known of a repository, also before its
	// first import has ended.
	describes = inRepo((*service.Service).OpenImporting)
	// ofCredential authorises a change of the credential that the request names.
	ofCredential = inRepo(openCredential)

	// creates authorises the creation of the repository that the token names.
	creates = withToken((*service.Service).OpenNew)
	// ofOrg authorises work on the org as a whole, changesOrg changes of it.
	ofOrg      = withToken((*service.Service).OpenOrg)
	changesOrg = withToken((*service.Service).OpenOrgToChange)
	// ofPart authorises reading what belongs to the org, or to the repository that
	// the token was made for; changesPart authorises changing it.
	ofPart      = withToken((*service.Service).OpenPart)
	changesPart = withToken((*service.Service).OpenPartToChange)

	// ofThreads authorises work in whichever threads the token covers.
	ofThreads = withToken((*service.Service).OpenThreads)
)

// inThread is access to the thread that the path names.
func inThread(scopes ...auth.Scope) access {
	return access{scopes, func(ctx context.Context, s *service.Service, token string, at place) (*service.Access, error) {
		return s.OpenThread(ctx, token, at.item, scopes...)
	}}
}

// inRepo is access to the repository that the path or the token names.
func inRepo(open func(s *service.Service, ctx context.Context, token, repo string, scopes ...auth.Scope) (*service.Access, error)) func(...auth.Scope) access {
	return func(scopes ...auth.Scope) access {
		return access{scopes, func(ctx context.Context, s *service.Service, token string, at place) (*service.Access, error) {
			return open(s, ctx, token, at.repo, scopes...)
		}}
	}
}

// withToken is access to what the token alone names.
func withToken(open func(s *service.Service, ctx context.Context, token string, scopes ...auth.Scope) (*service.Access, error)) func(...auth.Scope) access {
	return func(scopes ...auth.Scope) access {
		return access{scopes, func(ctx context.Context, s *service.Service, token string, _ place) (*service.Access, error) {
			return open(s, ctx, token, scopes...)
		}}
	}
}

func openCredential(s *service.Service, ctx context.Context, token, repo string, scopes ...auth.Scope) (*service.Access, error) {
	if repo != "" {
		return s.OpenToChange(ctx, token, repo, scopes...)
	}
	return s.OpenCredentials(ctx, token, scopes...)
}
