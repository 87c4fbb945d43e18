package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/webhook"
)

// BenchmarkCommit writes commits of three files, each writer upon a branch of
// its own, without a network.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := newStack(b)
			s.create("r")
			s.commit("r", nil, map[string]string{"f": "1"})
			token := s.full("r")
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := w; i < b.N; i += writers {
						s.write(token, fmt.Sprint("w", w), i)
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkCommitWithWebhook is BenchmarkCommit with an endpoint that every
// event is delivered to meanwhile, on the same machine.
func BenchmarkCommitWithWebhook(b *testing.B) {
	s := newStack(b)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "1"})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	guard, err := netguard.New([]string{"127.0.0.1"})
	if err != nil {
		b.Fatal(err)
	}
	sender := webhook.NewSender(s.handler.Service.Secrets, guard, nil)
	endpoints := webhook.Endpoints{Meta: s.handler.Service.Meta, Secrets: s.handler.Service.Secrets, Guard: guard, Sender: sender}
	if _, _, err := endpoints.Create(b.Context(), meta.Change{Org: s.repo("r").Org}, webhook.Spec{URL: receiver.URL, Enabled: true}); err != nil {
		b.Fatal(err)
	}
	d := webhook.New(webhook.Config{
		Feed: s.handler.Service.Feed, Sender: sender, Process: "bench", Report: func(err error) { b.Error(err) },
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	token := s.full("r")
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		s.write(token, "w", i)
	}
	b.StopTimer()
	b.ReportMetric(float64(d.Figures().Attempts)/float64(b.N), "deliveries/op")
}

// write makes one commit without a network.
func (s *stack) write(token, branch string, i int) {
	body := commitBody(map[string]any{"target_branch": branch, "base_branch": "main"}, map[string]string{
		"a": fmt.Sprint(i), "d/b": fmt.Sprint(i, "b"), "d/c": fmt.Sprint(i, "c"),
	})
	r := httptest.NewRequest("POST", "/api/v1/repos/commit-pack", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if w.Code != 201 {
		s.t.Errorf("%d %s", w.Code, w.Body)
	}
}
