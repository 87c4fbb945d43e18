package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// wanted is an entry of a checkpoint.
type wanted struct {
	tree.Entry
	path string // beneath the root
	kids []*wanted
	held bool // its contents, or what a link says, can be written as they were: no secret in it is missing
}

// refit is one restore into a root of a sandbox.
type refit struct {
	*away
	ctx     context.Context
	opts    workspace.RestoreOptions
	src     tree.Source
	root    Root
	stored  *ignore.Matcher
	given   *ignore.Matcher
	encoder *workspace.Encoder
	files   map[string]known
	groups  map[string]int // path with the root's name, to its group of hard links
	members map[int][]string
	out     *workspace.Restored

	want    *wanted
	have    *listing
	alike   map[string]bool // whether the contents of a path are those wanted
	base    string          // the root's path without links
	staging string

	places  []*wanted // put in place, directories with all that lies in them
	removes []string
}

func (a *away) restore(ctx context.Context, o workspace.RestoreOptions, src tree.Source, root tree.Digest) (*workspace.Restored, error) {
	b, err := tree.FetchOne(ctx, src, root)
	if err != nil {
		return nil, err
	}
	t, err := tree.DecodeRoot(b)
	if err != nil {
		return nil, err
	}
	policy, err := ignore.Decode(t.Policy)
	if err != nil {
		return nil, err
	}
	stored, err := ignore.Compile(policy)
	if err != nil {
		return nil, err
	}
	var given *ignore.Matcher
	if o.Policy != nil {
		if given, err = ignore.Compile(*o.Policy); err != nil {
			return nil, err
		}
	}
	encoder, err := workspace.NewEncoder(ctx, o.Secrets, true, nil)
	if err != nil {
		return nil, err
	}
	groups, members, err := linkGroups(ctx, src, t)
	if err != nil {
		return nil, err
	}
	out := &workspace.Restored{Tree: t}
	known, fresh := loadFiles(o.Cache, encoder), map[string]known{}
	var all []*refit
	for _, e := range t.Roots {
		i := slices.IndexFunc(o.Roots, func(r Root) bool { return r.Name == e.Name })
		if i < 0 {
			addTo(&out.LeftOut, e.Name, "a root that was not asked for")
			continue
		}
		r := &refit{
			away: a, ctx: ctx, opts: o, src: src, root: o.Roots[i], stored: stored, given: given, encoder: encoder, files: known,
			groups: groups, members: members, out: out, alike: map[string]bool{},
		}
		all = append(all, r)
		if err := r.plan(&e); err != nil {
			return nil, fmt.Errorf("plan the restore: %w", err)
		}
	}
	if len(all) < len(o.Roots) {
		return nil, fmt.Errorf("%w: the checkpoint does not have every root that is asked for", workspace.ErrInvalid)
	}
	if o.DryRun {
		return out, nil
	}
	return out, finishAll(all, o.Cache, encoder, fresh)
}

// finishAll fetches everything, then changes the sandbox.
func finishAll(all []*refit, cache string, encoder *workspace.Encoder, fresh map[string]known) error {
	var err error
	for _, r := range all {
		if err = r.stage(); err != nil {
			break
		}
	}
	if err != nil {
		for _, r := range all {
			err = errors.Join(err, r.unstage())
		}
		return fmt.Errorf("fetch into the sandbox, nothing was changed yet: %w", err)
	}
	for _, r := range all {
		if err := r.apply(); err != nil {
			return &workspace.IncompleteError{Err: err}
		}
		if err := r.settle(fresh); err != nil {
			return &workspace.IncompleteError{Err: err}
		}
	}
	return saveFiles(cache, encoder, fresh)
}

// linkGroups reads the table of hard links.
func linkGroups(ctx context.Context, src tree.Source, t *tree.Tree) (map[string]int, map[int][]string, error) {
	groups, members := map[string]int{}, map[int][]string{}
	if t.Links.Size == 0 {
		return groups, members, nil
	}
	if t.Links.Size > tree.MaxLinks {
		return nil, nil, errorf(ErrInvalidBlob, "the table of hard links has %d bytes", t.Links.Size)
	}
	var b bytes.Buffer
	if err := tree.Copy(ctx, src, t.Links, &b); err != nil {
		return nil, nil, err
	}
	list, err := tree.DecodeLinks(b.Bytes())
	if err != nil {
		return nil, nil, err
	}
	for i, paths := range list {
		members[i] = paths
		for _, p := range paths {
			groups[p] = i
		}
	}
	return groups, members, nil
}

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
		addTo(&r.out.Changed, r.root.Name, "")
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
				addTo(&r.out.LeftOut, full, workspace.ReasonExcluded)
				continue
			}
			if !r.opts.SetID && w.Mode&0o6000 != 0 {
				if w.Type == tree.File {
					addTo(&r.out.LeftOut, full, workspace.ReasonSetID)
				}
				w.Mode &^= 0o6000
			}
			if w.Type == tree.Symlink && len(w.Redactions) > 0 {
				target := []byte(w.Target)
				if w.held = workspace.FillIn(target, 0, w.Redactions, r.opts.Secrets); !w.held {
					addTo(&r.out.LeftOut, full, workspace.ReasonRedacted)
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
				addTo(&r.out.Changed, r.full(k.path), "")
			}
			continue
		case live != nil && (live.Type == tree.Directory || k.Type == tree.Directory):
			if r.remove(live) {
				return &workspace.SpareError{Path: r.full(k.path)}
			}
		}
		r.places = append(r.places, k)
		r.count(k)
		addTo(&r.out.Changed, r.full(k.path), "")
	}
	for _, k := range h.kids {
		if have[k.Name] != nil {
			r.remove(k)
		}
	}
	if r.differs(w, h) {
		addTo(&r.out.Changed, r.full(w.path), "")
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
	addTo(&r.out.Removed, r.full(n.path), "")
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

// stage writes what will be put in place into a directory beside it.
func (r *refit) stage() error {
	if len(r.places) == 0 {
		return nil
	}
	if r.have == nil {
		real, err := r.output(r.ctx, fmt.Sprintf("mkdir -p %[1]s && cd %[1]s && pwd -P", quoted(r.root.Path)), nil)
		if err != nil {
			return err
		}
		r.base = strings.TrimSuffix(string(real), "\n")
	}
	r.staging = r.base + "/" + workspace.StagingName + rand.Text()
	if err := r.do(r.ctx, "mkdir -m 700 "+quoted(r.staging), nil); err != nil {
		return err
	}
	byTar, err := r.hasTar(r.ctx)
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	go func() {
		var w stager = &scriptStager{w: in}
		if byTar {
			w = newTarStager(in, r.opts.Owner)
		}
		err := r.fill(w)
		if err == nil {
			err = w.close()
		}
		in.CloseWithError(err)
	}()
	script := "cd " + quoted(r.staging) + " && umask 077 && "
	if byTar {
		script += "LC_ALL=C tar -xpf - " + map[bool]string{true: "--same-owner --numeric-owner", false: "--no-same-owner"}[r.opts.Owner]
	} else {
		script += "sh -e"
	}
	// A stream that ends early must not look like one that is whole.
	failed := &failing{r: out}
	err = r.do(r.ctx, script, failed)
	out.CloseWithError(err)
	if failed.err != nil {
		return failed.err
	}
	return err
}

// failing remembers the error that a reader ended with.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func (r *refit) unstage() error {
	if r.staging == "" {
		return nil
	}
	err := r.do(context.WithoutCancel(r.ctx), "chmod -R u+rwx "+quoted(r.staging)+"; rm -rf "+quoted(r.staging), nil)
	r.staging = ""
	return err
}

// fill writes every place, under its number.
func (r *refit) fill(w stager) error {
	first := map[int]string{} // where a file with several names was written
	for i, p := range r.places {
		if err := r.write(w, strconv.Itoa(i), p, first); err != nil {
			return err
		}
	}
	return nil
}

func (r *refit) write(w stager, at string, e *wanted, first map[int]string) error {
	switch e.Type {
	case tree.Directory:
		if err := w.dir(at, e); err != nil {
			return err
		}
		for _, k := range e.kids {
			if err := r.write(w, at+"/"+k.Name, k, first); err != nil {
				return err
			}
		}
		return nil
	case tree.Symlink:
		return w.link(at, e)
	}
	if group, ok := r.groups[r.full(e.path)]; ok {
		if other := first[group]; other != "" {
			return w.hard(at, other)
		}
		first[group] = at
	}
	return w.file(at, e, func(to io.Writer) error {
		if len(e.Redactions) > 0 {
			fill := &filling{w: to, rs: e.Redactions, secrets: r.opts.Secrets}
			err := tree.Copy(r.ctx, r.src, e.Content, fill)
			if fill.missing {
				addTo(&r.out.LeftOut, r.full(e.path), workspace.ReasonRedacted)
			}
			return err
		}
		return tree.Copy(r.ctx, r.src, e.Content, to)
	})
}

// filling passes bytes on with secrets put back.
type filling struct {
	w       io.Writer
	rs      []tree.Redaction
	secrets []Secret
	at      uint64
	missing bool
}

func (f *filling) Write(p []byte) (int, error) {
	b := bytes.Clone(p)
	f.missing = !workspace.FillIn(b, f.at, f.rs, f.secrets)
	f.at += uint64(len(b))
	return f.w.Write(b)
}

// apply removes, puts in place, and sets what is left to set.
func (r *refit) apply() error {
	var b strings.Builder
	fmt.Fprintf(&b, "set -e\ncd %s\n", quoted(r.base))
	for _, dir := range r.closed() {
		fmt.Fprintf(&b, "chmod u+rwx %s\n", quoted("./"+dir))
	}
	for _, p := range r.removes {
		fmt.Fprintf(&b, "chmod -R u+rwx %[1]s 2>/dev/null || :\nrm -rf %[1]s\n", quoted("./"+p))
	}
	for i, p := range r.places {
		from := fmt.Sprintf("%s/%d", quoted(r.staging), i)
		switch {
		case p.path == "": // the root itself: what is in it moves
			fmt.Fprintf(&b, "chmod u+rwx %[1]s\nfor f in %[1]s/* %[1]s/.[!.]* %[1]s/..?*; do if [ -e \"$f\" ] || [ -L \"$f\" ]; then mv -f \"$f\" .; fi; done\n", from)
		default:
			to := quoted("./" + p.path)
			if h := r.live(p.path); h != nil && h.Type == tree.Symlink || p.Type == tree.Symlink {
				fmt.Fprintf(&b, "rm -f %s\n", to) // mv would follow it
			}
			if p.Type == tree.Directory {
				fmt.Fprintf(&b, "chmod u+rwx %s\n", from)
			}
			fmt.Fprintf(&b, "mv -f %s %s\n", from, to)
		}
	}
	if r.staging != "" {
		fmt.Fprintf(&b, "chmod -R u+rwx %[1]s\nrm -rf %[1]s\n", quoted(r.staging))
	}
	return r.do(r.ctx, "sh", strings.NewReader(b.String()))
}

// closed returns the directories in which something is to change and nobody may write. Their modes are set again in the end.
func (r *refit) closed() (dirs []string) {
	seen := map[string]bool{}
	changed := slices.Clone(r.removes)
	for _, p := range r.places {
		changed = append(changed, p.path)
	}
	for _, p := range changed {
		dir := strings.TrimPrefix(path.Dir(p), ".")
		if h := r.live(dir); p != "" && h != nil && h.Mode&0o200 == 0 && !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (r *refit) live(at string) *node {
	if r.have == nil {
		return nil
	}
	return r.have.nodes[at]
}

// settle lists the root again, sets modes, times and owners that are not as wanted, directories last, and remembers what
// is there.
func (r *refit) settle(fresh map[string]known) error {
	for try := 1; ; try++ {
		l, err := r.list(r.ctx, r.root.Path)
		if err != nil {
			return err
		}
		if l == nil {
			return errorf(ErrInvalidWorkspace, "%q vanished", r.root.Path)
		}
		var b strings.Builder
		left := r.fix(&b, r.want, l)
		if left == nil || try == 3 {
			for _, w := range left {
				addTo(&r.out.LeftOut, r.full(w.path), workspace.ReasonUnsupported)
			}
			r.remember(r.want, l, fresh)
			return nil
		}
		if err := r.do(r.ctx, "cd "+quoted(l.real)+" && sh", strings.NewReader(b.String())); err != nil {
			return err
		}
	}
}

// fix writes the commands that set what differs of w and what lies in it.
func (r *refit) fix(b *strings.Builder, w *wanted, l *listing) (left []*wanted) {
	h := l.nodes[w.path]
	if h == nil || h.Type != w.Type {
		return []*wanted{w}
	}
	for _, k := range w.kids {
		left = append(left, r.fix(b, k, l)...)
	}
	if !r.differs(w, h) {
		return left
	}
	at := quoted("./" + w.path)
	if r.opts.Owner && (w.UID != h.UID || w.GID != h.GID) {
		fmt.Fprintf(b, "chown -h %d:%d %s\n", w.UID, w.GID, at)
	}
	if w.Type != tree.Symlink {
		fmt.Fprintf(b, "chmod %04o %s\n", w.Mode, at)
	}
	fmt.Fprintf(b, "touch -h -d @%d.%09d %[3]s 2>/dev/null || touch -d @%[1]d %[3]s\n", w.Mtime.Sec, w.Mtime.Nsec, at)
	return append(left, w)
}

// remember notes what the files are, for the next restore or capture.
func (r *refit) remember(w *wanted, l *listing, fresh map[string]known) {
	for _, k := range w.kids {
		h := l.nodes[k.path]
		switch {
		case h == nil || h.Type != k.Type:
		case k.Type == tree.Directory:
			r.remember(k, l, fresh)
		case k.Type == tree.File && len(k.Redactions) == 0 && h.Mtime.Sec < l.now-trustSeconds && h.Content.Size == k.Content.Size:
			e := h.Entry
			e.Content, e.Holes = k.Content, nil
			note(fresh, r.full(k.path), h, &e)
		}
	}
}
