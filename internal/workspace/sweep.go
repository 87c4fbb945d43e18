package workspace

import (
	"context"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
)

// sweep compares a directory with the cache's record of it, which has the entries
// of the checkpoint: only what is not as the record says is looked at closely, and
// nothing is fetched.
func (p *planner) sweep(d *liveDir, rec record) (err error) {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if d.names, err = list(d.fd); err != nil {
		return err
	}
	d.met = make([]bool, len(d.names))
	whole, at := rec, 0
	for c, ok := rec.next(); ok; c, ok = rec.next() {
		for at < len(d.names) && d.names[at] < string(c.head.Name) {
			at++
		}
		there := at < len(d.names) && d.names[at] == string(c.head.Name)
		if there {
			d.met[at] = true
			same, err := p.unchanged(d, d.names[at], &c)
			if err != nil {
				return err
			}
			if same {
				continue
			}
		}
		e, _, err := tree.DecodeEntry(c.enc)
		if err != nil {
			return err
		}
		descend := func(e *tree.Entry) { p.enqueue(d.path+"/"+e.Name, e) }
		if e.Type != tree.Directory {
			d.learned = true
		}
		if err := p.compare(d, &e, there, &c, descend); err != nil {
			return err
		}
	}
	if err := p.finish(d); err != nil {
		return err
	}
	if !d.touched && !d.learned {
		p.fresh.add(d.path, &recordWriter{objects: whole.objects, entries: whole.entries, n: whole.left})
	}
	return nil
}

// unchanged reports whether a file or link is what the record says, which is what
// the checkpoint says, and nothing more is to be decided.
func (p *planner) unchanged(d *liveDir, name string, c *cached) (bool, error) {
	if c.head.Type == tree.Directory || c.ino == 0 || p.modeOf(c.head.Mode) != uint32(c.head.Mode) {
		return false, nil
	}
	st, err := lstat(d.fd, name)
	if err != nil || !c.is(&st) || c.head.Type == tree.File && st.Nlink > 1 {
		return false, err
	}
	path := d.path + "/" + name
	if p.groups[path] != nil {
		return false, nil
	}
	t := target{p.root, path}
	return p.verdict(t.rel(), false) != ignore.Skip, nil
}
