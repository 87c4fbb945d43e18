package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// repo is a bare repository for the git program.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) *repo {
	r := &repo{t, t.TempDir()}
	r.git(nil, "init", "-q", "--bare", ".")
	return r
}

// try runs git with the given standard input.
func (r *repo) try(stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+r.dir, "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, errOut.Bytes())
	}
	return out, err
}

func (r *repo) git(stdin []byte, args ...string) []byte {
	r.t.Helper()
	out, err := r.try(stdin, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// history fills a repository with commits that edit files and tag some of them,
// the same for the same arguments.
func history(t testing.TB, commits, files, fileSize int) *repo {
	r := newRepo(t)
	rng := rand.New(rand.NewPCG(7, uint64(commits)))
	words := make([]string, 2000)
	for i := range words {
		words[i] = strconv.FormatUint(rng.Uint64()>>(8+rng.IntN(48)), 36)
	}
	content := make([][]string, files)
	var in bytes.Buffer
	for c := range commits {
		msg := fmt.Sprintf("change %d\n", c)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata %d\n%s", 1700000000+c, len(msg), msg)
		for _, f := range rng.Perm(files)[:3] {
			if content[f] == nil {
				for n := 0; n < fileSize; n += 6 {
					content[f] = append(content[f], words[rng.IntN(len(words))])
				}
			}
			for range 4 {
				content[f][rng.IntN(len(content[f]))] = words[rng.IntN(len(words))]
			}
			text := strings.Join(content[f], "\n")
			fmt.Fprintf(&in, "M 100644 inline dir%d/sub%d/file%d\ndata %d\n%s\n", f%7, f%3, f, len(text), text)
		}
		if c%20 == 19 {
			fmt.Fprintf(&in, "tag v%d\nfrom refs/heads/main\ntagger A <a@b> %d +0000\ndata 3\ntag\n", c, 1700000000+c)
		}
	}
	r.git(in.Bytes(), "fast-import", "--quiet")
	return r
}

// pack returns a pack of what the revision arguments name.
func (r *repo) pack(revs string, flags ...string) []byte {
	r.t.Helper()
	return r.git([]byte(revs), append([]string{"pack-objects", "--revs", "--stdout", "-q"}, flags...)...)
}

// indexPack returns the index that git makes of a pack.
func (r *repo) indexPack(data []byte) []byte {
	r.t.Helper()
	dir := r.t.TempDir()
	name := filepath.Join(dir, "p.pack")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.git(nil, "index-pack", name)
	idx, err := os.ReadFile(filepath.Join(dir, "p.idx"))
	if err != nil {
		r.t.Fatal(err)
	}
	return idx
}

// gitObject is an object as the git program shows it.
type gitObject struct {
	typ  string
	data []byte
}

// objects returns every object of the repository.
func (r *repo) objects() map[object.ID]gitObject {
	r.t.Helper()
	out := r.git(nil, "cat-file", "--batch-all-objects", "--batch")
	all := map[object.ID]gitObject{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		f := strings.Fields(string(line))
		id, err := object.ParseID(f[0])
		if err != nil {
			r.t.Fatal(err)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			r.t.Fatal(err)
		}
		all[id] = gitObject{f[1], rest[:n]}
		out = rest[n+1:]
	}
	return all
}
