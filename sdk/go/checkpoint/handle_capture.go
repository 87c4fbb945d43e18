package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// away is a sandbox that is worked in through its shell.
type away struct{ shell }

// trustSeconds is how long ago a file must have been touched for its times to tell the next touch.
const trustSeconds = 2

// known is what is known of a file of a sandbox since it was read.
type known struct {
	Inode string
	Ctime tree.Time
	Entry []byte
}

// fileCache remembers files of a sandbox by their paths, with the name of the root.
type fileCache struct {
	Key, Fingerprint []byte
	Files            map[string]known
}

// loadFiles reads a cache. One of other secrets, or that cannot be read, counts as none.
func loadFiles(path string, encoder *workspace.Encoder) map[string]known {
	b, err := os.ReadFile(path)
	if err != nil {
		return map[string]known{}
	}
	var c fileCache
	if gob.NewDecoder(bytes.NewReader(b)).Decode(&c) != nil || c.Files == nil || !bytes.Equal(c.Fingerprint, encoder.Fingerprint(c.Key)) {
		return map[string]known{}
	}
	return c.Files
}

func saveFiles(path string, encoder *workspace.Encoder, files map[string]known) error {
	c := fileCache{Key: make([]byte, 32), Files: files}
	_, _ = rand.Read(c.Key)
	c.Fingerprint = encoder.Fingerprint(c.Key)
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(c); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}

// recall returns the entry of a file that was read before and not touched since.
func recall(files map[string]known, at string, n *node) *tree.Entry {
	k, ok := files[at]
	if !ok || k.Inode != n.inode || k.Ctime != n.ctime {
		return nil
	}
	e, rest, err := tree.DecodeEntry(k.Entry)
	if err != nil || len(rest) > 0 || e.Type != n.Type || e.Mtime != n.Mtime || e.Content.Size != n.Content.Size || e.Mode != n.Mode || e.UID != n.UID || e.GID != n.GID {
		return nil
	}
	return &e
}

func note(files map[string]known, at string, n *node, e *tree.Entry) {
	files[at] = known{Inode: n.inode, Ctime: n.ctime, Entry: tree.AppendEntry(nil, e)}
}

// walk is one capture of a sandbox.
type walk struct {
	*away
	ctx     context.Context
	opts    workspace.ScanOptions
	policy  *ignore.Matcher
	encoder *workspace.Encoder
	files   map[string]known
	out     *workspace.Result

	offenders List
	groups    [][]string
}

func (a *away) scan(ctx context.Context, o workspace.ScanOptions, sink workspace.Sink) (*scanned, error) {
	policy, err := ignore.Compile(o.Policy)
	if err != nil {
		return nil, err
	}
	stored, err := o.Policy.Encode()
	if err != nil {
		return nil, err
	}
	encoder, err := workspace.NewEncoder(ctx, o.Secrets, o.AllowShort, sink)
	if err != nil {
		return nil, err
	}
	o.Roots = slices.Clone(o.Roots)
	slices.SortFunc(o.Roots, func(a, b Root) int { return strings.Compare(a.Name, b.Name) })
	w := &walk{
		away: a, ctx: ctx, opts: o, policy: policy, encoder: encoder, files: loadFiles(o.Cache, encoder),
		out: &workspace.Result{Tree: &tree.Tree{Policy: stored}},
	}
	fresh := map[string]known{}
	for i, root := range o.Roots {
		if err := tree.CheckName(root.Name); err != nil || i > 0 && o.Roots[i-1].Name == root.Name {
			return nil, fmt.Errorf("%w: the root name %q cannot be used, or is there twice", workspace.ErrInvalid, root.Name)
		}
		e, err := w.root(root, fresh)
		if err != nil {
			return nil, err
		}
		w.out.Tree.Roots = append(w.out.Tree.Roots, *e)
	}
	if w.offenders.Total > 0 {
		return nil, &workspace.RefusedError{List: w.offenders}
	}
	slices.SortFunc(w.groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	if w.out.Root, err = encoder.Finish(w.out.Tree, w.groups); err != nil {
		return nil, err
	}
	return &scanned{w.out, func() error { return saveFiles(o.Cache, encoder, fresh) }}, nil
}

// root captures one root: it lists, reads what is not known, and lists again until nothing was touched meanwhile.
func (w *walk) root(root Root, fresh map[string]known) (*tree.Entry, error) {
	for try := 1; ; try++ {
		l, err := w.list(w.ctx, root.Path)
		if err != nil {
			return nil, err
		}
		if l == nil {
			return nil, errorf(ErrInvalidWorkspace, "the sandbox has no directory %q", root.Path)
		}
		p := &picker{walk: w, listing: l, name: root.Name, last: try == attempts || w.opts.ReadOnce && try > 1, got: map[string]*tree.Entry{}}
		p.dir(l.root, false)
		if p.offenders.Total > 0 {
			w.offenders.AddAll(p.offenders)
			e := l.root.Entry
			e.Name = root.Name
			return &e, nil
		}
		if len(p.unread) == 0 {
			return p.finish(fresh)
		}
		if p.last && !w.opts.MarkMixed {
			return nil, &workspace.ChangedError{Path: root.Name + "/" + p.unread[0].path}
		}
		if err := p.read(); err != nil {
			return nil, err
		}
		if p.last {
			return p.finish(fresh)
		}
	}
}

// picker chooses what is captured of a listing.
type picker struct {
	*walk
	*listing
	name      string // of the root
	last      bool   // what changes now is marked
	offenders List
	leftOut   List
	unread    []*node
	got       map[string]*tree.Entry // by inode, of files with several names, or by path
}

func (p *picker) at(n *node) string { return p.name + "/" + n.path }

// dir picks what lies in n. It reports whether anything was kept.
func (p *picker) dir(n *node, within bool) (kept bool) {
	for _, k := range n.kids {
		if n.path == "" && strings.HasPrefix(k.Name, workspace.StagingName) {
			continue
		}
		verdict := p.policy.Match(k.path, k.Type == tree.Directory, within)
		if verdict == ignore.Skip {
			p.leftOut.Add(p.at(k), workspace.ReasonExcluded)
			continue
		}
		if reason := p.objection(k); reason != "" {
			p.offenders.Add(p.at(k), reason)
			continue
		}
		switch k.Type {
		case tree.Directory:
			k.keep = p.dir(k, verdict == ignore.Take) || verdict == ignore.Take
		case tree.Symlink:
			k.keep = p.link(k)
		default:
			k.keep = true
			p.file(k)
		}
		kept = kept || k.keep
	}
	return kept
}

// objection returns why no tree can hold an entry.
func (p *picker) objection(n *node) string {
	switch {
	case len(n.Name) > tree.MaxName:
		return workspace.ReasonName
	case p.encoder.Holds(n.Name):
		return workspace.ReasonSecretName
	case n.special:
		return workspace.ReasonSpecial
	case n.Type == tree.Directory && strings.Count(n.path, "/") >= tree.MaxDepth:
		return workspace.ReasonDepth
	}
	return ""
}

func (p *picker) link(n *node) bool {
	if p.opts.Links != workspace.KeepOutside && p.outside(n) {
		if p.opts.Links == workspace.SkipOutside {
			p.leftOut.Add(p.at(n), workspace.ReasonOutside)
		} else {
			p.offenders.Add(p.at(n), workspace.ReasonOutside)
		}
		return false
	}
	var err error
	if n.Target, n.Redactions, err = p.encoder.Target(n.Target); err != nil || n.Check() != nil {
		p.offenders.Add(p.at(n), workspace.ReasonName)
		return false
	}
	return true
}

// outside reports whether following a link leaves the root at any step.
func (p *picker) outside(n *node) bool {
	return workspace.Leaves(p.real, n.path, n.Target, func(path string) (string, bool) {
		next := p.nodes[path]
		if next == nil || next.Type != tree.Symlink {
			return "", false
		}
		return next.Target, true
	})
}

// file notes a file to be read, unless it is known.
func (p *picker) file(n *node) {
	key := n.path
	if n.links > 1 {
		key = n.inode
	}
	if _, asked := p.got[key]; asked {
		return
	}
	if e := recall(p.files, p.at(n), n); e != nil {
		p.got[key] = e
		return
	}
	p.got[key] = nil
	p.unread = append(p.unread, n)
}

// read reads what is not known, and knows it then.
func (p *picker) read() error {
	byPath := make(map[string]*node, len(p.unread))
	paths := make([]string, 0, len(p.unread))
	for _, n := range p.unread {
		byPath[n.path] = n
		paths = append(paths, n.path)
	}
	return p.walk.away.read(p.ctx, p.real, paths, func(at string, r io.Reader) error {
		n := byPath[at]
		if n == nil {
			return errorf(ErrInvalidWorkspace, "the sandbox sent %q, which was not asked for", at)
		}
		e := n.Entry
		size := e.Content.Size
		var err error
		if e.Content, e.Redactions, err = p.encoder.Contents(r); err != nil {
			return fmt.Errorf("read %q: %w", at, err)
		}
		p.out.Read.Files++
		p.out.Read.Bytes += e.Content.Size
		if p.last {
			e.Mixed = true
			p.out.Mixed.Add(p.at(n), workspace.ReasonChanged)
			key := n.path
			if n.links > 1 {
				key = n.inode
			}
			p.got[key] = &e
		} else if e.Content.Size == size {
			note(p.files, p.at(n), n, &e)
		}
		return nil
	})
}

// finish makes the objects of the directories, and remembers the files.
func (p *picker) finish(fresh map[string]known) (*tree.Entry, error) {
	p.out.LeftOut.AddAll(p.leftOut)
	groups := map[string][]string{}
	e, err := p.build(p.listing.root, fresh, groups)
	if err != nil {
		return nil, err
	}
	for _, paths := range groups {
		if len(paths) > 1 {
			slices.Sort(paths)
			p.groups = append(p.groups, paths)
		}
	}
	e.Name = p.name
	return e, nil
}

func (p *picker) build(n *node, fresh map[string]known, groups map[string][]string) (*tree.Entry, error) {
	b := tree.Builder{Emit: p.encoder.Put}
	for _, k := range n.kids {
		if !k.keep {
			continue
		}
		e := &k.Entry
		switch k.Type {
		case tree.Directory:
			var err error
			if e, err = p.build(k, fresh, groups); err != nil {
				return nil, err
			}
		case tree.File:
			key := k.path
			if k.links > 1 {
				key = k.inode
				groups[key] = append(groups[key], p.at(k))
			}
			read := p.got[key]
			if read == nil {
				continue // it vanished while it was read
			}
			file := *read
			file.Name = k.Name
			if e = &file; k.Mtime.Sec < p.now-trustSeconds && k.ctime.Sec < p.now-trustSeconds && !e.Mixed {
				note(fresh, p.at(k), k, e)
			}
		}
		if err := b.Add(e); err != nil {
			return nil, fmt.Errorf("capture %q: %w", p.at(k), err)
		}
	}
	e := n.Entry
	var err error
	e.Dir, e.Paged, e.Summary, err = b.Finish()
	return &e, err
}

func (a *away) look(ctx context.Context, dir string) (exists, empty bool, err error) {
	script := fmt.Sprintf("[ -e %[1]s ] || [ -L %[1]s ] || exit 44; [ -d %[1]s ] || exit 45; ls -A %[1]s | head -c 1", quoted(path.Clean(dir)))
	out, err := a.output(ctx, script, nil)
	status, ok := errors.AsType[*statusError](err)
	switch {
	case err == nil:
		return true, len(out) == 0, nil
	case ok && status.status == statusMissing:
		return false, true, nil
	case ok && status.status == statusNoDir:
		return false, false, errorf(ErrInvalidWorkspace, "%q is no directory", dir)
	}
	return false, false, err
}
