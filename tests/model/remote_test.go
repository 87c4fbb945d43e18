package model_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/githttp"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/tests/stack"
)

// remote serves a stack to the git client. The stack may be exchanged.
type remote struct {
	stack  atomic.Pointer[stack.Stack]
	server *httptest.Server
}

var _ githttp.Backend = (*remote)(nil)

func newRemote() *remote {
	r := &remote{}
	r.server = httptest.NewServer(&githttp.Handler{
		Backend: r, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		ErrorStatus: func(err error) (int, string) { return http.StatusInternalServerError, err.Error() },
	})
	return r
}

// url is where a repository is, for anybody.
func (r *remote) url(name string) string {
	return "http://t:x@" + r.server.Listener.Addr().String() + "/" + name + ".git"
}

func (r *remote) view(ctx context.Context, name string) (*repo.View, error) {
	s := r.stack.Load()
	gate, err := s.Meta.Gate(ctx, meta.GateQuery{Org: "acme", Repo: name})
	if err != nil {
		return nil, err
	}
	if gate.Repo.ID == 0 || !gate.Repo.Deleted.IsZero() {
		return nil, fmt.Errorf("repository %q does not exist", name)
	}
	return s.Engine.View(ctx, gate.Repo)
}

// Upload implements githttp.Backend.
func (r *remote) Upload(ctx context.Context, _ githttp.Credential, name string, _ githttp.Kind) (wire.Uploader, error) {
	v, err := r.view(ctx, name)
	if err != nil {
		return nil, err
	}
	return v.Uploader(repo.Normal), nil
}

// Receive implements githttp.Backend.
func (r *remote) Receive(ctx context.Context, _ githttp.Credential, name string, _ githttp.Kind) (wire.Receiver, error) {
	v, err := r.view(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.stack.Load().Engine.Receiver(stack.Writer, v, repo.Normal), nil
}
