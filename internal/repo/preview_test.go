package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

func (w *world) preview(id meta.RepoID, source string, content bool) (Preview, error) {
	w.t.Helper()
	return w.engine.PreviewMerge(context.Background(), w.view(id), PreviewRequest{Source: source, TargetBranch: "main", Content: content})
}

// TestPreview says what a merge would do, and changes nothing.
func TestPreview(t *testing.T) {
	w := newWorld(t, options{})
	r, base, ours, theirs := w.forked()
	w.branch(r.ID, "ahead", "main", map[string]string{"more": "1"})
	before := w.state(r.ID)
	for source, want := range map[string]Preview{
		"topic":  {Kind: MergeCommitted, Source: theirs, Target: ours, Base: base},
		"ahead":  {Kind: Forwarded, Source: w.ref(r.ID, "refs/heads/ahead"), Target: ours, Base: ours},
		"main~1": {Kind: NothingToMerge, Source: base, Target: ours, Base: base},
	} {
		got, err := w.preview(r.ID, source, true)
		if err != nil || got.Kind != want.Kind || got.Source != want.Source || got.Target != want.Target || got.Base != want.Base || len(got.Paths) > 0 {
			t.Errorf("%s: %+v, %v", source, got, err)
		}
	}
	if _, err := w.preview(r.ID, "nothing", false); !isA[*NotFoundError](err) {
		t.Errorf("no source: %v", err)
	}
	if _, err := w.engine.PreviewMerge(context.Background(), w.view(r.ID), PreviewRequest{Source: "topic", TargetBranch: "nothing"}); !isA[*NotFoundError](err) {
		t.Errorf("no target: %v", err)
	}
	if now := w.state(r.ID); now != before {
		t.Errorf("it changed\n%s\nto\n%s", before, now)
	}
}

// TestPreviewConflicts tells texts, what is none, what is too long, and what is not
// there on a side.
func TestPreviewConflicts(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	long := strings.Repeat("ä long line of text\n", 8000)
	all := func(what string) map[string]string {
		return map[string]string{
			"text": lines(map[int]string{3: what}), "binary": "\x00" + what, "latin": "caf\xe9" + what, "long": what + "\n" + long,
		}
	}
	files := all("base")
	files["gone"], files["way"] = "base", "base"
	w.commit(r.ID, "base", files)
	w.branch(r.ID, "topic", "main", all("theirs"))
	w.branch(r.ID, "topic", "", map[string]string{"gone": "theirs", "way": "theirs"})
	w.commit(r.ID, "ours", all("ours"))
	deleted := CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone, Files: []FileEdit{{Path: "gone", Delete: true}}}
	if _, err := w.engine.Commit(context.Background(), w.writer, w.view(r.ID), deleted); err != nil {
		t.Fatal(err)
	}
	w.commit(r.ID, "ours", map[string]string{"way/in": "ours"})

	p, err := w.preview(r.ID, "topic", true)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"binary", "gone", "latin", "long", "text", "way"}
	if !slices.Equal(p.Paths, want) || len(p.Conflicts) != len(want) {
		t.Fatalf("conflicts are %q", p.Paths)
	}
	byPath := map[string]PreviewConflict{}
	for _, c := range p.Conflicts {
		byPath[c.Path] = c
	}
	g := w.export(r.ID)
	for _, path := range []string{"text", "binary", "latin", "long"} {
		c := byPath[path]
		for rev, side := range map[string]PreviewSide{"main": c.Ours, "topic": c.Theirs, "main~3": c.Base} {
			if want := g.run("rev-parse", rev+":"+path); side.ID.String() != want {
				t.Errorf("%s of %s is %s, want %s", path, rev, side.ID, want)
			}
		}
	}
	text := byPath["text"]
	marked := lines(map[int]string{3: "<<<<<<< main\nours\n=======\ntheirs\n>>>>>>> topic"})
	if text.Result.Content != marked || text.Result.ID != object.Hash(object.Blob, []byte(marked)) || text.Ours.Content != lines(map[int]string{3: "ours"}) || text.Ours.Truncated || text.Ours.Binary {
		t.Errorf("text: %+v", text)
	}
	for _, path := range []string{"binary", "latin"} {
		if c := byPath[path]; !c.Ours.Binary || !c.Base.Binary || c.Ours.Content != "" || c.Ours.Truncated {
			t.Errorf("%s: %+v", path, c)
		}
	}
	if c := byPath["long"]; !c.Ours.Truncated || c.Ours.Binary || len(c.Ours.Content) < maxSideBytes-4 || len(c.Ours.Content) > maxSideBytes || !strings.HasPrefix(c.Ours.Content, "ours\nä long") ||
		!c.Result.Truncated || !c.Result.ID.IsZero() || !strings.HasPrefix(c.Result.Content, "<<<<<<< main\nours\n") {
		t.Errorf("long: %d bytes, %+v %+v", len(c.Ours.Content), c.Ours.Truncated, c.Result.ID)
	}
	if c := byPath["gone"]; c.Ours != (PreviewSide{}) || c.Theirs.Content != "theirs" || c.Base.Content != "base" || c.Result.Content != "theirs" {
		t.Errorf("gone: %+v", c)
	}
	if c := byPath["way"]; c.Theirs.Content != "theirs" || c.Result.Content != "theirs" || c.Ours != (PreviewSide{}) {
		t.Errorf("way: %+v", c)
	}

	without, err := w.preview(r.ID, "topic", false)
	if err != nil || !slices.Equal(without.Paths, want) {
		t.Fatalf("without content: %+v, %v", without, err)
	}
	for _, c := range without.Conflicts {
		if c.Ours.Content+c.Theirs.Content+c.Base.Content+c.Result.Content != "" || c.Theirs.ID != byPath[c.Path].Theirs.ID || c.Result.ID != byPath[c.Path].Result.ID {
			t.Errorf("without content: %+v", c)
		}
	}
}

// TestPreviewBounds tells all paths, the first conflicts, and no more text than it
// may.
func TestPreviewBounds(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	n := maxPreview + 30
	all := func(what string) map[string]string {
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("f%03d", i)] = what + strings.Repeat(fmt.Sprintf("%s %d\n", what, i), 3000)
		}
		return files
	}
	w.commit(r.ID, "base", all("base"))
	w.branch(r.ID, "topic", "main", all("theirs"))
	w.commit(r.ID, "ours", all("ours"))
	p, err := w.preview(r.ID, "topic", true)
	if err != nil || len(p.Paths) != n || len(p.Conflicts) != maxPreview {
		t.Fatalf("%d paths, %d conflicts, %v", len(p.Paths), len(p.Conflicts), err)
	}
	total, cut := 0, 0
	for _, c := range p.Conflicts {
		for _, s := range []PreviewSide{c.Result, c.Base, c.Ours, c.Theirs} {
			total += len(s.Content)
			if s.Truncated {
				cut++
			}
		}
	}
	if total > maxContentBytes || total < maxContentBytes-maxSideBytes || cut == 0 {
		t.Errorf("%d bytes of texts, %d truncated", total, cut)
	}
}
