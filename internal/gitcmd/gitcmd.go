// Package gitcmd runs the git program: the only way to it. It knows the
// subcommands that are used, gives each an environment of its own, and bounds
// time, output and the number of processes. git works on a [Dir], a bare view
// made for one task, and is only ever given full object ids.
package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Subcommand is a git command that this package knows.
type Subcommand string

// The commands.
const (
	// PackObjects reads object ids, each with a name that similar objects share,
	// and writes a pack of them.
	PackObjects Subcommand = "pack-objects"
	// MergeTree merges two commits, writes the trees and blobs that are new, and
	// says what is in conflict.
	MergeTree Subcommand = "merge-tree"
	// DiffTree compares two trees.
	DiffTree Subcommand = "diff-tree"
	// Blame says which commits the lines of a file come from. It does not know
	// --end-of-options: its arguments are a commit's full id, "--" and a path.
	Blame Subcommand = "blame"
	// ReadTree puts a tree into the index of the view, Apply applies a patch to the
	// index, and WriteTree makes a tree of it.
	ReadTree  Subcommand = "read-tree"
	Apply     Subcommand = "apply"
	WriteTree Subcommand = "write-tree"
)

// known are the commands, with the options that each may be given, by name. A name
// that ends in "*" is one whose value follows it at once.
var known = map[Subcommand][]string{
	PackObjects: {"--stdout", "-q", "--delta-base-offset", "--threads", "--window", "--depth"},
	MergeTree:   {"--write-tree", "-z", "--messages", "--allow-unrelated-histories"},
	Blame:       {"--incremental", "-M", "-C", "-L*"},
	DiffTree:    {"-r", "-z", "--raw", "--numstat", "-p", "-M", "-C", "-b", "--diff-filter", "--full-index", "--binary", "--no-ext-diff", "--no-textconv"},
	ReadTree:    {},
	Apply:       {"--cached", "--binary", "--whitespace", "--numstat", "-z"},
	WriteTree:   {"--missing-ok"},
}

// settings are given to every command.
var settings = []string{
	// Nothing that git writes outlives its task.
	"core.fsync=none", "core.createObject=rename",
	"core.hooksPath=/dev/null", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never",
	// Bounds of git's memory: large objects are streamed, not compared.
	"core.bigFileThreshold=32m", "pack.windowMemory=128m", "pack.deltaCacheSize=64m", "core.packedGitLimit=256m",
}

// Defaults of Config.
const (
	DefaultProgram = "git"
	DefaultSlots   = 2
	DefaultTimeout = 10 * time.Minute
	// killWait is how long output is awaited after the processes were killed.
	killWait = 5 * time.Second
	// stderrBytes is how much of git's own words an error holds.
	stderrBytes = 4 << 10
)

// Config says how git is run.
type Config struct {
	// Program is the name or path of git; "" means DefaultProgram.
	Program string
	// Slots is how many commands may run at a time; 0 means DefaultSlots.
	Slots int
}

// Git runs commands. It is safe for concurrent use.
type Git struct {
	program string
	slots   chan struct{}

	once sync.Once
	path string
	err  error
}

// New returns a Git. The program is looked for when it is first needed.
func New(cfg Config) *Git {
	if cfg.Program == "" {
		cfg.Program = DefaultProgram
	}
	if cfg.Slots == 0 {
		cfg.Slots = DefaultSlots
	}
	return &Git{program: cfg.Program, slots: make(chan struct{}, cfg.Slots)}
}

// Command is one run of git.
type Command struct {
	Name    Subcommand
	Options []string
	// Args come after all options, and are never taken for one.
	Args []string
	In   io.Reader // nil is empty
	Out  io.Writer
	// Timeout bounds the run; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxOutput bounds what goes to Out, in bytes; it must be set.
	MaxOutput int64
	// MaxMemory bounds the address space of the process in bytes, where the system
	// can; 0 does not.
	MaxMemory int64
}

// ErrOutput says that a command wrote more than it may.
var ErrOutput = errors.New("git wrote more than it may")

// ExitError says that git failed.
type ExitError struct {
	Name   Subcommand
	Status int    // -1 when it was killed
	Stderr string // the beginning of what it said
}

// Error names the command, its status and what it said.
func (e *ExitError) Error() string {
	return fmt.Sprintf("git %s ended with status %d: %q", e.Name, e.Status, e.Stderr)
}

// Run runs a command in a view. It waits while too many run. When ctx ends, or
// the time or output is used up, git and all that it started are killed. A
// failure of git is an *ExitError.
func (g *Git) Run(ctx context.Context, dir *Dir, c Command) error {
	args, err := arguments(c)
	if err != nil {
		return err
	}
	path, err := g.find()
	if err != nil {
		return err
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	run, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := &bounded{w: c.Out, left: c.MaxOutput, over: cancel}
	said := &clipped{}
	args = append([]string{"-c", "core.attributesFile=" + dir.attributesFile()}, args...)
	cmd := exec.CommandContext(run, path, args...)
	cmd.Dir = dir.path
	cmd.Env = environment(path, dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, out, said
	cmd.WaitDelay = killWait
	ownGroup(cmd)
	if err = cmd.Start(); err == nil {
		if c.MaxMemory > 0 {
			limitMemory(cmd.Process.Pid, uint64(c.MaxMemory))
		}
		err = cmd.Wait()
	}
	return failure(ctx, run, c, timeout, out, said, err)
}

// failure returns why a run failed, nil if it did not.
func failure(ctx, run context.Context, c Command, timeout time.Duration, out *bounded, said *clipped, err error) error {
	var exit *exec.ExitError
	switch {
	case out.err != nil:
		return fmt.Errorf("run git %s: %w", c.Name, out.err)
	case ctx.Err() != nil:
		return ctx.Err()
	case run.Err() != nil:
		return fmt.Errorf("run git %s: it took longer than %s: %w", c.Name, timeout, run.Err())
	case errors.As(err, &exit):
		return &ExitError{Name: c.Name, Status: exit.ExitCode(), Stderr: strings.TrimSpace(said.buf.String())}
	case err != nil:
		return fmt.Errorf("run git %s: %w", c.Name, err)
	}
	return nil
}

// arguments returns the checked command line.
func arguments(c Command) ([]string, error) {
	options, ok := known[c.Name]
	if !ok {
		return nil, fmt.Errorf("git command %q is not one that is used here", c.Name)
	}
	if c.MaxOutput <= 0 || c.Out == nil {
		return nil, fmt.Errorf("git %s: its output must be taken and bounded", c.Name)
	}
	var args []string
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	switch c.Name {
	case MergeTree, Apply, WriteTree:
		// What they write is read once, on this machine.
		args = append(args, "-c", "core.looseCompression=0")
	}
	args = append(args, string(c.Name))
	for _, o := range c.Options {
		name, _, _ := strings.Cut(o, "=")
		if !slices.Contains(options, name) && !(len(o) > 2 && slices.Contains(options, o[:2]+"*")) {
			return nil, fmt.Errorf("git %s: option %q is not one that is used here", c.Name, o)
		}
		args = append(args, o)
	}
	if c.Name == Blame {
		if len(c.Args) != 3 || c.Args[1] != "--" || !isID(c.Args[0]) {
			return nil, fmt.Errorf("git %s: its arguments must be a full object id, %q and a path", c.Name, "--")
		}
		return append(args, c.Args...), nil
	}
	args = append(args, "--end-of-options")
	return append(args, c.Args...), nil
}

func isID(text string) bool {
	_, err := object.ParseID(text)
	return err == nil
}

func (g *Git) find() (string, error) {
	g.once.Do(func() {
		if g.path, g.err = exec.LookPath(g.program); g.err != nil {
			g.err = fmt.Errorf("find the git program: %w; install git 2.38 or later", g.err)
		}
	})
	return g.path, g.err
}

// environment is all that git learns of its surroundings.
func environment(path string, dir *Dir) []string {
	return []string{
		"PATH=" + filepath.Dir(path), "HOME=" + dir.path, "LC_ALL=C",
		"GIT_DIR=" + dir.shared, "GIT_OBJECT_DIRECTORY=" + dir.path, "GIT_SHALLOW_FILE=" + dir.shallowFile(),
		"GIT_INDEX_FILE=" + filepath.Join(dir.path, "index"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
	}
}

// bounded passes on a bounded number of bytes and ends the run at more, or when
// they cannot be passed on.
type bounded struct {
	w    io.Writer
	left int64
	over func()
	err  error
}

// Write passes on b.
func (b *bounded) Write(p []byte) (int, error) {
	if b.err == nil && int64(len(p)) > b.left {
		b.err = ErrOutput
	}
	if b.err != nil {
		b.over()
		return 0, b.err
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	if err != nil {
		b.err = err
		b.over()
	}
	return n, err
}

// clipped keeps the first stderrBytes of what is written.
type clipped struct{ buf bytes.Buffer }

// Write takes all of p.
func (c *clipped) Write(p []byte) (int, error) {
	c.buf.Write(p[:min(len(p), stderrBytes-c.buf.Len())])
	return len(p), nil
}
