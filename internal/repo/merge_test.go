package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// merge merges into main, unless req says otherwise.
func (w *world) merge(id meta.RepoID, req MergeRequest) (MergeResult, error) {
	w.t.Helper()
	if req.TargetBranch == "" {
		req.TargetBranch = "main"
	}
	if req.Message == "" {
		req.Message = MergeMessage(req.Source, req.TargetBranch)
	}
	req.Author, req.Committer = someone, someone
	return w.engine.Merge(context.Background(), w.writer, w.view(id), req)
}

// branch commits files upon a branch, which starts at base if it is new.
func (w *world) branch(id meta.RepoID, name, base string, files map[string]string) object.ID {
	w.t.Helper()
	res, err := w.tryCommit(id, CommitRequest{TargetBranch: name, BaseBranch: base}, files)
	if err != nil {
		w.t.Fatalf("commit to %s: %v", name, err)
	}
	return res.Commit
}

// lines is a text of numbered lines, some of which are replaced.
func lines(replaced map[int]string) string {
	var b strings.Builder
	for i := range 20 {
		text := replaced[i]
		if text == "" {
			text = fmt.Sprintf("line %d", i)
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

// forked makes a repository in which main and topic changed different lines of a
// file, and each has a file of its own.
func (w *world) forked() (r meta.Repo, base, ours, theirs object.ID) {
	w.t.Helper()
	r = w.create(fmt.Sprintf("repo-%s", strings.NewReplacer("/", "-", "#", "-", "_", "-").Replace(w.t.Name())))
	base = w.commit(r.ID, "base", map[string]string{"f": lines(nil), "sub/same": "x"})
	theirs = w.branch(r.ID, "topic", "main", map[string]string{"f": lines(map[int]string{18: "theirs"}), "sub/theirs": "t"})
	ours = w.commit(r.ID, "ours", map[string]string{"f": lines(map[int]string{1: "ours"}), "sub/ours": "o"})
	return r, base, ours, theirs
}

// TestMerge makes one commit of two lines of work, as git does.
func TestMerge(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r, base, ours, theirs := w.forked()
		before := w.export(r.ID)
		want := before.run("merge-tree", "--write-tree", ours.String(), theirs.String())
		res, err := w.merge(r.ID, MergeRequest{Source: "topic"})
		if err != nil {
			t.Fatal(err)
		}
		if res.Kind != MergeCommitted || res.Tree.String() != want || res.Old != ours || res.Source != theirs || res.Base != base || res.Promoted != 2 || w.ref(r.ID, "refs/heads/main") != res.Commit {
			t.Errorf("merged to %+v, want tree %s", res, want)
		}
		w.fsck(r.ID)
		g := w.export(r.ID)
		if got, want := g.run("log", "-1", "--format=%P|%an|%cn|%s", "main"), ours.String()+" "+theirs.String()+"|A U Thor|A U Thor|Merge topic into main"; got != want {
			t.Errorf("the commit is %q, want %q", got, want)
		}
		if text := g.run("show", "main:f"); text+"\n" != lines(map[int]string{1: "ours", 18: "theirs"}) {
			t.Errorf("the file is %q", text)
		}
		again, err := w.merge(r.ID, MergeRequest{Source: "topic"})
		if err != nil || again.Kind != NothingToMerge || again.Commit != res.Commit || again.Old != res.Commit || again.Tree != res.Tree || again.Promoted != 0 || again.Base != theirs {
			t.Errorf("merged again: %+v, %v", again, err)
		}
	})
}

// TestMergePack looks at what a merge stores: what neither side has, in a pack that
// says truly whether it is exact.
func TestMergePack(t *testing.T) {
	for name, tc := range map[string]struct {
		squash, untidy, large bool
		exact                 bool
	}{
		"small":  {exact: true},
		"large":  {large: true, exact: true},
		"squash": {squash: true},
		"untidy": {untidy: true, exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{}
			if tc.large {
				o.inlineLimit = 64
			}
			w := newWorld(t, o)
			r, _, _, _ := w.forked()
			if tc.untidy {
				w.branch(r.ID, "gone", "main", map[string]string{"f": lines(map[int]string{1: "ours", 18: "theirs"})})
				if _, err := w.engine.DeleteBranch(context.Background(), w.writer, w.view(r.ID), "gone", false); err != nil {
					t.Fatal(err)
				}
				// The blob that the merge makes is stored, and nothing reaches it.
				tc.exact = false
			}
			res, err := w.merge(r.ID, MergeRequest{Source: "topic", Squash: tc.squash})
			if err != nil {
				t.Fatal(err)
			}
			v := w.view(r.ID)
			db, err := v.DB(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			packs := db.Packs()
			last := packs[len(packs)-1]
			if last.Info().Exact != tc.exact || last.Info().Inline == tc.large {
				t.Errorf("the pack is %+v", last.Info())
			}
			// The commit, the root, sub and f.
			if n := last.Index().Count(); n != 4 {
				t.Errorf("the pack has %d objects", n)
			}
			if _, ok := last.Index().Lookup(res.Commit); !ok {
				t.Error("the pack lacks the commit")
			}
			w.fsck(r.ID)
			w.export(r.ID).run("fsck", "--strict")
		})
	}
}

// TestMergeKinds goes through strategies and situations.
func TestMergeKinds(t *testing.T) {
	type kind = MergeKind
	forward, unrelated := &NotForwardError{}, &UnrelatedError{}
	for _, tc := range []struct {
		name      string
		strategy  Strategy
		squash    bool
		unrelated bool
		source    string
		target    string
		want      kind
		promoted  int
		err       error
	}{
		{name: "merge ahead", source: "ahead", target: "main", want: MergeCommitted, promoted: 3},
		{name: "only ahead", strategy: ForwardOnly, source: "ahead", target: "main", want: Forwarded, promoted: 2},
		{name: "prefer ahead", strategy: ForwardFirst, source: "ahead", target: "main", want: Forwarded, promoted: 2},
		{name: "squash ahead", squash: true, source: "ahead", target: "main", want: Squashed, promoted: 1},
		{name: "squash ahead, prefer", strategy: ForwardFirst, squash: true, source: "ahead", target: "main", want: Squashed, promoted: 1},
		{name: "merge aside", source: "aside", target: "ahead", want: MergeCommitted, promoted: 2},
		{name: "only aside", strategy: ForwardOnly, source: "aside", target: "ahead", err: forward},
		{name: "prefer aside", strategy: ForwardFirst, source: "aside", target: "ahead", want: MergeCommitted, promoted: 2},
		{name: "squash aside", squash: true, source: "aside", target: "ahead", want: Squashed, promoted: 1},
		{name: "merge behind", source: "main", target: "ahead", want: NothingToMerge},
		{name: "only behind", strategy: ForwardOnly, source: "main", target: "ahead", want: NothingToMerge},
		{name: "squash behind", squash: true, source: "main", target: "ahead", want: NothingToMerge},
		{name: "itself", source: "main", target: "main", want: NothingToMerge},
		{name: "squash the same change", squash: true, source: "same", target: "aside", want: NothingToMerge},
		{name: "unrelated", source: "foreign", target: "main", err: unrelated},
		{name: "unrelated allowed", unrelated: true, source: "foreign", target: "main", want: MergeCommitted, promoted: 2},
		{name: "unrelated squashed", unrelated: true, squash: true, source: "foreign", target: "main", want: Squashed, promoted: 1},
		{name: "an ancestor by revision", source: "ahead~1", target: "main", strategy: ForwardFirst, want: Forwarded, promoted: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, options{})
			r := w.create("repo")
			w.commit(r.ID, "base", map[string]string{"f": "1", "g": "1"})
			w.branch(r.ID, "ahead", "main", map[string]string{"f": "2"})
			w.branch(r.ID, "ahead", "", map[string]string{"f": "3"})
			w.branch(r.ID, "aside", "main", map[string]string{"g": "2"})
			w.branch(r.ID, "same", "main", map[string]string{"g": "3"})
			w.branch(r.ID, "same", "", map[string]string{"g": "2"})
			g := newGitDir(t)
			blob := g.put("blob", "foreign")
			tree := g.in([]byte("100644 blob "+blob.String()+"\tforeign\n"), "mktree")
			commit := g.run("commit-tree", "-m", "foreign", tree)
			foreign, err := object.ParseID(commit)
			if err != nil {
				t.Fatal(err)
			}
			pack := g.in([]byte(commit+"\n"), "pack-objects", "--revs", "--stdout", "-q")
			wantStatus(t, w.push(r.ID, []byte(pack), wire.Command{Ref: "refs/heads/foreign", New: foreign}), map[string]string{"refs/heads/foreign": ""})

			before := w.state(r.ID)
			old := w.ref(r.ID, "refs/heads/"+tc.target)
			res, err := w.merge(r.ID, MergeRequest{Source: tc.source, TargetBranch: tc.target, Strategy: tc.strategy, Squash: tc.squash, Unrelated: tc.unrelated})
			if tc.err != nil {
				if err == nil || fmt.Sprintf("%T", err) != fmt.Sprintf("%T", tc.err) || w.state(r.ID) != before {
					t.Errorf("got %+v, %v; want %T and no change", res, err, tc.err)
				}
				return
			}
			now := w.ref(r.ID, "refs/heads/"+tc.target)
			if err != nil || res.Kind != tc.want || res.Promoted != tc.promoted || res.Old != old || res.Commit != now {
				t.Fatalf("got %+v, %v; the target went from %s to %s", res, err, old, now)
			}
			if (now == old) != (tc.want == NothingToMerge) || tc.want == NothingToMerge && w.state(r.ID) != before {
				t.Errorf("the target went from %s to %s", old, now)
			}
			out := w.export(r.ID)
			if tree := out.run("rev-parse", tc.target+"^{tree}"); res.Tree.String() != tree {
				t.Errorf("tree %s, told %s", tree, res.Tree)
			}
			parents := strings.Fields(out.run("log", "-1", "--format=%P", tc.target))
			if n := map[kind]int{MergeCommitted: 2, Squashed: 1}[tc.want]; n > 0 && (len(parents) != n || parents[0] != old.String()) {
				t.Errorf("parents are %v", parents)
			}
			w.fsck(r.ID)
		})
	}
}

// TestMergeWithoutGit merges where git is not needed, and it is not there.
func TestMergeWithoutGit(t *testing.T) {
	w := newWorld(t, options{})
	w.engine.cfg.Tasks = gitcmd.New(gitcmd.Config{Program: "no-such-git"})
	r := w.create("repo")
	w.commit(r.ID, "base", map[string]string{"f": "1"})
	w.branch(r.ID, "one", "main", map[string]string{"f": "2"})
	w.branch(r.ID, "two", "one", map[string]string{"f": "1"})
	w.branch(r.ID, "two", "", map[string]string{"f": "2"})
	for i, req := range []MergeRequest{
		{Source: "main", TargetBranch: "one"},
		{Source: "one", Strategy: ForwardOnly},
		{Source: "two"},
		{Source: "two", TargetBranch: "one", Squash: true},
		{Source: "one", Strategy: ForwardFirst},
	} {
		if res, err := w.merge(r.ID, req); err != nil {
			t.Errorf("%d: %+v, %v", i, res, err)
		}
	}
	w.branch(r.ID, "three", "main", map[string]string{"f": "3", "g": "3"})
	w.commit(r.ID, "ours", map[string]string{"h": "4"})
	if _, err := w.merge(r.ID, MergeRequest{Source: "three"}); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("what git is needed for: %v", err)
	}
}

// TestMergeConflict refuses what the sides disagree about, and changes nothing.
func TestMergeConflict(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	base := w.commit(r.ID, "base", map[string]string{"a": lines(nil), "b": "1", "d/x": "1"})
	w.branch(r.ID, "topic", "main", map[string]string{"a": lines(map[int]string{3: "theirs"}), "b": "theirs", "d/x": "theirs"})
	w.commit(r.ID, "ours", map[string]string{"a": lines(map[int]string{3: "ours"}), "b": "ours", "d/x/y": "in the way"})
	before := w.state(r.ID)
	_, err := w.merge(r.ID, MergeRequest{Source: "topic"})
	conflict, ok := errors.AsType[*MergeConflictError](err)
	if !ok || conflict.Base != base || !slices.Equal(conflict.Paths, []string{"a", "b", "d/x"}) || err.Error() != "merge conflict" {
		t.Errorf("%v: %+v", err, conflict)
	}
	if now := w.state(r.ID); now != before {
		t.Errorf("it changed\n%s\nto\n%s", before, now)
	}
}

// TestMergeRefusals refuses, and changes nothing.
func TestMergeRefusals(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	r, base, ours, theirs := w.forked()
	before := w.state(r.ID)
	for name, tc := range map[string]struct {
		req MergeRequest
		ok  func(error) bool
	}{
		"stale":              {MergeRequest{Source: "topic", Expected: &base}, func(err error) bool { return isStaleAt(err, ours) }},
		"stale forward":      {MergeRequest{Source: "topic", Expected: &theirs, Strategy: ForwardOnly}, func(err error) bool { return isStaleAt(err, ours) }},
		"no source":          {MergeRequest{Source: "nothing"}, isA[*NotFoundError]},
		"no target":          {MergeRequest{Source: "topic", TargetBranch: "nothing"}, isA[*NotFoundError]},
		"no target expected": {MergeRequest{Source: "topic", TargetBranch: "nothing", Expected: &ours}, isA[*NotFoundError]},
		"other namespace":    {MergeRequest{Source: "topic", TargetEphemeral: true}, isA[*NotFoundError]},
		"squash forward":     {MergeRequest{Source: "topic", Squash: true, Strategy: ForwardOnly}, isA[*InvalidError]},
		"bad target":         {MergeRequest{Source: "topic", TargetBranch: "refs/tags/x"}, isA[*InvalidError]},
		"unknown commit":     {MergeRequest{Source: strings.Repeat("ab", 20)}, isA[*NotFoundError]},
	} {
		if res, err := w.merge(r.ID, tc.req); err == nil || !tc.ok(err) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	for _, op := range []policy.Op{policy.NoPush, policy.VerifySig} {
		rule, err := policy.NewRule("main", []policy.Op{op})
		if err != nil {
			t.Fatal(err)
		}
		as := w.writer
		as.Policies = policy.List{rule}
		for _, s := range []Strategy{MergeAlways, ForwardFirst} {
			_, err := w.engine.Merge(ctx, as, w.view(r.ID), MergeRequest{Source: "topic", TargetBranch: "main", Strategy: s, Message: "m", Author: someone, Committer: someone})
			if !isA[*policy.DeniedError](err) {
				t.Errorf("%s with strategy %d: %v", op, s, err)
			}
		}
	}
	if now := w.state(r.ID); now != before {
		t.Errorf("it changed\n%s\nto\n%s", before, now)
	}
	// A rule against forced updates does not stop what only moves forward.
	rule, err := policy.NewRule("main", []policy.Op{policy.NoForcePush})
	if err != nil {
		t.Fatal(err)
	}
	as := w.writer
	as.Policies = policy.List{rule}
	if _, err := w.engine.Merge(ctx, as, w.view(r.ID), MergeRequest{Source: "topic", TargetBranch: "main", Expected: &ours, Message: "m", Author: someone, Committer: someone}); err != nil {
		t.Errorf("no-force-push: %v", err)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestMergeTogether merges many branches into one at the same time, and commits to
// it meanwhile: nothing is lost.
func TestMergeTogether(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r := w.create("repo")
		w.commit(r.ID, "base", map[string]string{"base": "1"})
		const n = 8
		for i := range n {
			w.branch(r.ID, fmt.Sprintf("b%d", i), "main", map[string]string{fmt.Sprintf("f%d", i): "1"})
		}
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if _, err := w.merge(r.ID, MergeRequest{Source: fmt.Sprintf("b%d", i), Squash: i%2 == 0}); err != nil {
					t.Errorf("merge %d: %v", i, err)
				}
			})
			wg.Go(func() { w.commit(r.ID, "beside", map[string]string{fmt.Sprintf("c%d", i): "1"}) })
		}
		wg.Wait()
		g := w.export(r.ID)
		if files := strings.Fields(g.run("ls-tree", "--name-only", "main")); len(files) != 2*n+1 {
			t.Errorf("main has %v", files)
		}
		if first := strings.Fields(g.run("rev-list", "--first-parent", "main")); len(first) != 2*n+1 {
			t.Errorf("main has %d commits of its own", len(first))
		}
		w.fsck(r.ID)
	})
}

// TestMergeExpected lets many merges expect the same target: one wins.
func TestMergeExpected(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	w.commit(r.ID, "base", map[string]string{"base": "1"})
	const n = 6
	for i := range n {
		w.branch(r.ID, fmt.Sprintf("b%d", i), "main", map[string]string{fmt.Sprintf("f%d", i): "1"})
	}
	tip := w.commit(r.ID, "tip", map[string]string{"base": "2"})
	won := make(chan object.ID, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			res, err := w.merge(r.ID, MergeRequest{Source: fmt.Sprintf("b%d", i), Expected: &tip})
			switch {
			case err == nil:
				won <- res.Commit
			case !isA[*StaleError](err):
				t.Errorf("merge %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 || <-won != w.ref(r.ID, "refs/heads/main") {
		t.Errorf("%d merges won", len(won)+1)
	}
}

// TestMergePinned moves the source while its merge is tried again.
func TestMergePinned(t *testing.T) {
	var w *world
	var repo meta.RepoID
	moved := false
	w = newWorld(t, options{meta: func(s meta.Store) meta.Store {
		return &interposed{Store: s, before: func(c *meta.Change) {
			if moved || len(c.Refs) != 1 || c.Refs[0].Name != "refs/heads/main" || c.Route != "merge" {
				return
			}
			moved = true
			w.branch(repo, "topic", "", map[string]string{"late": "1"})
			w.commit(repo, "in between", map[string]string{"between": "1"})
		}}
	}})
	r, _, _, theirs := w.forked()
	repo = r.ID
	as := w.writer
	as.Route = "merge"
	res, err := w.engine.Merge(context.Background(), as, w.view(r.ID), MergeRequest{Source: "topic", TargetBranch: "main", Message: "m", Author: someone, Committer: someone})
	if err != nil || !moved || res.Source != theirs {
		t.Fatalf("%+v, %v; moved %v", res, err, moved)
	}
	files := w.export(r.ID).run("ls-tree", "--name-only", "main")
	if strings.Contains(files, "late") || !strings.Contains(files, "between") {
		t.Errorf("main has %q", files)
	}
}

// interposed calls before before each Change.
type interposed struct {
	meta.Store
	before func(*meta.Change)
}

func (s *interposed) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	s.before(&c)
	return s.Store.Apply(ctx, c)
}

// TestMergeReplay records the answer with the merge, also of one that did nothing.
func TestMergeReplay(t *testing.T) {
	w := newWorld(t, options{})
	r, _, _, _ := w.forked()
	record := func(key string) func(MergeResult) *meta.Idempotency {
		return func(res MergeResult) *meta.Idempotency {
			return &meta.Idempotency{Key: key, Status: 200, Body: []byte(res.Commit.String())}
		}
	}
	var commit string
	for i, key := range []string{"one", "one", "two", "two"} {
		res, err := w.merge(r.ID, MergeRequest{Source: "topic", Record: record(key)})
		if i == 0 {
			commit = res.Commit.String()
		}
		if i%2 == 0 {
			if err != nil || res.Commit.String() != commit {
				t.Errorf("merge %d: %+v, %v", i, res, err)
			}
			continue
		}
		if replay, ok := errors.AsType[*ReplayError](err); !ok || string(replay.Recorded.Body) != commit {
			t.Errorf("replay %d: %v", i, err)
		}
	}
}
