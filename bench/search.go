package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// search measures grep over all files of a repository, and blame of one that every
// tenth commit changes, beside git in a full clone on the same machine.
func (b *bench) search(rows []row, files, commits int) error {
	h := history{name: "search", dir: filepath.Join(b.root, "search.git")}
	if _, err := git(b.root, "", "init", "-q", "--bare", "search.git"); err != nil {
		return err
	}
	if _, err := git(h.dir, stream(3, files, 0)+edits(files, commits), "fast-import", "--quiet"); err != nil {
		return err
	}
	if err := b.publish(&h); err != nil {
		return err
	}
	c, err := dial(b.shared.URL)
	if err != nil {
		return err
	}
	defer c.Close()
	authorization := "Authorization: Bearer " + b.shared.Token(harness.Grant{Repo: h.name})
	base := b.shared.URL + "/api/repos/" + h.name
	ask := func(request []byte) (float64, error) {
		start := time.Now()
		if _, err := c.do(request); err != nil {
			return 0, fmt.Errorf("%w: %.300q", err, c.head)
		}
		return since(start), nil
	}
	// No pattern comes twice: pages are remembered.
	w := newWords(3)
	patterns := []func() string{
		func() string { return w.vocabulary[w.IntN(4000)] + " [a-z]+ " + w.vocabulary[w.IntN(4000)] + " " },
		func() string { return fmt.Sprintf("[q%c][xz][q%[1]c][jz]%[2]c[a-z]* ", 'a'+w.IntN(26), 'a'+w.IntN(26)) },
	}
	for i, pattern := range patterns {
		expr := ""
		err := b.beside(&rows[i],
			func() (float64, error) {
				expr = pattern()
				body, err := json.Marshal(map[string]any{"query": map[string]any{"pattern": expr}})
				if err != nil {
					return 0, err
				}
				return ask(request(http.MethodPost, base+"/grep", body, authorization))
			},
			func() (float64, error) { return timed(h.dir, "grep", "-n", "-I", "-E", "-e", expr, h.tip) })
		if err != nil {
			return err
		}
	}
	path := filePath(0)
	return b.beside(&rows[len(patterns)],
		func() (float64, error) {
			return ask(request(http.MethodGet, base+"/blame?path="+url.QueryEscape(path), nil, authorization))
		},
		func() (float64, error) { return timed(h.dir, "blame", "--porcelain", h.tip, "--", path) })
}

// timed runs git, which may find nothing.
func timed(dir string, args ...string) (float64, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, harness.GitEnv(dir)
	start := time.Now()
	out, err := cmd.Output()
	elapsed := since(start)
	if err != nil && (args[0] != "grep" || cmd.ProcessState.ExitCode() != 1) {
		return 0, fmt.Errorf("git %s: %w: %.300q", args[0], err, out)
	}
	return elapsed, nil
}

// edits is a history of n commits upon main: every tenth changes a line of the first
// of some files, the others one of the rest.
func edits(files, n int) string {
	w := newWords(4)
	var out strings.Builder
	text := make([]string, 500)
	for i := range text {
		text[i] = w.line()
	}
	for i := range n {
		fmt.Fprintf(&out, "commit refs/heads/main\ncommitter Agent <agent@example.com> %d +0000\ndata 4\nedit\n", 1600000001+i)
		file, content := 1+w.IntN(files-1), w.line()
		if i%10 == 0 {
			text[w.IntN(len(text))] = w.line()
			file, content = 0, strings.Join(text, "")
		}
		fmt.Fprintf(&out, "M 100644 inline %s\ndata %d\n%s\n", filePath(file), len(content), content)
	}
	return out.String()
}
