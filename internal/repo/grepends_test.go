package repo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/repo"
)

// TestGrepEnds ends searches at many moments: each returns.
func TestGrepEnds(t *testing.T) {
	g := wide(t, 400, 2)
	_, _, v := serve(t, g, layouts[1])
	ended := 0
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
		_, _, err := v.Grep(ctx, repo.GrepQuery{
			Commit: g.ID("main"), Pattern: fmt.Sprintf("nowhere %d", i), CaseSensitive: true, PerFile: 10, Limit: 10, Lines: 10,
		}, repo.GrepPosition{})
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err != nil {
			ended++
		}
	}
	if ended == 0 {
		t.Error("no search was ended")
	}
}

// BenchmarkGrep searches all files for what none has: each iteration for
// something else, since answers are remembered.
func BenchmarkGrep(b *testing.B) {
	g := wide(b, 10_000, 1000)
	_, _, v := serve(b, g, layouts[1])
	for name, form := range map[string]string{"literal": "nowhere %d [a-z]+", "class": "q[xz][a-q]z%d"} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				page, _, err := v.Grep(context.Background(), repo.GrepQuery{
					Commit: g.ID("main"), Pattern: fmt.Sprintf(form, n), CaseSensitive: true, PerFile: 10, Limit: 10, Lines: 10,
				}, repo.GrepPosition{})
				if err != nil || len(page.Files) > 0 {
					b.Fatal(page, err)
				}
			}
		})
	}
}
