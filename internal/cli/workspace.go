package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/option"
)

// checkpoints returns the checkpoints of the server that the environment names.
func checkpoints(env Env) (*checkpoint.Remote, error) {
	base, err := serverURL(env)
	if err != nil {
		return nil, err
	}
	opts := []option.ClientOption{option.WithBaseURL(base.String()), option.WithSubject("cairn-cli"), option.WithOrg(first(env.Getenv("CAIRN_ORG"), env.Getenv("PIERRE_ORG")))}
	var id identity
	switch key := id.privateKey(env); {
	case env.Getenv("CAIRN_TOKEN") != "":
		opts = append(opts, option.WithToken(env.Getenv("CAIRN_TOKEN")))
	case env.Getenv("CAIRN_TOKEN_FILE") != "":
		opts = append(opts, option.WithTokenFile(env.Getenv("CAIRN_TOKEN_FILE")))
	case key != "":
		opts = append(opts, option.WithPrivateKey(key))
	default:
		return nil, usagef("give a token with CAIRN_TOKEN or CAIRN_TOKEN_FILE, or the org's private key with CAIRN_PRIVATE_KEY")
	}
	client, err := cairn.NewClient(opts...)
	if err != nil {
		return nil, usageError{err}
	}
	return checkpoint.NewRemote(client), nil
}

// workspaceFlags say which directories are captured or restored, and how.
type workspaceFlags struct {
	thread  string
	roots   []string
	policy  string
	include []string
	exclude []string
	secrets []string
	asJSON  bool
}

func (w *workspaceFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.thread, "thread", "", "the `THREAD` of checkpoints (CAIRN_THREAD)")
	f.StringArrayVar(&w.roots, "root", nil, "a directory, `[NAME=]DIR`; /workspace when there is none, and NAME is workspace when it is left out")
	f.StringArrayVar(&w.secrets, "secret-env", nil, "the variable `NAME` holds a secret: its value is stored nowhere, and a restore puts it back")
	f.BoolVar(&w.asJSON, "json", false, "print one JSON document")
}

func (w *workspaceFlags) policyFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.policy, "policy", "", "default (leaves out .git, node_modules, .env*), full, or a `FILE` in the syntax of gitignore")
	f.StringArrayVar(&w.include, "include", nil, "only what this `PATTERN` matches, and what lies beneath it")
	f.StringArrayVar(&w.exclude, "exclude", nil, "leave out what this `PATTERN` matches")
}

// threadName returns the thread, which has to be given.
func (w *workspaceFlags) threadName(env Env) (string, error) {
	if name := first(w.thread, env.Getenv("CAIRN_THREAD")); name != "" {
		return name, nil
	}
	return "", usagef("give the thread with --thread or CAIRN_THREAD")
}

// rootList reads --root.
func (w *workspaceFlags) rootList() (roots []checkpoint.Root, err error) {
	for _, text := range w.roots {
		r := checkpoint.Root{Path: text}
		if name, dir, ok := strings.Cut(text, "="); ok && !strings.Contains(name, "/") {
			r = checkpoint.Root{Name: name, Path: dir}
			if name == "" {
				return nil, usagef("--root %q: the name before = is empty", text)
			}
		}
		if r.Path == "" {
			return nil, usagef("--root %q names no directory", text)
		}
		roots = append(roots, r)
	}
	if len(roots) == 0 {
		roots = []checkpoint.Root{{Path: checkpoint.DefaultRootPath}}
	}
	return roots, nil
}

// policyOf reads the policy flags; nil where none is given. The data of a server for
// development (CAIRN_DATA) is never part of a workspace.
func (w *workspaceFlags) policyOf(env Env, roots []checkpoint.Root) (*checkpoint.Policy, error) {
	exclude := append(slices.Clone(w.exclude), serverData(env, roots)...)
	if w.policy == "" && len(w.include)+len(exclude) == 0 {
		return nil, nil
	}
	p := &checkpoint.Policy{Base: first(w.policy, "default"), Include: w.include, Exclude: exclude}
	if p.Base != "default" && p.Base != "full" {
		b, err := env.ReadFile(p.Base)
		if err != nil {
			return nil, usagef("--policy: want default, full, or a file that can be read (%v)", err)
		}
		p.Base, p.Rules = "rules", string(b)
	}
	return p, nil
}

// serverData returns patterns that leave the directory that CAIRN_DATA names out of
// roots: its keys are no files to keep, and a restore would take them from the server.
func serverData(env Env, roots []checkpoint.Root) (patterns []string) {
	data := env.Getenv("CAIRN_DATA")
	if data == "" {
		return nil
	}
	data = realPath(data)
	for _, r := range roots {
		if rel, err := filepath.Rel(realPath(r.Path), data); err == nil && rel != "." && filepath.IsLocal(rel) {
			patterns = append(patterns, "/"+strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(rel))
		}
	}
	return patterns
}

// realPath is where a path leads to, from the top and without links so far as it
// exists.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// secretList reads the variables of --secret-env.
func (w *workspaceFlags) secretList(env Env) (secrets []checkpoint.Secret, err error) {
	for _, name := range w.secrets {
		value := env.Getenv(name)
		if value == "" {
			return nil, usagef("--secret-env %s: the variable is not set", name)
		}
		secrets = append(secrets, checkpoint.Secret{Name: name, Value: value})
	}
	return secrets, nil
}

// checkpointRow is a checkpoint as printed.
func checkpointRow(c *checkpoint.Checkpoint) map[string]any {
	if c == nil {
		return nil
	}
	row := map[string]any{
		"id": c.ID, "thread": c.Thread, "parent": nil, "created_at": c.CreatedAt.UTC().Format(time.RFC3339Nano), "reason": c.Reason,
		"label": nil, "run": nil, "root": nil, "pinned": c.Pinned, "kind": "manifest",
		"stats": map[string]any{"entries": c.Stats.Entries, "files": c.Stats.Files, "bytes": c.Stats.Bytes},
	}
	for name, value := range map[string]string{"parent": c.Parent, "label": c.Label, "run": c.Run} {
		if value != "" {
			row[name] = value
		}
	}
	if c.Native() {
		row["root"], row["kind"] = c.Root.String(), "native"
	}
	if c.Git != nil {
		row["git"] = map[string]string{"repo": c.Git.Repo, "branch": c.Git.Branch, "commit": c.Git.Commit}
	}
	if c.From != nil {
		row["source"] = map[string]string{"thread": c.From.Thread, "checkpoint": c.From.Checkpoint}
	}
	return row
}

// pathRow is a path with what became of it, as printed.
type pathRow struct {
	Path   string `json:"path"`
	Reason string `json:"reason,omitempty"`
}

func pathRows(l checkpoint.List) []pathRow {
	rows := make([]pathRow, 0, len(l.Paths))
	for _, p := range l.Paths {
		rows = append(rows, pathRow(p))
	}
	return rows
}

func pathNames(l checkpoint.List) []string {
	names := make([]string, 0, len(l.Paths))
	for _, p := range l.Paths {
		names = append(names, p.Path)
	}
	return names
}

// excluded is the reason of paths that were left out because somebody said so.
const excluded = checkpoint.ReasonExcluded

// leftOut prints what was left out. Paths that a policy excludes are counted,
// others are named, and make the result a partial one.
func leftOut(w io.Writer, lists ...checkpoint.List) (partial bool) {
	byPolicy, named, others := 0, 0, 0
	for _, l := range lists {
		byPolicy += l.Excluded
		others += l.Total - l.Excluded
		for _, p := range l.Paths {
			if p.Reason != excluded {
				named++
				fmt.Fprintf(w, "left out: %q: %s\n", p.Path, p.Reason)
			}
		}
	}
	if byPolicy > 0 {
		fmt.Fprintf(w, "excluded by the policy: %s\n", counted(byPolicy, "path"))
	}
	if others > named {
		fmt.Fprintf(w, "and %d other paths were left out\n", others-named)
	}
	return others > 0
}

// offenders prints every path that a capture was refused for, and how to leave
// them out.
func offenders(w io.Writer, e *checkpoint.UnsupportedEntryError) {
	for _, p := range e.Entries {
		fmt.Fprintf(w, "cannot be captured: %q: %s\n", p.Path, p.Reason)
	}
	fmt.Fprint(w, "to leave them out, add:")
	for _, x := range slices.Compact(slices.Clone(e.Excludes)) {
		fmt.Fprintf(w, " --exclude %s", quoteShell(x))
	}
	fmt.Fprintln(w)
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// meter shows how far long work has come: one line of standard error, on a terminal
// only.
type meter struct {
	w     io.Writer // nil where nothing is shown
	shown time.Time
}

func newMeter(env Env) *meter {
	if f, ok := env.Stderr.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return &meter{w: f}
		}
	}
	return &meter{}
}

// show replaces the line, a few times a second.
func (m *meter) show(verb string, objects, bytes uint64) {
	if m.w == nil || time.Since(m.shown) < 200*time.Millisecond {
		return
	}
	m.shown = time.Now()
	fmt.Fprintf(m.w, "\r\x1b[K%s %d objects, %.1f MiB", verb, objects, float64(bytes)/(1<<20))
}

// end takes the line away.
func (m *meter) end() {
	if !m.shown.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}

// interrupted adds to an error of work that a signal ended what became of the work.
func interrupted(ctx context.Context, err error, what string) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("interrupted (%v): %s", context.Cause(ctx), what)
}

// forgotten tells that the next command knows nothing of this one.
func forgotten(w io.Writer, id string) {
	fmt.Fprintf(w, "nothing is remembered: no directory outside of the workspace can be written; name one with CAIRN_STATE_DIR, or give the next capture --onto %s\n", id)
}

// conversation reads a file that holds a JSON list.
func conversation(env Env, path string) (list []json.RawMessage, err error) {
	if path == "" {
		return nil, nil
	}
	b, err := env.ReadFile(path)
	if err != nil {
		return nil, usagef("--conversation: %v", err)
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, usagef("--conversation %s: want a JSON list of messages: %v", path, err)
	}
	return list, nil
}
