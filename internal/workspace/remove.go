package workspace

import (
	"strings"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// removeTop is remove for what lies in a directory of both. It also reports whether
// anything was listed.
func (p *planner) removeTop(parent int, name string, t target) (listed, spared bool, err error) {
	p.planning.Lock()
	defer p.planning.Unlock()
	before := len(p.removes)
	spared, err = p.remove(&parent, name, t, 0)
	return len(p.removes) > before, spared, err
}

// remove lists what is to be removed of name and what lies beneath it, and
// reports whether anything is spared.
func (p *planner) remove(parent *int, name string, t target, level int) (spared bool, err error) {
	if !strings.Contains(t.rel(), "/") && strings.HasPrefix(name, StagingName) {
		p.removes = append(p.removes, t) // what a restore that ended early left
		return false, nil
	}
	st, err := lstat(*parent, name)
	if err != nil {
		return false, err
	}
	isDir := typeOf(&st) == tree.Directory
	v := p.verdict(t.rel(), isDir)
	if v == ignore.Skip {
		return true, nil
	}
	at := len(p.removes)
	if isDir {
		fd, err := openDir(*parent, name)
		if err != nil {
			return false, err
		}
		defer func() { unix.Close(fd) }()
		err = eachName(parent, &fd, level, func(n string) error {
			s, err := p.remove(&fd, n, target{t.root, t.path + "/" + n}, level+1)
			spared = spared || s
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if spared || v == ignore.Descend {
		return true, nil
	}
	p.removes = append(p.removes[:at], t)
	return false, nil
}
