package rest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/tree"
)

// both mints a token for a thread and a repository.
func (s *stack) both(thread, repo string, scopes ...auth.Scope) string {
	return s.mint(s.key, auth.Claims{Org: "acme", Thread: thread, Repo: repo, Scopes: scopes})
}

func (s *stack) fileOf(repo, ref, path string) string {
	s.t.Helper()
	a := s.do("GET", repoPath(repo, "file?path="+path+"&ref="+ref), s.full(repo), nil)
	if a.status == 404 {
		return "(none)"
	}
	return string(a.body)
}

func TestPromoteAndFromCommit(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"a": "alpha", "d/old": "old", ".env.example": "X=", "same": "same"})
	token := s.both("t", "r", auth.CheckpointRead, auth.CheckpointWrite, auth.GitRead, auth.GitWrite)

	var from api.AppendedCheckpoint
	s.want(http.StatusCreated, "POST", threadPath("t", "from-commit"), token, map[string]any{"repo": "r", "ref": "main"}, &from)
	if g := from.Checkpoint.Git; g == nil || g.Branch != "main" || g.Repo != "r" || len(g.Commit) != 40 || from.Checkpoint.Stats.Files != 4 {
		t.Errorf("%+v", from.Checkpoint)
	}
	if a := s.do("GET", "/api/checkpoints/"+from.Head+"/files/workspace/d/old", token, nil); string(a.body) != "old" {
		t.Errorf("%d %q", a.status, a.body)
	}
	e := s.refused(http.StatusConflict, api.StaleHead, "POST", threadPath("t", "from-commit"), token, map[string]any{"repo": "r", "ref": "main"})
	if e.SnapshotRefusal == nil || e.Head != from.Head {
		t.Errorf("%+v", e)
	}
	// The commit's own files again change nothing.
	promote := "/api/checkpoints/" + from.Head + "/promote"
	s.refused(http.StatusPreconditionFailed, api.NoChanges, "POST", promote, token, map[string]any{"repo": "r", "branch": "main"})

	next := s.capture("t", newWorkspace(t, map[string]string{"a": "changed", "d": "now a file", "same": "same", "new/x": "n"}))
	promote = "/api/checkpoints/" + next.Head + "/promote"
	var done api.PromotedCheckpoint
	s.want(http.StatusCreated, "POST", promote, token, map[string]any{"repo": "r", "branch": "work", "message": "from a checkpoint"}, &done)
	for path, want := range map[string]string{"a": "changed", "d": "now a file", "same": "same", "new/x": "n", "d/old": "(none)", ".env.example": "X="} {
		if got := s.fileOf("r", "work", path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if s.fileOf("r", "main", "a") != "alpha" {
		t.Error("the base moved")
	}
	s.want(http.StatusCreated, "POST", promote, token, map[string]any{"repo": "r", "branch": "agent", "ephemeral": true}, &done)
	s.refused(http.StatusConflict, api.Stale, "POST", promote, token, map[string]any{"repo": "r", "branch": "main", "expected_head": strings.Repeat("1", 40)})

	// A thread that begins with what the branch has now.
	s.want(http.StatusCreated, "POST", threadPath("t", "from-commit"), token, map[string]any{"repo": "r", "ref": done.Commit, "onto": "head"}, &from)

	// Each side needs its own claim and scope.
	for name, c := range map[string]struct {
		token  string
		status int
		code   api.Code
	}{
		"no repository":      {s.threadToken("t"), 404, api.RepositoryMissing},
		"another repository": {s.both("t", "other", auth.CheckpointRead, auth.GitWrite), 404, api.RepositoryMissing},
		"only reads":         {s.both("t", "r", auth.CheckpointRead, auth.GitRead), 403, api.ScopeMissing},
		"another thread":     {s.both("other", "r", auth.CheckpointRead, auth.GitWrite), 404, api.MissingCheckpoint},
		"no checkpoints":     {s.full("r"), 403, api.ScopeMissing},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.do("POST", promote, c.token, map[string]any{"repo": "r", "branch": "x"})
			if e := a.error(t); a.status != c.status || e.Code != c.code {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	if !slices.Equal(done.Skipped, []string{}) {
		t.Errorf("skipped %v", done.Skipped)
	}
}

// TestPromoteDeepTrees commits what Git has paths for, and names where it ends.
func TestPromoteDeepTrees(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"node_modules/kept/a": "k", "gone/a": "g", "gone/b": "g", "x": "x"})
	w := new(workspace)
	w.object(tree.Chunk, []byte("x"))
	file, level := fileOf("x"), strings.Repeat("d", 250)
	file.Name = "f"
	e := w.directory(t, file)
	for range 2000 {
		e.Name = level
		e = w.directory(t, e, file)
	}
	e.Name = "w"
	w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
	id := s.capture("t", w).Checkpoint.ID
	var done api.PromotedCheckpoint
	s.want(http.StatusCreated, "POST", "/api/checkpoints/"+id+"/promote", s.both("t", "r", auth.CheckpointRead, auth.GitRead, auth.GitWrite),
		map[string]any{"repo": "r", "branch": "main"}, &done)
	deep := strings.TrimSuffix(strings.Repeat(level+"/", 17), "/")
	if !slices.Equal(done.Skipped, []string{deep}) {
		t.Errorf("skipped %d paths", len(done.Skipped))
	}
	last := strings.Repeat(level+"/", 16) + "f"
	for path, want := range map[string]string{"f": "x", last: "x", "node_modules/kept/a": "k", "gone/a": "(none)", "gone/b": "(none)", "x": "(none)"} {
		if got := s.fileOf("r", "main", path); got != want {
			t.Errorf("%.20s… is %q, want %q", path, got, want)
		}
	}
}
