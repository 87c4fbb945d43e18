package rest

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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
