package metatest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Benchmark measures the operations that requests wait for.
func Benchmark(b *testing.B, open Open) {
	for _, part := range []struct {
		name string
		run  func(b *testing.B, open Open)
	}{
		{"Commit", func(b *testing.B, open Open) { benchCommits(b, open, 1, 1) }},
		{"Commit8Repos", func(b *testing.B, open Open) { benchCommits(b, open, 8, 8) }},
		{"Commit8Branches", func(b *testing.B, open Open) { benchCommits(b, open, 8, 1) }},
		{"Commit64Repos", func(b *testing.B, open Open) { benchCommits(b, open, 64, 64) }},
		{"CreateRepo", func(b *testing.B, open Open) { benchCreate(b, open, 1, false) }},
		{"CreateRepo64", func(b *testing.B, open Open) { benchCreate(b, open, 64, false) }},
		{"Fork64", func(b *testing.B, open Open) { benchCreate(b, open, 64, true) }},
		{"Gate", benchGate},
		{"OneRefOf100000", benchOneRef},
		{"NewestRefsOf100000", benchAged},
	} {
		b.Run(part.name, func(b *testing.B) { part.run(b, open) })
	}
}

// benchCommits makes commits of three objects: a small pack, a ref, an event.
func benchCommits(b *testing.B, open Open, writers, repos int) {
	f := setUp(b, open)
	ids := make([]meta.RepoID, repos)
	for i := range ids {
		ids[i] = f.newRepo(fmt.Sprint("r", i))
	}
	times := make([][]time.Duration, writers)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		all.Go(func() {
			id, name, old := ids[w%repos], fmt.Sprintf("refs/heads/agent-%d", w), noID
			for n := 1; next.Add(1) <= int64(b.N); n++ {
				to := oid(w<<32 + n)
				c := move(id, name, old, to)
				c.Token = &meta.TokenStamp{IssuedAt: 1, Subject: "agent"}
				p := smallPack("")
				p.Data, p.Tips = make([]byte, 1000), append(p.Tips[:0], to)
				c.AddPack = p
				if n%50 == 0 && repos == writers { // as folding does
					c.AddPack, c.ReplacePacks = nil, &meta.PackReplace{Remove: f.packIDs(id), Add: []meta.PackWrite{*p}}
				}
				c.Events = []meta.Event{{Type: "push", Body: []byte(`{"ref":"refs/heads/agent","before":"","after":""}`)}}
				c.Org = f.org
				began := time.Now()
				v, err := f.Apply(f.ctx, c)
				times[w] = append(times[w], time.Since(began))
				if err != nil || !v.Applied {
					b.Errorf("%+v, %v", v.Conflict, err)
					return
				}
				old = to
			}
		})
	}
	all.Wait()
	report(b, slices.Concat(times...))
}

// report adds the rate and the quantiles of some times to the result.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Microseconds()) }
	b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

func benchCreate(b *testing.B, open Open, writers int, fork bool) {
	f := setUp(b, open)
	source := f.newRepo("source")
	f.apply(meta.Change{Repo: source, AddPack: f.bigPack("p")})
	set := f.repoRow(source).PackSet
	var next atomic.Int64
	var all sync.WaitGroup
	times := make([][]time.Duration, writers)
	b.ResetTimer()
	for w := range writers {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				c := meta.Change{
					Org: f.org, Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: fmt.Sprintf("agents/sandbox-%d", n), DefaultBranch: "main"},
					Refs: []meta.RefWrite{{Name: "refs/heads/main", New: oid(1)}}, Subject: "agent", Route: "POST repos",
					Token: &meta.TokenStamp{IssuedAt: 1, Subject: "agent"},
				}
				if fork {
					c.CreateRepo.Source, c.CreateRepo.PackSet, c.SourcePackSet = source, set, set
				}
				began := time.Now()
				v, err := f.Apply(f.ctx, c)
				times[w] = append(times[w], time.Since(began))
				if err != nil || !v.Applied {
					b.Errorf("%+v, %v", v.Conflict, err)
					return
				}
			}
		})
	}
	all.Wait()
	report(b, slices.Concat(times...))
}

func benchGate(b *testing.B, open Open) {
	f := setUp(b, open)
	f.newRepo("r")
	for b.Loop() {
		if _, err := f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "r", Subject: "agent"}); err != nil {
			b.Fatal(err)
		}
	}
}

// manyBranches makes a repository with 100,000 ephemeral branches and a few others.
func manyBranches(f *fixture) meta.RepoID {
	id := f.newRepo("r")
	for block := range 20 {
		c := meta.Change{Repo: id}
		for i := range 5000 {
			c.Refs = append(c.Refs, meta.RefWrite{
				Name: fmt.Sprintf("refs/namespaces/ephemeral/refs/heads/run-%d", block*5000+i), New: oid(i),
			})
		}
		f.apply(c)
	}
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/main", New: oid(1)}, {Name: "refs/heads/dev", New: oid(1)}}})
	return id
}

func benchOneRef(b *testing.B, open Open) {
	f := setUp(b, open)
	id := manyBranches(f)
	for b.Loop() {
		page, err := f.Refs(f.ctx, meta.RefQuery{Repo: id, Prefix: "refs/heads/"})
		if err != nil || len(page.Refs) != 2 {
			b.Fatal(len(page.Refs), err)
		}
	}
}

func benchAged(b *testing.B, open Open) {
	f := setUp(b, open)
	id := manyBranches(f)
	var times []time.Duration
	for b.Loop() {
		for _, q := range []meta.RefAgeQuery{
			{Prefix: "refs/heads/"},
			{Prefix: "refs/namespaces/ephemeral/refs/heads/", AfterVersion: 10, AfterName: "refs/namespaces/ephemeral/refs/heads/run-1"},
		} {
			q.Repo, q.Limit = id, 20
			began := time.Now()
			refs, err := f.RefsByAge(f.ctx, q)
			times = append(times, time.Since(began))
			if err != nil || len(refs) == 0 {
				b.Fatal(len(refs), err)
			}
		}
	}
	report(b, times)
}
