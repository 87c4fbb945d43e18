package chaos_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// engines are the storages that many writers meet.
var engines = []struct {
	name    string
	options func(t *testing.T) harness.Options
}{
	{"sqlite", func(*testing.T) harness.Options { return harness.Options{Args: []string{"--log-level", "warn"}} }},
	{"postgres", func(t *testing.T) harness.Options {
		return harness.OnPostgresAndS3(t, harness.Options{Args: []string{"--log-level", "warn"}})
	}},
}

// begun makes a repository with one commit and returns that.
func begun(t *testing.T, s *harness.Server, repo string) string {
	t.Helper()
	if err := s.CreateRepo(repo); err != nil {
		t.Fatal(err)
	}
	a, err := s.Commit(nil, harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"start": "start\n"}})
	if err != nil || a.Status != http.StatusCreated {
		t.Fatalf("first commit: %v, %d %s", err, a.Status, a.Body)
	}
	return a.Text("commit", "commit_sha")
}

func TestOneOfManyWritersWins(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			s := harness.Serve(t, e.options(t))
			head := begun(t, s, "race")
			client := s.HTTP()
			const writers = 64
			for round := range 3 {
				answers := make([]harness.Answer, writers)
				errs := make([]error, writers)
				start := make(chan struct{})
				var wait sync.WaitGroup
				for i := range writers {
					wait.Go(func() {
						<-start
						answers[i], errs[i] = s.Commit(client, harness.Commit{Repo: "race", Branch: "main", Expected: head,
							Files: map[string]string{"winner": fmt.Sprintf("%d %d\n", round, i)}})
					})
				}
				close(start)
				wait.Wait()
				winners, next := 0, ""
				for i, a := range answers {
					switch {
					case errs[i] != nil:
						t.Fatal(errs[i])
					case a.Status == http.StatusCreated:
						winners, next = winners+1, a.Text("commit", "commit_sha")
					case a.Status != http.StatusConflict || a.Text("result", "status") != "precondition_failed":
						t.Errorf("a writer got %d %s, want 409 precondition_failed", a.Status, a.Body)
					}
				}
				if winners != 1 {
					t.Fatalf("%d of %d writers won, want 1", winners, writers)
				}
				g := harness.NewGit(t)
				if got := g.Run("ls-remote", s.Remote(harness.Grant{Repo: "race"}, ""), "refs/heads/main"); !strings.HasPrefix(got, next) {
					t.Fatalf("main is %q, want the winner's %s", got, next)
				}
				head = next
			}
		})
	}
}

func TestWritersOnTheirOwnBranchesDoNotConflict(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			s := harness.Serve(t, e.options(t))
			const repo, writers, commits, pushers = "wide", 100, 4, 12
			base := begun(t, s, repo)
			client := s.HTTP()
			remote := s.Remote(harness.Grant{Repo: repo}, "")
			g := harness.NewGit(t)
			g.Run("clone", "-q", remote, "work")
			work := g.In("work")
			var wait sync.WaitGroup
			tips := make([]string, writers)
			for i := range writers {
				wait.Go(func() {
					for n := range commits {
						a, err := s.Commit(client, harness.Commit{Repo: repo, Branch: fmt.Sprintf("agents/%d", i), Base: "main", Expected: tips[i],
							Ephemeral: i%2 == 0, Files: map[string]string{"state": fmt.Sprintf("%d %d\n", i, n)}})
						if i%2 == 0 && n == 0 && err == nil && a.Status == http.StatusCreated && a.Text("result", "old_sha") != strings.Repeat("0", 40) {
							t.Errorf("a new branch says its old tip was %s", a.Text("result", "old_sha"))
						}
						if err != nil || a.Status != http.StatusCreated {
							t.Errorf("writer %d, commit %d: %v, %d %s", i, n, err, a.Status, a.Body)
							return
						}
						tips[i] = a.Text("commit", "commit_sha")
					}
				})
			}
			pushed := make([]string, pushers)
			for i := range pushers {
				blob := work.Input(fmt.Sprintf("%d\n", i), "hash-object", "-w", "--stdin")
				tree := work.Input("100644 blob "+blob+"\tstate\n", "mktree")
				pushed[i] = work.Run("commit-tree", "-p", base, "-m", "Save", tree)
				wait.Go(func() {
					if out, err := work.Try("push", "-q", remote, pushed[i]+":refs/heads/pushes/"+fmt.Sprint(i)); err != nil {
						t.Errorf("pusher %d: %v\n%s", i, err, out)
					}
				})
			}
			wait.Wait()
			if t.Failed() {
				return
			}
			refs := g.Run("ls-remote", remote) + "\n" + g.Run("ls-remote", s.Remote(harness.Grant{Repo: repo}, "+ephemeral"))
			for i, tip := range tips {
				if !strings.Contains(refs+"\n", fmt.Sprintf("%s\trefs/heads/agents/%d\n", tip, i)) {
					t.Errorf("branch agents/%d is not at %s", i, tip)
				}
			}
			for i, tip := range pushed {
				if !strings.Contains(refs+"\n", fmt.Sprintf("%s\trefs/heads/pushes/%d\n", tip, i)) {
					t.Errorf("branch pushes/%d is not at %s", i, tip)
				}
			}
			g.Run("clone", "-q", "--mirror", remote, "mirror.git")
			g.In("mirror.git").Fsck()
			if out, err := s.Operate("fsck"); err != nil {
				t.Errorf("cairn fsck: %v\n%s", err, out)
			}
		})
	}
}
