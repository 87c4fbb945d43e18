package workspace

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// relearn has the record of a directory made when everything is in place.
func (r *restore) relearn(n tree.Node) {
	if r.fresh != nil {
		r.learn = append(r.learn, n)
	}
}

// saveCache completes the stat cache with the directories that are not in it yet
// and keeps it.
func (r *restore) saveCache() error {
	if r.fresh == nil {
		return nil
	}
	learn := r.learn
	r.learn = nil
	pages := map[string][]page{}
	err := tree.Walk(r.ctx, r.src, learn, func(dir tree.Node, entries []tree.Entry, _ func(*tree.Entry)) error {
		root := r.roots[slices.IndexFunc(r.roots, func(l *liveRoot) bool { return beneath(l.Name, dir.Path) })]
		fd, err := root.trail.to(target{root, dir.Path}.rel())
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil // spared by a policy
		}
		if err != nil {
			return err
		}
		if dir.Page() {
			rec := r.record(fd, dir, entries, nil)
			pages[dir.Path] = append(pages[dir.Path], page{entries[0].Name, rec})
			return nil
		}
		r.remember(fd, dir, entries, nil)
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range learn {
		if n.Paged && pages[n.Path] != nil {
			r.fresh.add(n.Path, joined(pages[n.Path], n.Digest))
		}
	}
	if err := r.fresh.finish(); err != nil {
		return err
	}
	return r.fresh.commit()
}

// page is the record of one page of a large directory.
type page struct {
	first string
	rec   *recordWriter
}

// joined makes one record of those of all pages.
func joined(pages []page, index tree.Digest) *recordWriter {
	slices.SortFunc(pages, func(a, b page) int { return strings.Compare(a.first, b.first) })
	all := &recordWriter{}
	known := true
	for _, p := range pages {
		known = known && len(p.rec.objects) > 0
		all.objects = append(all.objects, p.rec.objects...)
		all.entries = append(all.entries, p.rec.entries...)
		all.n += p.rec.n
	}
	if all.object(index); !known {
		all.objects = nil
	}
	return all
}

// remember adds a directory as it is now to the cache. stats may have what is known
// of entries.
func (r *restore) remember(fd int, dir tree.Node, entries []tree.Entry, stats []stat) {
	r.fresh.add(dir.Path, r.record(fd, dir, entries, stats))
}

// record is what a capture would learn of a directory, or one page of it, as it is
// now. A file whose mtime is long ago is trusted however young its ctime: no other
// process writes during a restore, and a later write changes the mtime.
func (r *restore) record(fd int, dir tree.Node, entries []tree.Entry, stats []stat) *recordWriter {
	trusted := time.Now().Add(-trustAge)
	rec := &recordWriter{}
	whole := true
	var had, enc []byte
	for i := range entries {
		e := entries[i]
		var st stat
		var err error
		if stats != nil && stats[i].Ino != 0 {
			st = stats[i]
		} else {
			st, err = lstat(fd, e.Name)
		}
		if err != nil || typeOf(&st) != e.Type {
			whole = false // it was not restored
			continue
		}
		had = tree.AppendEntry(had[:0], &e)
		ino := uint64(0)
		if e.Type == tree.Directory { // what else it gets may be set later
			e.Mode = uint16(r.modeOf(e.Mode))
		} else {
			e.Mode, e.Mtime = uint16(st.Mode&0o7777), mtimeOf(&st)
			if !time.Unix(st.Mtim.Sec, st.Mtim.Nsec).After(trusted) && r.captures(fd, &e, &st) {
				ino = st.Ino
			}
		}
		if e.Type != tree.Directory || !r.opts.Owner {
			e.UID, e.GID = st.Uid, st.Gid
		}
		enc = tree.AppendEntry(enc[:0], &e)
		whole = whole && bytes.Equal(had, enc)
		rec.entry(ino, ctimeOf(&st), enc)
	}
	if whole {
		rec.object(dir.Digest)
	}
	return rec
}

// captures reports whether a capture with the restore's secrets would find in a
// file or link what e has, beyond what was written into it.
func (r *restore) captures(fd int, e *tree.Entry, st *stat) bool {
	if e.Type == tree.Symlink {
		return r.secrets == nil && e.Redactions == nil
	}
	if uint64(st.Size) != e.Content.Size || e.Mixed {
		return false
	}
	sparse := e.Holes != nil || st.Blocks*512 < st.Size
	if !sparse && e.Xattrs == nil && e.Redactions == nil && r.secrets == nil {
		return true
	}
	f, err := openFile(fd, e.Name)
	if err != nil {
		return false
	}
	defer unix.Close(f)
	if sparse {
		hs, err := holes(f, st.Size)
		if err != nil || !slices.Equal(hs, e.Holes) {
			return false
		}
	}
	xs, err := xattrs(f)
	if err == nil {
		xs, err = r.secrets.redactXattrs(xs)
	}
	return err == nil && slices.EqualFunc(xs, e.Xattrs, sameXattr) && r.secrets.finds(f, e)
}
