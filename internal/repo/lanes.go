package repo

import (
	"context"
	"sync"

	"github.com/cairnstate/cairn/internal/meta"
)

// lanes let the commits to one branch pass one after the other within this
// process: each is built upon the last instead of losing a race against it.
// Correctness does not depend on them.
type lanes struct {
	mu   sync.Mutex
	open map[laneKey]*lane
}

type laneKey struct {
	repo meta.RepoID
	ref  string
}

type lane struct {
	turn  chan struct{} // holds one value while somebody is in the lane
	users int
}

// lock waits for the lane of a ref and returns what leaves it again.
func (l *lanes) lock(ctx context.Context, repo meta.RepoID, ref string) (unlock func(), err error) {
	key := laneKey{repo, ref}
	l.mu.Lock()
	ln, ok := l.open[key]
	if !ok {
		ln = &lane{turn: make(chan struct{}, 1)}
		if l.open == nil {
			l.open = make(map[laneKey]*lane)
		}
		l.open[key] = ln
	}
	ln.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if ln.users--; ln.users == 0 {
			delete(l.open, key)
		}
	}
	select {
	case ln.turn <- struct{}{}:
		return func() { <-ln.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
