package repo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/testkit"
)

// noteAuthor is who git says it is in tests.
var noteAuthor = object.Signature{Name: "A U Thor", Email: "author@example.com", When: 1700000000, Zone: "+0000"}

func (w *world) note(id meta.RepoID, req NoteRequest) (NoteResult, error) {
	req.Author = noteAuthor
	if req.Ref == "" {
		req.Ref = DefaultNotes
	}
	return w.engine.WriteNote(context.Background(), w.writer, w.view(id), req)
}

func (w *world) mustNote(id meta.RepoID, req NoteRequest) NoteResult {
	w.t.Helper()
	res, err := w.note(id, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// TestNotesEqualGit makes the same changes here and with git notes: the commits
// are the same, byte for byte.
func TestNotesEqualGit(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 2))
	w := newWorld(t, options{})
	id := w.create("r").ID
	commits := make([]object.ID, 12)
	for i := range commits {
		commits[i] = w.commit(id, "change", map[string]string{"f": fmt.Sprint(i)})
	}
	g := newGitDir(t)
	has := map[object.ID]bool{}
	for i := range 60 {
		c := commits[r.IntN(len(commits))]
		text := fmt.Sprintf("line %d\n\nand more", i)
		var res NoteResult
		switch {
		case has[c] && r.IntN(2) == 0:
			res = w.mustNote(id, NoteRequest{Object: c, Action: RemoveNote})
			g.run("notes", "remove", c.String())
			has[c] = false
		case r.IntN(2) == 0:
			res = w.mustNote(id, NoteRequest{Object: c, Action: AppendNote, Text: text})
			g.run("notes", "append", "-m", text, c.String())
			has[c] = true
		case !has[c]:
			res = w.mustNote(id, NoteRequest{Object: c, Action: AddNote, Text: text})
			g.run("notes", "add", "-m", text, c.String())
			has[c] = true
		default:
			var exists *ExistsError
			if _, err := w.note(id, NoteRequest{Object: c, Action: AddNote, Text: text}); !errors.As(err, &exists) {
				t.Fatalf("a second note: %v", err)
			}
			continue
		}
		if want := g.id(DefaultNotes); res.New != want {
			t.Fatalf("change %d made %s, git %s\nours %s\ngit's %s", i, res.New, want, w.export(id).run("cat-file", "-p", res.New.String()), g.run("cat-file", "-p", want.String()))
		}
		got, err := w.view(id).Note(context.Background(), DefaultNotes, c)
		var missing *NotFoundError
		switch {
		case !has[c] && !errors.As(err, &missing):
			t.Errorf("a note that was removed: %v", err)
		case has[c] && (err != nil || string(got.Text) != g.raw("", "notes", "show", c.String()) || got.Tip != res.New):
			t.Errorf("the note is %q, %v", got.Text, err)
		}
	}
	w.fsck(id)
	w.export(id)
}

// TestNotesOfGit reads and changes what git notes has spread over directories.
func TestNotesOfGit(t *testing.T) {
	w := newWorld(t, options{})
	id := w.create("r").ID
	commit := w.commit(id, "change", map[string]string{"f": "1"})
	g := newGitDir(t)
	g.run("notes", "add", "-m", "many", commit.String())
	r := rand.New(rand.NewPCG(7, 7))
	var copies strings.Builder
	var keys []object.ID
	for range 600 {
		var k object.ID
		for i := range k {
			k[i] = byte(r.Uint32())
		}
		keys = append(keys, k)
		fmt.Fprintf(&copies, "%s %s\n", commit, k)
	}
	g.in([]byte(copies.String()), "notes", "copy", "--stdin")
	if !strings.Contains(g.run("ls-tree", "-r", "--name-only", DefaultNotes), "/") {
		t.Fatal("git did not spread the notes")
	}
	tip := g.id(DefaultNotes)
	wantStatus(t, w.push(id, g.packRevs(DefaultNotes), wire.Command{Ref: DefaultNotes, New: tip}), map[string]string{DefaultNotes: ""})
	for _, k := range append(keys, commit) {
		n, err := w.view(id).Note(context.Background(), DefaultNotes, k)
		if err != nil || string(n.Text) != "many\n" {
			t.Fatalf("the note of %s is %q, %v", k, n.Text, err)
		}
	}
	w.mustNote(id, NoteRequest{Object: commit, Action: RemoveNote})
	g.run("notes", "remove", commit.String())
	res := w.mustNote(id, NoteRequest{Object: commit, Action: AddNote, Text: "again"})
	g.run("notes", "add", "-m", "again", commit.String())
	if want := g.id(DefaultNotes); res.New != want {
		t.Errorf("the notes are at %s, git's at %s", res.New, want)
	}
	w.fsck(id)
	if n := strings.Count(w.export(id).run("notes", "list"), "\n"); n != 600 {
		t.Errorf("git lists %d notes", n+1)
	}
}

func TestNotesRefusals(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	id := w.create("r").ID
	commit := w.commit(id, "change", map[string]string{"f": "1"})
	var missing *NotFoundError
	var bad *InvalidError
	var stale *StaleError
	var denied *policy.DeniedError
	if _, err := w.note(id, NoteRequest{Object: commit, Action: RemoveNote}); !errors.As(err, &missing) {
		t.Errorf("removing from nothing: %v", err)
	}
	zero := object.Zero
	first := w.mustNote(id, NoteRequest{Object: commit, Text: "a", Expected: &zero})
	before := w.state(id)
	for name, try := range map[string]struct {
		req  NoteRequest
		want any
	}{
		"guard says new":     {NoteRequest{Object: commit, Action: AppendNote, Text: "b", Expected: &zero}, &stale},
		"guard says another": {NoteRequest{Object: commit, Action: AppendNote, Text: "b", Expected: &commit}, &stale},
		"no notes ref":       {NoteRequest{Object: commit, Text: "b", Ref: "refs/heads/x"}, &bad},
		"a bad name":         {NoteRequest{Object: commit, Text: "b", Ref: NotesPrefix + "a..b"}, &bad},
		"too long":           {NoteRequest{Object: commit, Action: AppendNote, Text: strings.Repeat("x", maxNote)}, &bad},
		"no such note":       {NoteRequest{Object: first.New, Action: RemoveNote}, &missing},
	} {
		if _, err := w.note(id, try.req); !errors.As(err, try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rule, err := policy.NewRule("refs/notes/*", []policy.Op{policy.NoPush})
	if err != nil {
		t.Fatal(err)
	}
	confined := w.writer
	confined.Policies = policy.List{rule}
	if _, err := w.engine.WriteNote(ctx, confined, w.view(id), NoteRequest{Ref: DefaultNotes, Object: commit, Action: AppendNote, Text: "b", Author: noteAuthor}); !errors.As(err, &denied) {
		t.Errorf("denied: %v", err)
	}
	if after := w.state(id); after != before {
		t.Errorf("refusals changed\n%s\nto\n%s", before, after)
	}
	if _, err := w.view(id).Note(ctx, NotesPrefix+"none", commit); !errors.As(err, &missing) {
		t.Errorf("no such ref: %v", err)
	}
	// A notes ref that git would not call one.
	g := w.export(id)
	blob := g.put("blob", "text")
	wantStatus(t, w.push(id, g.packOf(blob), wire.Command{Ref: NotesPrefix + "blob", New: blob}), map[string]string{NotesPrefix + "blob": ""})
	if _, err := w.view(id).Note(ctx, NotesPrefix+"blob", commit); !errors.As(err, &bad) {
		t.Errorf("a ref to a blob: %v", err)
	}
}

// TestNotesTogether writes notes from many sides at once: none is lost, and of
// those that guard the same value one is written.
func TestNotesTogether(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		id := w.create("r").ID
		var commits []object.ID
		for i := range 24 {
			commits = append(commits, w.commit(id, "change", map[string]string{"f": fmt.Sprint(i)}))
		}
		tip := w.mustNote(id, NoteRequest{Object: commits[0], Text: "first"}).New
		var all sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for _, c := range commits[1:] {
			all.Go(func() {
				if _, err := w.note(id, NoteRequest{Object: c, Text: "text"}); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				_, err := w.note(id, NoteRequest{Ref: NotesPrefix + "guarded", Object: c, Text: "text", Expected: &object.ID{}})
				var stale *StaleError
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.As(err, &stale) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won != 1 {
			t.Errorf("%d guarded notes were written, want 1", won)
		}
		g := w.export(id)
		if n := strings.Count(g.run("notes", "list"), "\n") + 1; n != len(commits) {
			t.Errorf("git lists %d notes, want %d", n, len(commits))
		}
		if n := g.run("rev-list", "--count", tip.String()+".."+DefaultNotes); n != fmt.Sprint(len(commits)-1) {
			t.Errorf("%s commits were made", n)
		}
		w.fsck(id)
	})
}

func TestTagsOfUpdates(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	id := w.create("r").ID
	first := w.commit(id, "change", map[string]string{"f": "1"})
	w.commit(id, "change", map[string]string{"f": "2"})
	tag := func(name, ref string) error {
		_, err := w.engine.CreateTag(ctx, w.writer, w.view(id), TagRequest{Name: name, Ref: ref})
		return err
	}
	old := w.view(id)
	if err := tag("v1", "main~1"); err != nil {
		t.Fatal(err)
	}
	var exists *ExistsError
	for _, ref := range []string{"main", "main~1"} {
		if err := tag("v1", ref); !errors.As(err, &exists) {
			t.Errorf("v1 again at %s: %v", ref, err)
		}
		// From a view that does not know it yet.
		if _, err := w.engine.CreateTag(ctx, w.writer, old, TagRequest{Name: "v1", Ref: ref}); !errors.As(err, &exists) {
			t.Errorf("v1 again at %s, seen late: %v", ref, err)
		}
	}
	var path *RefPathError
	if err := tag("v1/x", "main"); !errors.As(err, &path) {
		t.Errorf("below a tag: %v", err)
	}
	events, err := w.meta.Events(ctx, w.org, 0, 100)
	if err != nil || !strings.Contains(string(events[len(events)-1].Body), refname.TagsPrefix+"v1") {
		t.Errorf("the last event is %s, %v", events[len(events)-1].Body, err)
	}
	g := w.export(id)
	if got := g.id("v1"); got != first {
		t.Errorf("git reads v1 as %s, want %s", got, first)
	}
	// An annotated tag and a tag of a tag, made by git.
	g.run("tag", "-a", "-m", "text", "v2", "main")
	g.run("tag", "-a", "-m", "text", "v3", "v2")
	two, three := g.id("refs/tags/v2"), g.id("refs/tags/v3")
	wantStatus(t, w.push(id, g.packOf(two, three), wire.Command{Ref: "refs/tags/v2", New: two}, wire.Command{Ref: "refs/tags/v3", New: three}), map[string]string{"refs/tags/v2": "", "refs/tags/v3": ""})
	v := w.view(id)
	for i, want := range []string{first.String(), g.id("main").String(), g.id("main").String()} {
		r := v.RefsAfter(refname.TagsPrefix, "", 10)[i]
		if peeled := r.Peeled; i > 0 && peeled.String() != want || i == 0 && r.ID.String() != want {
			t.Errorf("tag %s is %s, peeled %s, want %s", r.Name, r.ID, peeled, want)
		}
	}
	if at, err := v.Annotated(ctx, "v2"); err != nil || at != two {
		t.Errorf("v2 is %s, %v: a note would not be the tag's own", at, err)
	}
	var missing *NotFoundError
	if err := w.engine.DeleteTag(ctx, w.writer, v, "v2"); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.DeleteTag(ctx, w.writer, w.view(id), "v2"); !errors.As(err, &missing) {
		t.Errorf("deleted twice: %v", err)
	}
	w.fsck(id)
}
