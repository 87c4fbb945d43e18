package clients_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/cairnstate/cairn/tests/harness"
)

// client is a Git implementation: each step ends on a commit, which it returns.
type client struct {
	name string
	step func(t *testing.T, url, token, dir, step string) string
}

func program(command func(t *testing.T) []string) func(*testing.T, string, string, string, string) string {
	return func(t *testing.T, url, token, dir, step string) string {
		t.Helper()
		args := append(command(t), url, token, dir, step)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = harness.GitEnv(t.TempDir())
		return output(t, cmd)
	}
}

func python(file string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		return []string{harness.Tool(t, "python", "venv/bin/python"), filepath.Join("python", file)}
	}
}

var clients = []client{
	{"go-git", goGit},
	{"isomorphic", func(t *testing.T, url, token, dir, step string) string {
		return node(t, "isomorphic.mjs", nil, url, token, dir, step)
	}},
	{"dulwich", program(python("dulwich_client.py"))},
	{"pygit2", program(python("pygit2_client.py"))},
	{"jgit", program(func(t *testing.T) []string {
		java := harness.Tool(t, "java", "java")
		return []string{"java", "-cp", filepath.Join(java, "classes") + string(os.PathListSeparator) + filepath.Join(java, "lib", "*"), "JGitClient"}
	})},
}

// TestOtherClients lets every client clone, fetch what another one pushed, and
// push a branch and a tag.
func TestOtherClients(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			repo := "clients/" + c.name
			if err := s.CreateRepo(repo); err != nil {
				t.Fatal(err)
			}
			h := harness.GeneratePlain(t, t.TempDir(), "seed.git", 5, 60)
			grant := harness.Grant{Repo: repo}
			remote := s.Remote(grant, "")
			h.Git.Run("push", "-q", remote, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
			url, token := s.URL+"/"+repo+".git", s.Token(grant)
			check := harness.NewGit(t)

			dir := filepath.Join(t.TempDir(), "work")
			if got, want := c.step(t, url, token, dir, "clone"), h.Git.Run("rev-parse", "main"); got != want {
				t.Fatalf("cloned %s, want %s", got, want)
			}
			check.In(dir).Fsck()

			shallow := filepath.Join(t.TempDir(), "shallow")
			if got, want := c.step(t, url, token, shallow, "shallow"), h.Git.Run("rev-parse", "main"); got != want {
				t.Errorf("the shallow clone is at %s, want %s", got, want)
			}
			if n := check.In(shallow).Run("rev-list", "--count", "HEAD"); n != "1" {
				t.Errorf("the shallow clone has %s commits, want 1", n)
			}

			check.Run("clone", "-q", remote, "other")
			other := check.In("other")
			next := other.Save("other.txt", "from another client\n")
			other.Run("push", "-q", "origin", "main")
			if got := c.step(t, url, token, dir, "fetch"); got != next {
				t.Errorf("fetched %s, want %s", got, next)
			}

			pushed := c.step(t, url, token, dir, "push")
			other.Run("fetch", "-q", "origin", "--tags")
			if got := other.Run("rev-parse", "refs/remotes/origin/"+c.name); got != pushed {
				t.Errorf("the pushed branch is %s, want %s", got, pushed)
			}
			if got := other.Run("rev-parse", c.name+"-v1^{commit}"); got != pushed {
				t.Errorf("the pushed tag is of %s, want %s", got, pushed)
			}
			other.Fsck()
		})
	}
}

func goGit(t *testing.T, url, token, dir, step string) string {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, gogit.NoErrAlreadyUpToDate) {
			t.Fatal(err)
		}
	}
	access := &http.BasicAuth{Username: "t", Password: token}
	head := func(r *gogit.Repository, name plumbing.ReferenceName) string {
		t.Helper()
		ref, err := r.Reference(name, true)
		check(err)
		return ref.Hash().String()
	}
	if step == "clone" || step == "shallow" {
		options := &gogit.CloneOptions{URL: url, Auth: access}
		if step == "shallow" {
			options.Depth, options.SingleBranch = 1, true
		}
		r, err := gogit.PlainClone(dir, false, options)
		check(err)
		return head(r, plumbing.HEAD)
	}
	r, err := gogit.PlainOpen(dir)
	check(err)
	if step == "fetch" {
		check(r.Fetch(&gogit.FetchOptions{Auth: access}))
		return head(r, "refs/remotes/origin/main")
	}
	tree, err := r.Worktree()
	check(err)
	check(tree.Checkout(&gogit.CheckoutOptions{Branch: "refs/heads/go-git", Create: true, Keep: true}))
	check(os.WriteFile(filepath.Join(dir, "go-git.txt"), []byte("from go-git\n"), 0o644))
	_, err = tree.Add("go-git.txt")
	check(err)
	who := &object.Signature{Name: "Sandbox worker", Email: "worker@example.com", When: time.Unix(1700000000, 0)}
	commit, err := tree.Commit("Work of go-git", &gogit.CommitOptions{Author: who})
	check(err)
	_, err = r.CreateTag("go-git-v1", commit, &gogit.CreateTagOptions{Tagger: who, Message: "go-git's tag"})
	check(err)
	check(r.Push(&gogit.PushOptions{Auth: access, RefSpecs: []config.RefSpec{"refs/heads/go-git:refs/heads/go-git", "refs/tags/go-git-v1:refs/tags/go-git-v1"}}))
	return commit.String()
}
