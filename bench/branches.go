package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

// branchName is the name of ephemeral branch number i.
func branchName(i int) string { return fmt.Sprintf("agents/session-%06d", i) }

// branches measures a repository with many ephemeral branches beside one with 10:
// the listing of one ref (p99), a commit, a push confined to one branch, and that
// push's advertisement in bytes.
func (b *bench) branches(rows []row, n int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	many, err := b.branchy(s, "many", n)
	if err != nil {
		return err
	}
	few, err := b.branchy(s, "few", 10)
	if err != nil {
		return err
	}
	times := b.size(3000, 1000)
	if err := b.beside(&rows[0], func() (float64, error) { return many.list(n/2, times, 99) }, nil); err != nil {
		return err
	}
	if err := b.beside(&rows[1], func() (float64, error) { return many.commit(times / 5) }, func() (float64, error) { return few.commit(times / 5) }); err != nil {
		return err
	}
	if err := b.beside(&rows[2], func() (float64, error) { return many.push(times / 5) }, func() (float64, error) { return few.push(times / 5) }); err != nil {
		return err
	}
	rows[3].Cairn = float64(many.advertised)
	return nil
}

// crowd measures a repository with so many ephemeral branches that their names
// and values do not fit the cache's share for all others, beside one with 10: the
// listing of one ref, a commit, and the server's peak memory.
func (b *bench) crowd(rows []row, n int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	many, err := b.branchy(s, "many", n)
	if err != nil {
		return err
	}
	few, err := b.branchy(s, "few", 10)
	if err != nil {
		return err
	}
	const times = 500
	if err := b.beside(&rows[0], func() (float64, error) { return many.list(n/2, times, 50) }, func() (float64, error) { return few.list(5, times, 50) }); err != nil {
		return err
	}
	if err := b.beside(&rows[1], func() (float64, error) { return many.commit(times) }, func() (float64, error) { return few.commit(times) }); err != nil {
		return err
	}
	rows[2].Cairn = peakMemory(s.PID())
	return nil
}

// branchy is a repository with ephemeral branches, and one of them to change.
type branchy struct {
	s             *harness.Server
	name          string
	url           string // of its ephemeral refs
	authorization string // to all of it
	tip           object.ID
	advertised    int64 // bytes of the last push's advertisement
	commits       int
}

// branchy makes a repository with n ephemeral branches.
func (b *bench) branchy(s *harness.Server, name string, n int) (*branchy, error) {
	p, err := prepare(filepath.Join(b.dir, name+".pack"), 3, 100, true)
	if err != nil {
		return nil, err
	}
	if err := s.CreateRepo(name); err != nil {
		return nil, err
	}
	r := &branchy{s: s, name: name, url: s.URL + "/" + name + "+ephemeral.git", authorization: basic(s.Token(harness.Grant{Repo: name})), tip: p.tip}
	c, err := dial(s.URL)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.pushFile(s.URL+"/"+name+".git", r.authorization, p); err != nil {
		return nil, err
	}
	const batch = 100 // report-status fits what a conn keeps
	empty := pack.Buffer{}
	if _, err := pack.NewWriter(&empty, 0).Close(); err != nil {
		return nil, err
	}
	for from := 0; from < n; from += batch {
		var commands []command
		for i := from; i < min(n, from+batch); i++ {
			commands = append(commands, command{new: p.tip, ref: "refs/heads/" + branchName(i)})
		}
		if err := c.receivePack(r.url, r.authorization, commands, bytes.NewReader(empty.Bytes()), int64(len(empty.Bytes()))); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// list is a percentile of the times of n listings of branch number i, in ms.
func (r *branchy) list(i, n int, percent int) (float64, error) {
	times, err := alone(r.s.URL, n, always(uploadPack(r.url, r.authorization, pkt("command=ls-refs\n", "object-format=sha1", "0001", "peel\n", "symrefs\n",
		"ref-prefix refs/heads/"+branchName(i)+"\n", "0000")))(0))
	if err != nil {
		return 0, err
	}
	return percentile(times, percent), nil
}

// commit is the median time of n commits on one ephemeral branch, in ms.
func (r *branchy) commit(n int) (float64, error) {
	token := r.s.Token(harness.Grant{Repo: r.name})
	times, err := alone(r.s.URL, n, func() []byte {
		r.commits++
		return commitRequest(r.s, harness.Commit{Repo: r.name, Branch: branchName(1), Ephemeral: true, Message: "Save",
			Files: map[string]string{"note.txt": fmt.Sprintf("note %d\n", r.commits)}}, token)
	})
	if err != nil {
		return 0, err
	}
	return median(times), nil
}

// push is the median time of n pushes, each of one commit on the one branch that
// its token allows: the advertisement and the pack, in ms.
func (r *branchy) push(n int) (float64, error) {
	policies, err := policy.Confine(branchName(2))
	if err != nil {
		return 0, err
	}
	authorization := basic(r.s.Token(harness.Grant{Repo: r.name, Policies: policies}))
	c, err := dial(r.s.URL)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	advertise := request("GET", r.url+"/info/refs?service=git-receive-pack", nil, "Authorization: "+authorization)
	var times []float64
	for range n {
		r.commits++
		data, tip, err := savePack(r.tip, r.commits)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if r.advertised, err = c.do(advertise); err != nil {
			return 0, err
		}
		change := command{r.tip, tip, "refs/heads/" + branchName(2)}
		if err := c.receivePack(r.url, authorization, []command{change}, bytes.NewReader(data), int64(len(data))); err != nil {
			return 0, err
		}
		times = append(times, since(start))
		r.tip = tip
	}
	return median(times), nil
}

// savePack is a pack of one commit with one changed file.
func savePack(parent object.ID, n int) (data []byte, tip object.ID, err error) {
	var out pack.Buffer
	w := pack.NewWriter(&out, 3)
	text := fmt.Appendf(nil, "state %d\n", n)
	if _, err := w.Add(object.Blob, text); err != nil {
		return nil, tip, err
	}
	root := []object.Entry{{Mode: object.ModeRegular, Name: []byte("state.txt"), ID: object.Hash(object.Blob, text)}}
	if tip, err = addCommit(w, root, []object.ID{parent}, n); err != nil {
		return nil, tip, err
	}
	_, err = w.Close()
	return out.Bytes(), tip, err
}
