package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// Check finds what is wrong with the stores and with the given repositories, by
// every check that Cairn has.
func (s *Stack) Check(ctx context.Context, ids ...meta.RepoID) error {
	var found []string
	report := func(f repo.Finding) {
		if f.Kind != repo.FindUnreferenced {
			found = append(found, fmt.Sprintf("%s: %s", f.Kind, f.Detail))
		}
	}
	for _, id := range ids {
		r, err := s.Meta.Repo(ctx, id)
		if err != nil {
			return err
		}
		if err := s.Engine.Fsck(ctx, r, report); err != nil {
			return err
		}
	}
	if err := s.Engine.FsckBlobs(ctx, report); err != nil {
		return err
	}
	objects := func(f content.Finding) {
		if f.Kind != content.FindUnreferenced {
			found = append(found, fmt.Sprintf("%s: %s", f.Kind, f.Detail))
		}
	}
	if err := errors.Join(s.Content.Fsck(ctx, Org, s.Checkpoints.Live, objects), s.Content.FsckBlobs(ctx, objects)); err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("fsck: %s", strings.Join(found, "; "))
	}
	return nil
}

// Integrity runs SQLite's own check of its file.
func (s *Stack) Integrity() error {
	c, err := sqlite3.Open("file:///meta.db?vfs=" + s.VFS)
	if err != nil {
		return err
	}
	defer c.Close()
	st, _, err := c.Prepare(`PRAGMA integrity_check`)
	if err != nil {
		return err
	}
	defer st.Close()
	var rows []string
	for st.Step() {
		rows = append(rows, st.ColumnText(0))
	}
	if err := st.Err(); err != nil {
		return err
	}
	if len(rows) != 1 || rows[0] != "ok" {
		return fmt.Errorf("integrity check: %s", strings.Join(rows, "; "))
	}
	return nil
}

// Leftovers are blobs and rows that only work under way, or a crash, leaves behind.
type Leftovers struct {
	Uploads, Retired, Unreferenced int
}

// Left counts what a sweep has to remove.
func (s *Stack) Left(ctx context.Context, clock *Clock) (Leftovers, error) {
	var l Leftovers
	uploads, err := s.Meta.Uploads(ctx)
	if err != nil {
		return l, err
	}
	retired, err := s.Meta.Retired(ctx, clock.Now(), 1<<20)
	if err != nil {
		return l, err
	}
	l.Uploads, l.Retired = len(uploads), len(retired)
	err = s.Engine.FsckBlobs(ctx, func(f repo.Finding) {
		if f.Kind == repo.FindUnreferenced {
			l.Unreferenced++
		}
	})
	if err != nil {
		return l, err
	}
	err = s.Content.FsckBlobs(ctx, func(f content.Finding) {
		if f.Kind == content.FindUnreferenced {
			l.Unreferenced++
		}
	})
	return l, err
}

// Export writes a repository as a bare one into an empty directory, by its packs
// and refs, and lets git check it, unreachable objects included.
func (s *Stack) Export(ctx context.Context, id meta.RepoID, dir string) error {
	if _, err := Git(dir, nil, "init", "-q", "--bare", "-b", "main"); err != nil {
		return err
	}
	v, err := s.View(ctx, id)
	if err != nil {
		return err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return err
	}
	for _, p := range db.Packs() {
		if p.Info().Class == meta.PackGarbage {
			continue // nobody finds what is there; what it needs may be gone
		}
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			return err
		}
		if _, err := Git(dir, b.Bytes(), "index-pack", "--stdin", "--strict"); err != nil {
			return err
		}
	}
	refs, err := s.Refs(ctx, id)
	if err != nil {
		return err
	}
	var b strings.Builder
	for name, to := range refs {
		fmt.Fprintf(&b, "update %s %s\n", name, to)
	}
	if _, err := Git(dir, []byte(b.String()), "update-ref", "--stdin"); err != nil {
		return err
	}
	_, err = Git(dir, nil, "fsck", "--full", "--strict")
	return err
}

// Git runs git in a directory with none of the machine's configuration, and
// returns its output without surrounding space.
func Git(dir string, input []byte, args ...string) (string, error) {
	return GitWith(dir, nil, input, args...)
}

// GitWith is Git with further variables.
func GitWith(dir string, env []string, input []byte, args ...string) (string, error) {
	out, err := git(dir, env, input, args...)
	return strings.TrimSpace(string(out)), err
}

// GitRaw is Git with its output as it is.
func GitRaw(dir string, input []byte, args ...string) ([]byte, error) {
	return git(dir, nil, input, args...)
}

func git(dir string, env []string, input []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	when := fmt.Sprintf("%d %s", Someone.When, Someone.Zone)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=" + Someone.Name, "GIT_AUTHOR_EMAIL=" + Someone.Email, "GIT_AUTHOR_DATE=" + when,
		"GIT_COMMITTER_NAME=" + Someone.Name, "GIT_COMMITTER_EMAIL=" + Someone.Email, "GIT_COMMITTER_DATE=" + when,
	}, env...)
	cmd.Stdin = bytes.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out, nil
}
