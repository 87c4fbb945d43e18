package main

import "fmt"

// work is what is measured together: it fills the figures of its rows.
type work struct {
	name string
	long bool // left out unless -full or -only asks for it
	rows []row
	run  func(b *bench, rows []row) error
}

const backend = "git http-backend"

// works is the table of everything that is measured.
func works(quick bool) []work {
	size := func(full, small string) string {
		if quick {
			return small
		}
		return full
	}
	bytes := row{Work: "  bytes", Unit: "MB", Beside: backend, Goal: "at most 1.1 x", Target: 1 / 1.1, Less: true}
	memory := func(goal float64) row {
		return row{Work: "  server's peak memory", Unit: "MB", Goal: fmt.Sprintf("under %.0f MB", goal), Target: goal, Less: true}
	}
	each := row{Work: "  database bytes for each", Unit: "B", Goal: "at most 1 KiB", Target: 1 << 10, Less: true}
	flat := func(all, some string) []row {
		return []row{
			{Work: all + " repositories created: rate of the last " + some, Unit: "/s", Beside: "first " + some, Goal: "within 1.3 x", Target: 1 / 1.3},
			each, {Work: "  server's peak memory", Unit: "MB", Less: true},
		}
	}
	family := func(state string) row {
		return row{Work: state, Unit: "MB", Beside: "parent + new objects as git packs them", Goal: "under 1.1 x", Target: 1 / 1.1, Less: true}
	}
	layered := func(state, goal string, target float64) []row {
		one := row{Unit: "ms", Beside: "one pack on Cairn", Goal: goal, Target: target, Less: true}
		bytes := row{Work: "  bytes", Unit: "MB", Beside: one.Beside, Less: true}
		shallow, whole := one, one
		shallow.Work = "depth-1 fetch, " + size("2,000 commits and 200 pushes", "200 commits and 20 pushes") + " on top, " + state
		whole.Work = "full clone of it, " + state
		return []row{shallow, bytes, whole, bytes}
	}
	return append([]work{
		{name: "list", rows: []row{
			{Work: "ref listing, tiny repository, 8 connections", Unit: "/s", Beside: backend, Goal: "30 x", Target: 30},
		}, run: func(b *bench, r []row) error { return b.rates(&r[0], func(history) []byte { return lsRefs() }) }},

		{name: "tiny fetch", rows: []row{
			{Work: "depth-1 fetch, tiny repository, 8 connections", Unit: "/s", Beside: backend, Goal: "40 x", Target: 40},
		}, run: func(b *bench, r []row) error {
			return b.rates(&r[0], func(h history) []byte { return fetch(1, h.tip) })
		}},

		{name: "depth-1", rows: []row{
			{Work: "depth-1 fetch, 4,000 files", Unit: "ms", Beside: backend, Goal: "4 x", Target: 4, Less: true}, bytes,
		}, run: func(b *bench, r []row) error { return b.answers(r, 1) }},

		{name: "clone", rows: []row{
			{Work: "full clone, " + size("100,000", "17,000") + " objects", Unit: "ms", Beside: backend, Goal: "3 x", Target: 3, Less: true}, bytes,
		}, run: func(b *bench, r []row) error { return b.answers(r, 0) }},

		{name: "layers", rows: append(layered("as is", "2 x the time", 0.5), layered("compacted", "1.2 x the time", 1/1.2)...),
			run: func(b *bench, r []row) error { return b.layers(r) }},

		{name: "small push", rows: []row{
			{Work: "small push, whole git push process", Unit: "ms", Beside: backend, Goal: "half the time", Target: 2, Less: true},
		}, run: func(b *bench, r []row) error { return b.pushes(&r[0]) }},

		{name: "commit alone", rows: []row{
			{Work: "commit API, 3 files, alone (p50)", Unit: "ms", Goal: "under 1 ms", Target: 1, Less: true},
		}, run: func(b *bench, r []row) error { return b.commitsAlone(&r[0]) }},

		{name: "commit together", rows: []row{
			{Work: "commit API, 3 files, 8 writers", Unit: "/s", Goal: "2,500/s", Target: 2500},
		}, run: func(b *bench, r []row) error { return b.commitsTogether(&r[0]) }},

		{name: "merge", rows: []row{
			{Work: "merge of two branches among " + size("1,000,000", "100,000") + " objects (p50)", Unit: "ms", Beside: "Cairn, " + size("100,000", "10,000"), Goal: "within 1.2 x", Target: 1 / 1.2, Less: true},
		}, run: func(b *bench, r []row) error { return b.merges(&r[0], b.size(100_000, 10_000)) }},

		{name: "big pack", rows: []row{
			{Work: "push of a prepared pack, " + size("1 GB", "100 MB"), Unit: "s", Beside: "git index-pack", Goal: "1.5 x its time", Target: 1 / 1.5, Less: true},
			memory(256),
		}, run: func(b *bench, r []row) error { return b.receive(r, b.size(1000, 100), 1e6, false) }},

		{name: "small objects", rows: []row{
			{Work: "push of " + size("3,000,000", "300,000") + " small objects", Unit: "s", Beside: "git index-pack", Goal: "1.5 x its time", Target: 1 / 1.5, Less: true},
			memory(256),
		}, run: func(b *bench, r []row) error { return b.receive(r, b.size(3_000_000, 300_000), 24, true) }},

		{name: "create", rows: []row{
			{Work: "create a repository, 8 connections", Unit: "/s", Goal: "2,000/s", Target: 2000}, each,
		}, run: func(b *bench, r []row) error { return b.creating(r, false) }},

		{name: "fork", rows: []row{
			{Work: "fork a repository of one branch, 8 connections", Unit: "/s", Goal: "3,000/s", Target: 3000}, each,
		}, run: func(b *bench, r []row) error { return b.creating(r, true) }},

		{name: "flat", rows: flat(size("50,000", "20,000"), size("2,500", "1,000")), run: func(b *bench, r []row) error { return b.million(r, b.size(50_000, 20_000)) }},

		{name: "million", long: true, rows: flat("1,000,000", "50,000"), run: func(b *bench, r []row) error { return b.million(r, 1_000_000) }},

		{name: "ephemeral", rows: []row{
			{Work: "one-ref listing among " + size("100,000", "20,000") + " ephemeral branches (p99)", Unit: "ms", Goal: "under 2 ms", Target: 2, Less: true},
			{Work: "  commit there (p50)", Unit: "ms", Beside: "10 branches", Goal: "1.2 x the time", Target: 1 / 1.2, Less: true},
			{Work: "  confined push there (p50)", Unit: "ms", Beside: "10 branches", Goal: "1.2 x the time", Target: 1 / 1.2, Less: true},
			{Work: "  its advertisement", Unit: "B", Goal: "under 8 KiB", Target: 8 << 10, Less: true},
		}, run: func(b *bench, r []row) error { return b.branches(r, b.size(100_000, 20_000)) }},

		{name: "crowd", long: true, rows: []row{
			{Work: "one-ref listing among " + size("300,000", "30,000") + " ephemeral branches (p50)", Unit: "ms", Beside: "10 branches", Goal: "1.2 x the time", Target: 1 / 1.2, Less: true},
			{Work: "  commit there (p50)", Unit: "ms", Beside: "10 branches", Goal: "1.2 x the time", Target: 1 / 1.2, Less: true},
			{Work: "  server's peak memory", Unit: "MB", Less: true},
		}, run: func(b *bench, r []row) error { return b.crowd(r, b.size(300_000, 30_000)) }},
		{name: "pages", rows: []row{
			{Work: "page of 100 among " + size("100,000", "20,000") + " branches, while others write (p50)", Unit: "ms", Goal: "under 5 ms", Target: 5, Less: true},
			{Work: "page of 100 among " + size("100,000", "20,000") + " commits, while others write (p50)", Unit: "ms", Goal: "under 5 ms", Target: 5, Less: true},
			{Work: "page of 1,000 among " + size("50,000", "20,000") + " files, while others write (p50)", Unit: "ms", Goal: "under 5 ms", Target: 5, Less: true},
		}, run: func(b *bench, r []row) error {
			return b.pages(r, b.size(100_000, 20_000), b.size(100_000, 20_000), b.size(50_000, 20_000))
		}},

		{name: "last commits", rows: []row{
			{Work: "10,000 files with their last commits, 5,000 commits, cold", Unit: "ms", Goal: "under 1 s", Target: 1000, Less: true},
			{Work: "  warm", Unit: "ms", Goal: "under 50 ms", Target: 50, Less: true},
		}, run: func(b *bench, r []row) error { return b.details(r, 10_000, 5_000) }},

		{name: "search", rows: []row{
			{Work: "grep over 10,000 files, an expression with a literal", Unit: "ms", Beside: "git grep in a clone", Goal: "not behind", Target: 1, Less: true},
			{Work: "  an expression without one", Unit: "ms", Beside: "git grep in a clone", Goal: "not behind", Target: 1, Less: true},
			{Work: "blame of a file that " + size("2,000 of 20,000", "500 of 5,000") + " commits change", Unit: "ms", Beside: "git blame in a clone", Goal: "not behind", Target: 1, Less: true},
		}, run: func(b *bench, r []row) error { return b.search(r, 10_000, b.size(20_000, 5_000)) }},

		{name: "parallel", rows: []row{
			{Work: size("50 clones at once, 500 MB each", "20 clones at once, 100 MB each"), Unit: "MB/s", Beside: backend + ", 4 at once", Goal: "not behind", Target: 1},
			memory(512),
		}, run: func(b *bench, r []row) error { return b.clones(r, b.size(500, 100), b.size(50, 20), 4) }},

		{name: "lazy", rows: []row{
			{Work: "10,000 lazy blob wants among " + size("1,000,000", "200,000") + " objects", Unit: "ms", Beside: backend, Goal: "not behind", Target: 1, Less: true},
			{Work: "  server's time", Unit: "ms", Goal: "under 1 s", Target: 1000, Less: true},
			{Work: "  server's peak memory", Unit: "MB", Less: true},
		}, run: func(b *bench, r []row) error { return b.lazy(r, b.size(1_000_000, 200_000)) }},

		{name: "family", rows: []row{
			family(size("1,000 forks of 500 MB", "50 forks of 50 MB") + ", 20 commits each"),
			family("  after cairn gc"), family("  after cairn gc --full"),
			{Work: "  time of both", Unit: "s", Less: true},
			family("  after the parent's purge, three forks cloned and checked"),
		}, run: func(b *bench, r []row) error { return b.family(r, b.size(500, 50), b.size(1000, 50)) }},
	}, checkpointWorks(size)...)
}
