package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"io"
	"strings"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// plan finds out what differs.
func (r *refit) plan(e *tree.Entry) error {
	if err := r.load(e); err != nil {
		return err
	}
	var err error
	if r.have, err = r.list(r.ctx, r.root.Path); err != nil {
		return err
	}
	if r.have == nil {
		r.places = []*wanted{r.want}
		r.out.Changed.Add(r.root.Name, "")
		r.count(r.want)
		return nil
	}
	r.base = r.have.real
	if err := r.compare(); err != nil {
		return err
	}
	return r.dir(r.want, r.have.root)
}

// load reads the entries of the checkpoint that are not spared.
func (r *refit) load(root *tree.Entry) error {
	r.want = &wanted{Entry: *root, held: true}
	dirs := map[string]*wanted{root.Name: r.want}
	return tree.Walk(r.ctx, r.src, []tree.Node{tree.NodeOf(root.Name, root)}, func(n tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
		dir := dirs[n.Path]
		for i := range entries {
			e := &entries[i]
			w := &wanted{Entry: *e, path: strings.TrimPrefix(dir.path+"/"+e.Name, "/"), held: true}
			full := root.Name + "/" + w.path
			if r.verdict(w.path, e.Type == tree.Directory) == ignore.Skip {
				r.out.LeftOut.Add(full, workspace.ReasonExcluded)
				continue
			}
			if !r.opts.SetID && w.Mode&0o6000 != 0 {
				if w.Type == tree.File {
					r.out.LeftOut.Add(full, workspace.ReasonSetID)
				}
				w.Mode &^= 0o6000
			}
			if w.Type == tree.Symlink && len(w.Redactions) > 0 {
				target := []byte(w.Target)
				if w.held = workspace.FillIn(target, 0, w.Redactions, r.opts.Secrets); !w.held {
					r.out.LeftOut.Add(full, workspace.ReasonRedacted)
					continue
				}
				w.Target = string(target)
			}
			dir.kids = append(dir.kids, w)
			if e.Type == tree.Directory {
				dirs[full] = w
				descend(e)
			}
		}
		return nil
	})
}

func (r *refit) verdict(rel string, dir bool) ignore.Verdict {
	v := r.stored.Verdict(rel, dir)
	if r.given != nil {
		v = min(v, r.given.Verdict(rel, dir))
	}
	return v
}

// compare finds out which files have the contents that are wanted: what the cache says, else by their sums in the sandbox.
func (r *refit) compare() error {
	var sum, read []*wanted
	var visit func(w *wanted)
	visit = func(w *wanted) {
		for _, k := range w.kids {
			h := r.have.nodes[k.path]
			switch {
			case h == nil || h.Type != k.Type:
			case k.Type == tree.Directory:
				visit(k)
			case k.Type == tree.Symlink:
				r.alike[k.path] = h.Target == k.Target
			case h.Content.Size != k.Content.Size:
			case k.Content.Size == 0:
				r.alike[k.path] = true
			default:
				if e := recall(r.files, r.root.Name+"/"+k.path, h); e != nil && e.Content == k.Content {
					r.alike[k.path] = true
				} else if len(k.Redactions) > 0 {
					read = append(read, k)
				} else {
					sum = append(sum, k)
				}
			}
		}
	}
	visit(r.want)
	if err := r.sums(sum); err != nil {
		return err
	}
	return r.redacted(read)
}

// sums compares files by their SHA-256.
func (r *refit) sums(list []*wanted) error {
	if len(list) == 0 {
		return nil
	}
	paths := make([]string, len(list))
	for i, w := range list {
		paths[i] = w.path
	}
	out, err := r.output(r.ctx, "cd "+quoted(r.have.real)+" && xargs -0 sha256sum --", names(paths))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(list) {
		return errorf(ErrInvalidWorkspace, "sha256sum in the sandbox gave %d sums of %d files", len(lines), len(list))
	}
	for i, line := range lines {
		// A name with a line end or a backslash is escaped, and the line begins with a backslash then.
		text, _, _ := strings.Cut(strings.TrimPrefix(line, `\`), " ")
		r.alike[list[i].path] = text == list[i].Content.Sum.String()
	}
	return nil
}

// redacted compares files in which secrets were zeroed: they are alike if nothing else differs.
func (r *refit) redacted(list []*wanted) error {
	byPath := map[string]*wanted{}
	var paths []string
	for _, w := range list {
		byPath[w.path] = w
		paths = append(paths, w.path)
	}
	return r.away.read(r.ctx, r.have.real, paths, func(at string, content io.Reader) error {
		w := byPath[at]
		if w == nil {
			return nil
		}
		h := sha256.New()
		if _, err := io.Copy(&zeroing{w: h, rs: w.Redactions}, content); err != nil {
			return err
		}
		r.alike[at] = tree.Digest(h.Sum(nil)) == w.Content.Sum
		return nil
	})
}

// zeroing passes bytes on with the redacted ranges zeroed.
type zeroing struct {
	w  io.Writer
	rs []tree.Redaction
	at uint64
}

func (z *zeroing) Write(p []byte) (int, error) {
	b := bytes.Clone(p)
	for _, red := range z.rs {
		for _, off := range red.Offsets {
			from, to := max(off, z.at), min(off+red.Length, z.at+uint64(len(b)))
			if from < to {
				clear(b[from-z.at : to-z.at])
			}
		}
	}
	z.at += uint64(len(b))
	n, err := z.w.Write(b)
	return n, err
}

// dir plans what is to be done in a directory that is there.
func (r *refit) dir(w *wanted, h *node) error {
	have := map[string]*node{}
	for _, k := range h.kids {
		have[k.Name] = k
	}
	for _, k := range w.kids {
		live := have[k.Name]
		delete(have, k.Name)
		switch {
		case live != nil && live.Type == tree.Directory && k.Type == tree.Directory:
			if err := r.dir(k, live); err != nil {
				return err
			}
			continue
		case live != nil && live.Type == k.Type && r.alike[k.path] && r.linked(k, live):
			if r.differs(k, live) {
				r.out.Changed.Add(r.full(k.path), "")
			}
			continue
		case live != nil && (live.Type == tree.Directory || k.Type == tree.Directory):
			if r.remove(live) {
				return &workspace.SpareError{Path: r.full(k.path)}
			}
		}
		r.places = append(r.places, k)
		r.count(k)
		r.out.Changed.Add(r.full(k.path), "")
	}
	for _, k := range h.kids {
		if have[k.Name] != nil {
			r.remove(k)
		}
	}
	if r.differs(w, h) {
		r.out.Changed.Add(r.full(w.path), "")
	}
	return nil
}

func (r *refit) full(path string) string { return strings.TrimSuffix(r.root.Name+"/"+path, "/") }

// linked reports whether a file has exactly the names that the checkpoint has it by.
func (r *refit) linked(w *wanted, h *node) bool {
	group, ok := r.groups[r.full(w.path)]
	if !ok || w.Type != tree.File {
		return h.links == 1 || w.Type != tree.File
	}
	members := r.members[group]
	for _, m := range members {
		rel, ok := strings.CutPrefix(m, r.root.Name+"/")
		other := r.have.nodes[rel]
		if !ok || other == nil || other.inode != h.inode || !r.alike[rel] {
			return false
		}
	}
	return h.links == len(members)
}

func (r *refit) differs(w *wanted, h *node) bool {
	return w.Mtime != h.Mtime || w.Type != tree.Symlink && w.Mode != h.Mode || r.opts.Owner && (w.UID != h.UID || w.GID != h.GID)
}

// remove plans the removal of what lies at n, and reports whether anything of it is spared.
func (r *refit) remove(n *node) (spared bool) {
	if strings.HasPrefix(n.path, workspace.StagingName) && !strings.Contains(n.path, "/") {
		r.removes = append(r.removes, n.path)
		return false
	}
	v := r.verdict(n.path, n.Type == tree.Directory)
	if v == ignore.Skip {
		return true
	}
	at, listed, total := len(r.removes), len(r.out.Removed.Paths), r.out.Removed.Total
	for _, k := range n.kids {
		spared = r.remove(k) || spared
	}
	if spared || v == ignore.Descend {
		return true
	}
	r.removes = append(r.removes[:at], n.path)
	r.out.Removed.Paths, r.out.Removed.Total = r.out.Removed.Paths[:listed], total
	r.out.Removed.Add(r.full(n.path), "")
	return false
}

// count adds what is put in place.
func (r *refit) count(w *wanted) {
	r.out.Written.Entries++
	if w.Type == tree.File {
		r.out.Written.Files++
		r.out.Written.Bytes += w.Content.Size
	}
	for _, k := range w.kids {
		r.count(k)
	}
}
