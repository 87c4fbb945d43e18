package checkpoint

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
)

// listed appends files as a manifest whose bytes are the application's.
func (w *world) listed(thread, id string, f files) Checkpoint {
	w.Helper()
	list := []map[string]any{}
	for path, text := range f {
		list = append(list, map[string]any{"path": path, "kind": "file", "blobKey": Key{Files, tree.Sum([]byte(text))}.String(), "size": len(text)})
	}
	text, err := json.Marshal(map[string]any{
		"id": id, "threadId": thread, "parentCheckpointId": nil, "createdAt": 1, "files": list, "conversation": []any{}, "artifacts": []any{},
	})
	if err != nil {
		w.Fatal(err)
	}
	n := NewManifest{Thread: thread, WriterThread: thread, Checkpoint: text, Expected: json.RawMessage("null"), External: true}
	if _, err := w.AppendManifest(w.ctx, w.caller(), n); err != nil {
		w.Fatal(err)
	}
	return w.found(id)
}

func (w *world) found(id string) Checkpoint {
	w.Helper()
	c, err := w.Checkpoint(w.ctx, w.org, id)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// changes are the lines of a comparison from a path on.
func (w *world) changes(c Comparison) (lines, paths []string) {
	w.Helper()
	err := w.Diff(w.ctx, w.org, c, func(c tree.Change) error {
		sign := "*"
		if c.Old == nil {
			sign = "+"
		} else if c.New == nil {
			sign = "-"
		}
		lines, paths = append(lines, sign+c.Path), append(paths, c.Path)
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return lines, paths
}

// TestKindsAreCompared compares native checkpoints and manifests of equal files, each
// with each, and goes on after each change.
func TestKindsAreCompared(t *testing.T) {
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 7))
	some := func() files {
		f := files{}
		for range rng.IntN(30) {
			path := fmt.Sprintf("%c/%c%d", 'a'+rng.IntN(4), 'a'+rng.IntN(3), rng.IntN(3))
			if rng.IntN(4) == 0 {
				path += ".x/f"
			}
			f[path] = strings.Repeat("t", rng.IntN(3))
		}
		return f
	}
	for round := range 20 {
		a, b := some(), some()
		at := fmt.Sprint(round)
		first, _ := w.capture("native a"+at, a)
		second, _ := w.capture("native b"+at, b)
		nativeA, nativeB := w.found(first.Checkpoint.ID), w.found(second.Checkpoint.ID)
		listA, listB := w.listed("list a"+at, "list a"+at, a), w.listed("list b"+at, "list b"+at, b)
		var want []string
		for path, text := range a {
			if other, ok := b[path]; !ok {
				want = append(want, "-"+path)
			} else if other != text {
				want = append(want, "*"+path)
			}
		}
		for path := range b {
			if _, ok := a[path]; !ok {
				want = append(want, "+"+path)
			}
		}
		slices.SortFunc(want, func(x, y string) int { return comparePaths(x[1:], y[1:]) })
		for name, pair := range map[string][2]*Checkpoint{
			"manifests": {&listA, &listB}, "to native": {&listA, &nativeB}, "to a manifest": {&nativeA, &listB},
		} {
			c := Comparison{From: pair[0], To: pair[1]}
			got, paths := w.changes(c)
			plain := slices.Clone(got)
			if c.To.Kind == Native {
				for i := range plain {
					plain[i] = strings.Replace(plain[i], "w/", "", 1)
				}
			}
			if !slices.Equal(plain, want) {
				t.Fatalf("%s: %q, want %q", name, plain, want)
			}
			for i, path := range paths {
				c.After = path
				if rest, _ := w.changes(c); !slices.Equal(rest, got[i+1:]) {
					t.Fatalf("%s: after %q come %q, want %q", name, path, rest, got[i+1:])
				}
			}
		}
	}
	w.capture("n", files{"a": "a"})
	head, _ := w.capture("n", files{"a": "a"})
	native, list := w.found(head.Checkpoint.ID), w.listed("m", "m", files{"a": "a"})
	if err := w.Diff(w.ctx, w.org, Comparison{From: &native, To: &list, Root: "other"}, nil); !is(err, InvalidEntry) {
		t.Errorf("a root that is not there: %v", err)
	}
}
