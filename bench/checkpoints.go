package main

// checkpointWorks is the part of the table that is about checkpoints.
func checkpointWorks(size func(full, small string) string) []work {
	project := size("60,000 files, 524 MB", "6,000 files, 52 MB")
	beside := func(what, peer, goal string, target float64) row {
		return row{Work: what, Unit: "s", Beside: peer, Goal: goal, Target: target, Less: true}
	}
	peak := func(goal string, target float64) row {
		return row{Work: "  program's peak memory", Unit: "MB", Goal: goal, Target: target, Less: true}
	}
	return []work{
		{name: "capture", rows: []row{
			beside("first capture, "+project, restic, "0.45 x its time", 1/0.45), beside("  the same", tarZstd, "", 0), beside("  the same", gitAdd, "not behind", 1),
			{Work: "  stored bytes", Unit: "MB", Beside: restic, Goal: "at most as many", Target: 1, Less: true}, peak("under 200 MB", 200),
		}, run: func(b *bench, r []row) error { return b.captures(r) }},

		{name: "capture again", rows: []row{
			beside("capture after one change, "+project, restic, "0.1 x its time", 10), beside("  the same", gitAdd, "not behind", 1), beside("  the same", walk, "", 0),
		}, run: func(b *bench, r []row) error { return b.recaptures(r) }},

		{name: "restore", rows: []row{
			beside("restore into an empty folder, "+project, restic, "0.45 x its time", 1/0.45), beside("  the same", "zstd -d and tar -x", "not behind", 1), peak("under 200 MB", 200),
			beside("restore where one file differs", walk, "2 x its time", 0.5),
		}, run: func(b *bench, r []row) error { return b.restores(r) }},

		{name: "chain", rows: []row{
			{Work: "checkpoint after one change, the last 100 of " + size("3,000", "300") + " (p50)", Unit: "ms", Beside: "the first 100", Goal: "within 1.2 x", Target: 1 / 1.2, Less: true},
			{Work: "  bytes for each", Unit: "B", Less: true}, {Work: "fork of a thread (p50)", Unit: "ms", Goal: "under 5 ms", Target: 5, Less: true},
		}, run: func(b *bench, r []row) error { return b.chain(r, b.size(3_000, 300)) }},

		{name: "ten thousand", long: true, rows: []row{
			{Work: "checkpoint after one change, the last 100 of 10,000 (p50)", Unit: "ms", Beside: "the first 100", Goal: "within 1.2 x", Target: 1 / 1.2, Less: true},
			{Work: "  bytes for each", Unit: "B", Less: true}, {Work: "fork of such a thread (p50)", Unit: "ms", Goal: "under 5 ms", Target: 5, Less: true},
		}, run: func(b *bench, r []row) error { return b.chain(r, 10_000) }},

		{name: "many entries", long: true, rows: []row{
			{Work: "memory of a first capture, " + size("2,000,000", "200,000") + " entries", Unit: "MB", Goal: "under 200 MB", Target: 200, Less: true},
			{Work: "  of one that finds nothing changed", Unit: "MB", Goal: "under 200 MB", Target: 200, Less: true},
		}, run: func(b *bench, r []row) error { return b.millions(r, b.size(2_000_000, 200_000)) }},
	}
}
