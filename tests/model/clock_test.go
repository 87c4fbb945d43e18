package model_test

import (
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

// TestClocksMayDiffer collects a fork whose packs were in part cached by a
// process with another clock than the metadata store.
func TestClocksMayDiffer(t *testing.T) {
	w := newWorld(t, 1)
	source := w.create()
	for range 12 { // so that most of what the fork shares is of use to it
		path, text := w.change()
		tip := w.commit(source, "Work", path, text, "refs/heads/main")
		w.push(source, false, map[string]object.ID{"refs/heads/main": tip})
	}
	w.clock.Pass(time.Hour) // of the store and the engine, not of what makes packs
	w.fork(source, "main")
	fork := w.pairs[1]
	base := w.refs(fork)["refs/heads/main"]
	push := func(parent object.ID) object.ID {
		path, text := w.change()
		tip := w.commit(fork, "Work", path, text, parent.String())
		w.push(fork, false, map[string]object.ID{"refs/heads/main": tip})
		return tip
	}
	first := push(base)
	w.must(w.stack().Close())
	w.open()
	push(first)
	w.push(fork, false, map[string]object.ID{"refs/heads/main": base})
	w.clock.Pass(time.Hour)
	_, err := w.stack().Engine.Collect(w.ctx, fork.id, repo.CollectOptions{Full: true})
	w.must(err)
	push(base)
	w.compareRefs()
	w.compare(fork)
}
