// Package wiretest serves a bare repository on disk through git itself, so that
// tests of the protocols have a trusted [wire.Uploader] and [wire.Receiver].
package wiretest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
)

// Env is an environment in which git meets no configuration but that of the
// repository, and asks nobody for a password. Extra entries override.
func Env(home string, extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + home,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
		"LC_ALL=C",
	}, extra...)
}

// Git runs git in dir and returns both of its outputs.
func Git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, Env(filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// MustGit is Git for steps that have to work; it returns the output without
// surrounding space.
func MustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := Git(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// Repo is a bare repository. Its fields may be set before it is used.
type Repo struct {
	Dir string
	// Deny returns why a command is refused, or "".
	Deny func(wire.Command) string
	// Hold, if set, is called before a pack is made and after one was read.
	Hold func(ctx context.Context)
	// Early refuses every push before its pack is read.
	Early string
	// Haves are advertised by receive-pack as .have lines.
	Haves []object.ID

	mu     sync.Mutex
	pushes []wire.Push
}

// Pushes are the pushes that were received so far.
func (r *Repo) Pushes() []wire.Push {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pushes)
}

var (
	_ wire.Uploader = (*Repo)(nil)
	_ wire.Receiver = (*Repo)(nil)
)

// New makes an empty bare repository with the default branch main.
func New(t testing.TB) *Repo {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo.git")
	MustGit(t, filepath.Dir(dir), "init", "-q", "--bare", "-b", "main", dir)
	return &Repo{Dir: dir}
}

// run runs git in the repository and returns its standard output.
func (r *Repo) run(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := r.pipe(ctx, in, &out, "GIT_PROTOCOL=", args...)
	return out.Bytes(), err
}

// pipe runs git with one more variable in its environment.
func (r *Repo) pipe(ctx context.Context, in io.Reader, out io.Writer, env string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	var text bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Dir, Env(r.Dir, env), in, out, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, text.Bytes())
	}
	return nil
}

// Refs lists refs with for-each-ref and show-ref.
func (r *Repo) Refs(ctx context.Context, prefixes []string, yield func(wire.Ref) error) error {
	peeled := map[string]object.ID{}
	var refs []wire.Ref
	head := wire.Ref{Name: "HEAD"}
	target, err := r.run(ctx, nil, "symbolic-ref", "HEAD")
	if err != nil {
		return err
	}
	head.Symref = strings.TrimSpace(string(target))
	// show-ref fails when there is no ref.
	list, _ := r.run(ctx, nil, "show-ref", "-d")
	for line := range strings.Lines(string(list)) {
		hex, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, err := object.ParseID(hex)
		if err != nil {
			return err
		}
		if tag, ok := strings.CutSuffix(name, "^{}"); ok {
			peeled[tag] = id
			continue
		}
		if name == head.Symref {
			head.ID = id
		}
		refs = append(refs, wire.Ref{Name: name, ID: id})
	}
	for _, ref := range append([]wire.Ref{head}, refs...) {
		ref.Peeled = peeled[ref.Name]
		if selected(ref.Name, prefixes) {
			if err := yield(ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func selected(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return len(prefixes) == 0
}

// list runs rev-list and returns the ids that it prints.
func (r *Repo) list(ctx context.Context, args ...string) (map[object.ID]bool, error) {
	out, err := r.run(ctx, nil, append([]string{"rev-list"}, args...)...)
	if err != nil {
		return nil, err
	}
	set := map[object.ID]bool{}
	for line := range strings.Lines(string(out)) {
		id, err := object.ParseID(line[:2*object.Size])
		if err != nil {
			return nil, err
		}
		set[id] = true
	}
	return set, nil
}

// CheckWants compares with all objects that rev-list --all reaches.
func (r *Repo) CheckWants(ctx context.Context, ids []object.ID) error {
	reached, err := r.list(ctx, "--objects", "--all")
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !reached[id] {
			return &wire.NotOurRefError{ID: id}
		}
	}
	return nil
}

// Common asks cat-file.
func (r *Repo) Common(ctx context.Context, ids []object.ID) ([]object.ID, error) {
	out, err := r.run(ctx, strings.NewReader(lines("", ids)), "cat-file", "--batch-check=%(objectname)")
	if err != nil {
		return nil, err
	}
	var found []object.ID
	for line := range strings.Lines(string(out)) {
		if id, err := object.ParseID(strings.TrimSpace(line)); err == nil {
			found = append(found, id)
		}
	}
	return found, nil
}

func lines(prefix string, ids []object.ID) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%s%s\n", prefix, id)
	}
	return b.String()
}

// Ready walks the history of every want.
func (r *Repo) Ready(ctx context.Context, wants, common []object.ID) (bool, error) {
	for _, want := range wants {
		history, err := r.list(ctx, want.String())
		if err != nil {
			return false, err
		}
		reached := len(history) == 0 // not a commit
		for _, id := range common {
			reached = reached || history[id]
		}
		if !reached {
			return false, nil
		}
	}
	return true, nil
}

// Shallow asks git upload-pack.
func (r *Repo) Shallow(ctx context.Context, f *wire.Fetch) (wire.ShallowUpdate, error) {
	return r.askShallow(ctx, f)
}

// Send runs pack-objects as git upload-pack does.
func (r *Repo) Send(ctx context.Context, w io.Writer, f *wire.Fetch, up wire.ShallowUpdate, progress func(string)) error {
	if r.Hold != nil {
		r.Hold(ctx)
	}
	if progress != nil {
		progress("Enumerating objects\n")
	}
	args := []string{"pack-objects", "--revs", "--stdout", "-q"}
	if f.ThinPack {
		args = append(args, "--thin")
	}
	if f.OfsDelta {
		args = append(args, "--delta-base-offset")
	}
	if f.IncludeTag {
		args = append(args, "--include-tag")
	}
	args = append(args, filterArgs(f.Filter)...)
	// What is lifted stays an edge: the client has it, and its parents are wanted.
	edge := slices.Concat(up.Shallow, f.ClientShallow)
	if len(edge) > 0 {
		args = append([]string{"--shallow-file", ""}, append(args, "--shallow")...)
	}
	in := lines("--shallow ", edge) + lines("", f.Wants)
	for _, id := range up.Unshallow {
		parents, err := r.run(ctx, nil, "rev-parse", id.String()+"^@")
		if err != nil {
			return err
		}
		in += string(parents)
	}
	in += "--not\n" + lines("", f.Haves) + lines("", up.Unshallow) + "\n"
	return r.pipe(ctx, strings.NewReader(in), w, "GIT_PROTOCOL=", args...)
}

func filterArgs(f wire.Filter) []string {
	var args []string
	if f.HasBlobLimit {
		args = append(args, fmt.Sprintf("--filter=blob:limit=%d", f.BlobLimit))
	}
	if f.HasTreeDepth {
		args = append(args, fmt.Sprintf("--filter=tree:%d", f.TreeDepth))
	}
	if f.Type != object.Invalid {
		args = append(args, "--filter=object:type="+f.Type.String())
	}
	return args
}
