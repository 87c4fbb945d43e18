package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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
			out.LeftOut.Add(e.Name, "a root that was not asked for")
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
	if cache == "" {
		return nil
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
				r.out.LeftOut.Add(r.full(e.path), workspace.ReasonRedacted)
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
		dir := parentOf(p)
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
				r.out.LeftOut.Add(r.full(w.path), workspace.ReasonUnsupported)
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
