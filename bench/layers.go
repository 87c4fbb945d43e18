package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnstate/cairn/tests/harness"
)

// layers measures the large fetches again after small pushes and API commits on
// top of the large history, beside the same history as one pack: before the
// compaction (4 rows: depth 1 and whole, each with its bytes) and after it.
func (b *bench) layers(rows []row) error {
	base, err := b.large()
	if err != nil {
		return err
	}
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	const name = "layered"
	if err := s.CreateRepo(name); err != nil {
		return err
	}
	remote := s.Remote(harness.Grant{Repo: name}, "")
	if _, err := git(base.dir, "", "push", "-q", remote, "main"); err != nil {
		return err
	}
	if err := b.pushOnTop(s, base, name); err != nil {
		return err
	}
	if err := commitOnTop(s, name, b.size(2000, 200)); err != nil {
		return err
	}
	single, err := b.single(remote)
	if err != nil {
		return err
	}
	measure := func(rows []row) error {
		for i, depth := range []int{1, 0} {
			ours, _ := b.requests(s, name, fetch(depth, single.tip))
			theirs, _ := b.requests(b.shared, single.name, fetch(depth, single.tip))
			if err := b.answer(rows[2*i:2*i+2], s.URL, ours, b.shared.URL, theirs); err != nil {
				return err
			}
		}
		return nil
	}
	if err := measure(rows[:4]); err != nil {
		return err
	}
	if reason, err := compact(s, "--full"); err != nil {
		return err
	} else if reason != "" {
		for i := range rows[4:] {
			rows[4+i].Note = reason
		}
		return nil
	}
	return measure(rows[4:])
}

// pushOnTop makes small commits on top of a history with git and pushes each
// alone.
func (b *bench) pushOnTop(s *harness.Server, base history, name string) error {
	dir, err := os.MkdirTemp(b.dir, "layers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := git(dir, "", "clone", "-q", "--bare", base.dir, "work.git"); err != nil {
		return err
	}
	dir = filepath.Join(dir, "work.git")
	w := newWords(7)
	var input strings.Builder
	for n := range b.size(200, 20) {
		message, text := fmt.Sprintf("Push %d\n", n), w.text(60)
		fmt.Fprintf(&input, "commit refs/heads/main\ncommitter Agent <agent@example.com> %d +0000\ndata %d\n%s\n", 1700000000+n, len(message), message)
		if n == 0 {
			fmt.Fprintf(&input, "from refs/heads/main^0\n")
		}
		fmt.Fprintf(&input, "M 100644 inline %s\ndata %d\n%s\n", filePath(w.IntN(4000)), len(text), text)
	}
	if _, err := git(dir, input.String(), "fast-import", "--quiet"); err != nil {
		return err
	}
	list, err := git(dir, "", "rev-list", "--reverse", base.tip+"..main")
	if err != nil {
		return err
	}
	remote := s.Remote(harness.Grant{Repo: name}, "")
	for _, id := range strings.Fields(list) {
		if _, err := git(dir, "", "push", "-q", remote, id+":refs/heads/main"); err != nil {
			return err
		}
	}
	return nil
}

// commitOnTop adds n commits of three changed files to main.
func commitOnTop(s *harness.Server, name string, n int) error {
	token := s.Token(harness.Grant{Repo: name})
	w := newWords(8)
	_, err := alone(s.URL, n, func() []byte {
		c := harness.Commit{Repo: name, Branch: "main", Message: "Save", Files: map[string]string{}}
		for len(c.Files) < 3 {
			c.Files[filePath(w.IntN(4000))] = w.text(60)
		}
		return commitRequest(s, c, token)
	})
	return err
}

// text is some lines.
func (w words) text(lines int) string {
	var b strings.Builder
	for range lines {
		b.WriteString(w.line())
	}
	return b.String()
}

// single makes a copy of a repository that is one pack, on the shared server.
func (b *bench) single(remote string) (history, error) {
	h := history{name: "single", dir: filepath.Join(b.root, "single.git")}
	if _, err := git(b.root, "", "clone", "-q", "--bare", remote, "single.git"); err != nil {
		return h, err
	}
	return h, b.publish(&h)
}

// compact has everything on a server's storage compacted and collected, without
// grace, with further flags. A reason means that the program cannot do it.
func compact(s *harness.Server, flags ...string) (reason string, err error) {
	if _, err := s.Client("gc", "--help"); err != nil {
		return "this program has no cairn gc", nil
	}
	_, err = s.Operate(append([]string{"gc", "--garbage-grace", "0s", "--unseen-grace", "0s"}, flags...)...)
	return "", err
}
