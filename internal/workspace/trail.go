package workspace

import (
	"strings"

	"golang.org/x/sys/unix"
)

// maxTrail is how many directories a trail holds open.
const maxTrail = 64

// trail opens directories beneath a root, one name at a time and without following
// links. It keeps those on the way to the last one open, so that the next, which
// mostly lies near it, takes a step or two.
type trail struct {
	root int
	at   string
	open []step
}

// step is an open directory on the way to at.
type step struct{ end, fd int } // the first end bytes of at are its path

// to opens the directory at rel. It is open until the next call or close.
func (t *trail) to(rel string) (int, error) {
	for n := len(t.open); n > 0 && !beneath(t.at[:t.open[n-1].end], rel); n-- {
		unix.Close(t.open[n-1].fd)
		t.open = t.open[:n-1]
	}
	at := step{0, t.root}
	if n := len(t.open); n > 0 {
		at = t.open[n-1]
	}
	t.at = rel
	for at.end < len(rel) {
		start := at.end
		if start > 0 {
			start++ // the slash
		}
		end := len(rel)
		if i := strings.IndexByte(rel[start:], '/'); i >= 0 {
			end = start + i
		}
		fd, err := openDir(at.fd, rel[start:end])
		if err != nil {
			return -1, err
		}
		if at = (step{end, fd}); len(t.open) == maxTrail {
			unix.Close(t.open[0].fd)
			copy(t.open, t.open[1:])
			t.open[maxTrail-1] = at
		} else {
			t.open = append(t.open, at)
		}
	}
	return at.fd, nil
}

// close forgets what is open: directories may have been replaced.
func (t *trail) close() {
	for _, s := range t.open {
		unix.Close(s.fd)
	}
	t.open = t.open[:0]
}
