package repo

import (
	"bytes"
	"context"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/lru"
)

// TestJoinedChecksum sends packs put together, whose checksum is computed the
// first time and remembered for exactly these packs. Git checks every answer.
func TestJoinedChecksum(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 6)
	joins := lru.New[answerKey, []byte](1 << 20)
	prepared := func(wants ...object.ID) *packer {
		t.Helper()
		h, err := w.view(r.ID).Graph(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sel, err := h.Select(ctx, graph.Query{Wants: wants, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		return &packer{ctx: ctx, db: h.DB(), set: sel.Objects, ofs: true, joins: joins}
	}
	write := func(wants ...object.ID) []byte {
		t.Helper()
		var out bytes.Buffer
		sum, err := prepared(wants...).write(&out)
		if err != nil || !bytes.HasSuffix(out.Bytes(), sum[:]) {
			t.Fatalf("checksum %s, %v", sum, err)
		}
		return out.Bytes()
	}
	accepted := func(answer []byte) {
		t.Helper()
		newGitDir(t).in(answer, "index-pack", "--stdin", "--strict")
	}

	last := object.Zero
	for _, id := range c {
		revs := []string{id.String()}
		if !last.IsZero() {
			revs = append(revs, "^"+last.String())
		}
		wantStatus(t, w.push(r.ID, g.packRevs(revs...), wire.Command{Ref: "refs/heads/main", Old: last, New: id}), map[string]string{"refs/heads/main": ""})
		last = id
		first := write(last)
		accepted(first)
		if again := write(last); !bytes.Equal(again, first) {
			t.Error("the second answer differs")
		}
	}
	p := prepared(last)
	key, joined := p.joinKey()
	sum, known := joins.Get(key)
	if !joined || !known {
		t.Fatalf("%d packs: joined %v, remembered %v", len(p.db.Packs()), joined, known)
	}
	// What is remembered is what is used, for these packs and no others.
	wrong := object.ID{1, 2, 3}
	joins.Put(key, wrong[:], object.Size)
	if answer := write(last); !bytes.HasSuffix(answer, wrong[:]) {
		t.Error("the checksum was computed although it is remembered")
	}
	accepted(write(c[3]))
	joins.Put(key, sum, object.Size)
	accepted(write(last))

	// A fold changes the packs, and so the key; a pack that is not published has
	// no key; neither has a part of a pack.
	if _, err := w.engine.Collect(ctx, r.ID, CollectOptions{}); err != nil {
		t.Fatal(err)
	}
	w.commit(r.ID, "on top", map[string]string{"f": "1"})
	w.commit(r.ID, "on top of it", map[string]string{"f": "2"})
	tip := w.ref(r.ID, "refs/heads/main")
	accepted(write(tip))
	accepted(write(tip))
	p = prepared(tip)
	if again, joined := p.joinKey(); joined && again == key {
		t.Error("other packs have the same key")
	}
	pending := p.db.Packs()[0]
	id := pending.Info().ID
	pending.Info().ID = 0
	if _, joined := p.joinKey(); joined {
		t.Error("a pack without an id has a key")
	}
	pending.Info().ID = id
	part := graph.NewObjectSet(p.db)
	if loc, ok := p.db.Find(tip); ok {
		part.Add(loc)
	}
	p.set = part
	if _, joined := p.joinKey(); joined {
		t.Error("a part of a pack has a key")
	}
}
