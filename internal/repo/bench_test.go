package repo_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// wide makes a repository of files files and commits commits, each of which
// changes one file.
func wide(tb testing.TB, files, commits int) *repotest.Git {
	tb.Helper()
	g := repotest.NewGit(tb)
	r := rand.New(rand.NewPCG(1, 1))
	var out bytes.Buffer
	file := func(i int) {
		var b bytes.Buffer
		for range 20 {
			fmt.Fprintf(&b, "file %d line %d\n", i, r.Uint32())
		}
		fmt.Fprintf(&out, "M 100644 inline d%d/e%d/f%d\ndata %d\n%s\n", i%20, i/20%20, i, b.Len(), b.Bytes())
	}
	for c := range commits {
		fmt.Fprintf(&out, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", 1700000000+c)
		if c == 0 {
			for i := range files {
				file(i)
			}
			continue
		}
		file(r.IntN(files))
	}
	g.Feed(out.Bytes(), "fast-import", "--quiet")
	g.Run("repack", "-adfq")
	return g
}

// answer sends one request as a server does.
func answer(tb testing.TB, v *repo.View, f wire.Fetch) int64 {
	ctx := context.Background()
	u := v.Uploader(repo.Normal)
	if err := u.CheckWants(ctx, f.Wants); err != nil {
		tb.Fatal(err)
	}
	var update wire.ShallowUpdate
	var err error
	if f.Deepens() {
		if update, err = u.Shallow(ctx, &f); err != nil {
			tb.Fatal(err)
		}
	}
	var n counter
	if err := u.Send(ctx, &n, &f, update, nil); err != nil {
		tb.Fatal(err)
	}
	return int64(n)
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

var _ io.Writer = (*counter)(nil)

func benchmarkFetch(b *testing.B, v *repo.View, f wire.Fetch) {
	b.SetBytes(answer(b, v, f))
	b.ReportAllocs()
	for b.Loop() {
		answer(b, v, f)
	}
}

func BenchmarkTiny(b *testing.B) {
	g := wide(b, 10, 5)
	_, e, v := serve(b, g, layouts[1])
	f := wire.Fetch{Wants: []object.ID{g.ID("main")}, OfsDelta: true, ThinPack: true, Depth: 1}
	b.Run("listing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			u := v.Uploader(repo.Normal)
			if err := u.Refs(context.Background(), nil, func(wire.Ref) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("depth 1", func(b *testing.B) { benchmarkFetch(b, v, f) })
	b.Run("depth 1 not cached", func(b *testing.B) {
		row := v.Repo()
		for b.Loop() {
			b.StopTimer()
			fresh := repo.New(repo.Config{Meta: e.Meta(), ODB: e.ODB(), AnswerBytes: 1})
			v, err := fresh.View(context.Background(), row)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			answer(b, v, f)
		}
	})
}

func BenchmarkLarge(b *testing.B) {
	g := wide(b, 4000, 20000)
	main := g.ID("main")
	whole := wire.Fetch{Wants: []object.ID{main}, OfsDelta: true}
	shallow := wire.Fetch{Wants: []object.ID{main}, OfsDelta: true, ThinPack: true, Depth: 1}
	old := wire.Fetch{Wants: []object.ID{main}, Haves: []object.ID{g.ID("main~10")}, OfsDelta: true, ThinPack: true}
	for _, tail := range []int{0, 200} {
		b.Run(fmt.Sprintf("with %d small packs", tail), func(b *testing.B) {
			v := withTail(b, g, tail)
			b.Run("depth 1", func(b *testing.B) { benchmarkFetch(b, v, shallow) })
			b.Run("depth 1 not cached", func(b *testing.B) {
				f := shallow
				f.Filter = wire.Filter{HasBlobLimit: true, BlobLimit: 1 << 30}
				b.SetBytes(answer(b, v, f))
				for b.Loop() {
					f.Filter.BlobLimit++ // another request each time, with the same answer
					answer(b, v, f)
				}
			})
			b.Run("clone", func(b *testing.B) { benchmarkFetch(b, v, whole) })
			b.Run("clone without copying", func(b *testing.B) {
				f := whole
				f.OfsDelta = false
				benchmarkFetch(b, v, f)
			})
			b.Run("fetch 10 commits", func(b *testing.B) { benchmarkFetch(b, v, old) })
		})
	}
}

// withTail loads all but the last commits in one pack, and each of these in a
// small one.
func withTail(b *testing.B, g *repotest.Git, tail int) *repo.View {
	s := repotest.NewStore(b, 64<<10)
	id := s.Create()
	last := g.ID(fmt.Sprintf("main~%d", tail))
	s.Load(g, id, repotest.Pack{Tips: []object.ID{last}, Args: []string{"--delta-base-offset"}}, repotest.SetRef(g, "refs/heads/main", last))
	for i := tail - 1; i >= 0; i-- {
		next := g.ID(fmt.Sprintf("main~%d", i))
		s.Load(g, id, repotest.Pack{Tips: []object.ID{next}, Not: []object.ID{last}, Plain: true}, repotest.SetRef(g, "refs/heads/main", next))
		last = next
	}
	v, err := repo.New(repo.Config{Meta: s.Meta, ODB: s.ODB}).View(context.Background(), s.Row(id))
	if err != nil {
		b.Fatal(err)
	}
	return v
}
