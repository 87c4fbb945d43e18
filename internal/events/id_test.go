package events

import (
	"math"
	"testing"

	"github.com/cairnstate/cairn/internal/meta"
)

func TestIDs(t *testing.T) {
	e := meta.Event{Position: 77, Repo: 0x1f, Place: meta.PlaceOf(5, 2)}
	if got := ID(e, 0); got != "77" {
		t.Errorf("in the org's stream %q", got)
	}
	if got := ID(e, e.Repo); got != "1f-5-2" {
		t.Errorf("in the repository's stream %q", got)
	}
	for _, bad := range []struct {
		repo meta.RepoID
		id   string
	}{
		{0, "1f-5-2"}, {0, ""}, {0, "-1"}, {0, "+1"}, {0, "01"}, {0, "1 "}, {0, "9223372036854775808"},
		{0x1f, "77"}, {0x1f, ""}, {0x1f, "1f-5"}, {0x1f, "1f-5-2-"}, {0x1f, "1f-05-2"}, {0x1f, "1f--5-2"}, {0x1f, "1F-5-2"}, {0x1f, "1f-5-16777216"},
		{0x1f, "1f-549755813888-0"}, {0x20, "1f-5-2"}, {0x1f, "1f-0-0"}, {0x1f, "00"},
	} {
		if at, ok := ParseID(bad.repo, bad.id); ok {
			t.Errorf("%q of %x is read as %d", bad.id, bad.repo, at)
		}
	}
}

// FuzzParseID holds that an id is read as what it was made of, and nothing else is.
func FuzzParseID(f *testing.F) {
	f.Add(int64(0), "0")
	f.Add(int64(0), "77")
	f.Add(int64(31), "1f-5-2")
	f.Add(int64(31), "0")
	f.Add(int64(math.MaxInt64), "7fffffffffffffff-549755813887-16777215")
	f.Fuzz(func(t *testing.T, repo int64, id string) {
		if at, ok := ParseID(meta.RepoID(repo), id); ok && (at < 0 || At(meta.RepoID(repo), at) != id) {
			t.Fatalf("%q is read as %d, which is %q", id, at, At(meta.RepoID(repo), at))
		}
	})
}
