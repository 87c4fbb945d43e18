package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// pages measures lists that are read page by page while somebody else commits and
// makes branches: branches, commits and files, the median time of a page.
func (b *bench) pages(rows []row, branches, commits, files int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	if _, err := b.branchy(s, "branches", branches); err != nil {
		return err
	}
	if err := b.imported(s, "commits", stream(1, 3, 0)+changes(3, commits)); err != nil {
		return err
	}
	if err := b.imported(s, "files", flatFiles(files)); err != nil {
		return err
	}
	for i, list := range []lists{
		{"branches", "branches?ephemeral=true&limit=100", branches},
		{"commits", "commits?limit=100", commits},
		{"files", "files?limit=1000", files},
	} {
		stop, err := b.disturb(s, list.repo)
		if err != nil {
			return err
		}
		times, items, err := list.read(s)
		if err := stop(); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		if items < list.least {
			return fmt.Errorf("the list of %s had %d, want %d", list.repo, items, list.least)
		}
		rows[i].Cairn = median(times)
		rows[i].Note = fmt.Sprintf("%d pages, the slowest %.1f ms", len(times), times[len(times)-1])
	}
	return nil
}

// details measures the whole list of files with the commits that last touched
// them: just after the server was started, and again.
func (b *bench) details(rows []row, files, commits int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	if err := b.imported(s, "details", stream(2, files, commits)); err != nil {
		return err
	}
	list := lists{"details", "files/metadata?limit=1000", files}
	var cold, warm []float64
	for range b.rounds {
		if err := restart(s); err != nil {
			return err
		}
		for _, into := range []*[]float64{&cold, &warm} {
			times, items, err := list.read(s)
			if err != nil {
				return err
			}
			if items < files {
				return fmt.Errorf("the list had %d files, want %d", items, files)
			}
			total := 0.0
			for _, t := range times {
				total += t
			}
			*into = append(*into, total)
		}
	}
	rows[0].Cairn, rows[1].Cairn = median(cold), median(warm)
	return nil
}

// changes is a history of n commits upon main that change one of a few files.
func changes(files, n int) string {
	var out strings.Builder
	for i := range n {
		text := fmt.Sprintf("change %d\n", i)
		fmt.Fprintf(&out, "commit refs/heads/main\ncommitter Agent <agent@example.com> %d +0000\ndata %d\n%sM 100644 inline %s\ndata %d\n%s\n",
			1600000001+i, len(text), text, filePath(i%files), len(text), text)
	}
	return out.String()
}

// flatFiles is a history of one commit with n small files.
func flatFiles(n int) string {
	var out strings.Builder
	out.WriteString("commit refs/heads/main\ncommitter Agent <agent@example.com> 1600000000 +0000\ndata 5\nfiles\n")
	for i := range n {
		fmt.Fprintf(&out, "M 100644 inline d%03d/f%05d\ndata 6\n%06d\n", i/100, i, i)
	}
	return out.String()
}

// imported makes a repository of a stream for git fast-import.
func (b *bench) imported(s *harness.Server, name, stream string) error {
	dir, err := os.MkdirTemp(b.dir, "import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "x.git")
	for _, step := range []struct {
		dir, input string
		args       []string
	}{
		{b.dir, "", []string{"init", "-q", "--bare", dir}},
		{dir, stream, []string{"fast-import", "--quiet"}},
		{dir, "", []string{"repack", "-adfq"}},
	} {
		if _, err := git(step.dir, step.input, step.args...); err != nil {
			return err
		}
	}
	if err := s.CreateRepo(name); err != nil {
		return err
	}
	_, err = git(dir, "", "push", "-q", s.Remote(harness.Grant{Repo: name}, ""), "main")
	return err
}

// disturb commits to a branch of a repository, about 50 times a second, until stop.
func (b *bench) disturb(s *harness.Server, repo string) (stop func() error, err error) {
	c, err := dial(s.URL)
	if err != nil {
		return nil, err
	}
	token := s.Token(harness.Grant{Repo: repo})
	end := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer c.Close()
		for i := 0; ; i++ {
			select {
			case <-end:
				failed <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, err := c.do(commitRequest(s, harness.Commit{Repo: repo, Branch: "main", Message: "Meanwhile", Files: map[string]string{"meanwhile.txt": fmt.Sprint(i)}}, token))
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	return sync.OnceValue(func() error { close(end); return <-failed }), nil
}

// lists is a list that is read page by page.
type lists struct {
	repo, path string
	least      int // items that it has
}

// read reads all pages over one connection and returns the time of each in ms and
// the number of items.
func (l lists) read(s *harness.Server) (times []float64, items int, err error) {
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	token := s.Token(harness.Grant{Repo: l.repo})
	for cursor := ""; ; {
		req, err := http.NewRequest("GET", s.URL+"/api/repos/"+l.repo+"/"+l.path+"&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return nil, 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		start := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			return nil, 0, err
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return nil, 0, err
		}
		times = append(times, since(start))
		if resp.StatusCode != http.StatusOK {
			return nil, 0, fmt.Errorf("list %s: %s: %.300s", l.path, resp.Status, data)
		}
		var page struct {
			Branches, Commits, Files, Paths json.RawMessage
			Next                            string `json:"next_cursor"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, 0, err
		}
		for _, list := range []json.RawMessage{page.Branches, page.Files, page.Paths, page.Commits} {
			var elements []json.RawMessage
			if json.Unmarshal(list, &elements) == nil {
				items += len(elements)
			}
		}
		if cursor = page.Next; cursor == "" {
			return times, items, nil
		}
	}
}
