// Package storetest is the conformance suite of checkpoint stores: Run tests the rules that checkpoint.Store and
// checkpoint.Forker state.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

// Clock moves the clock of a store, by which leases expire.
type Clock interface{ Advance(d time.Duration) }

// Run tests a store. open returns a fresh one, without a checkpoint, and its clock; it is called once for each test. Without
// a clock (nil) the tests of expiry are skipped.
func Run(t *testing.T, open func(t *testing.T) (checkpoint.Store, Clock)) {
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"EmptyThread", emptyThread},
		{"Chain", chain},
		{"Order", order},
		{"OrderOfBytes", orderOfBytes},
		{"ListOptions", listOptions},
		{"ThreadsAreApart", threadsAreApart},
		{"InvalidIDs", invalidIDs},
		{"InvalidEntries", invalidEntries},
		{"OrderOfChecks", orderOfChecks},
		{"NothingIsShared", nothingIsShared},
		{"WithoutWriter", withoutWriter},
		{"AnyHead", anyHead},
		{"Keys", keys},
		{"OneLease", oneLease},
		{"Release", release},
		{"Expiry", expiry},
		{"Renewal", renewal},
		{"DeleteHead", deleteHead},
		{"References", references},
		{"Fork", fork},
		{"ForkRefusals", forkRefusals},
		{"OneWins", oneWins},
		{"Native", native},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, clock := open(t)
			test.run(&suite{T: t, Store: store, clock: clock, ctx: t.Context()})
		})
	}
}

// suite is a store under test.
type suite struct {
	*testing.T
	checkpoint.Store
	clock Clock
	ctx   context.Context
}

var start = time.UnixMilli(1_700_000_000_000).UTC()

// key is the blob key of a file whose digest begins with c.
func key(c string) string { return "sandbox-files/sha256/" + c + strings.Repeat("0", 64-len(c)) }

func artifactKey(c string) string { return strings.Replace(key(c), "files", "artifacts", 1) }

// record returns a valid checkpoint with one file.
func record(thread, id, parent string) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		ID: id, Thread: thread, Parent: parent, CreatedAt: start, Reason: checkpoint.Automatic, External: true,
		Files:        []checkpoint.File{{Path: "src/main.go", Kind: "file", BlobKey: key("a"), Size: 12}, {Path: "empty", Kind: "dir"}},
		Conversation: []json.RawMessage{json.RawMessage(`{"role":"user","content":"go on"}`)},
	}
}

func (s *suite) lease(thread string) checkpoint.Writer {
	s.Helper()
	l, err := s.Acquire(s.ctx, thread)
	if err != nil {
		s.Fatalf("acquire: %v", err)
	}
	return l.Writer
}

// add appends a checkpoint after its parent.
func (s *suite) add(c checkpoint.Checkpoint, w checkpoint.Writer) *checkpoint.Checkpoint {
	s.Helper()
	done, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: c, ExpectedHead: c.Parent, Writer: &w})
	if err != nil {
		s.Fatalf("append %q: %v", c.ID, err)
	}
	return done.Checkpoint
}

// refused checks the code of an error.
func (s *suite) refused(what string, err error, want checkpoint.Code) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (s *suite) head(thread, want string) {
	s.Helper()
	if got, err := s.Head(s.ctx, thread); err != nil || got != want {
		s.Errorf("the head of %q is %q (%v), want %q", thread, got, err, want)
	}
}

// ids lists a thread.
func (s *suite) ids(thread string, o checkpoint.ListOptions) []string {
	s.Helper()
	var ids []string
	for c, err := range s.List(s.ctx, thread, o) {
		if err != nil {
			s.Fatalf("list: %v", err)
		}
		ids = append(ids, c.ID)
	}
	return ids
}

func (s *suite) listed(thread string, want ...string) {
	s.Helper()
	if got := s.ids(thread, checkpoint.ListOptions{}); !slices.Equal(got, want) {
		s.Errorf("%q has %q, want %q", thread, got, want)
	}
}

func emptyThread(s *suite) {
	s.head("nobody", "")
	s.listed("nobody")
	_, err := s.Get(s.ctx, "nothing")
	s.refused("get of what is not there", err, checkpoint.ErrMissingCheckpoint)
	if s.Identity() == "" {
		s.Error("the store has no identity")
	}
}

func chain(s *suite) {
	w := s.lease("t")
	root, child := record("t", "c1", ""), record("t", "c2", "c1")
	root.Label, root.Reason, root.Run = "begin", checkpoint.Named, "run-1"
	root.Artifacts = []checkpoint.Artifact{{ID: "a", Name: "n", MimeType: "text/plain", Size: 3, BlobKey: artifactKey("b"), CreatedAt: start}}
	s.add(root, w)
	s.head("t", "c1")
	child.CreatedAt = start.Add(time.Second)
	s.add(child, w)
	s.head("t", "c2")
	s.listed("t", "c1", "c2")
	for _, want := range []checkpoint.Checkpoint{root, child} {
		got, err := s.Get(s.ctx, want.ID)
		if err != nil {
			s.Fatal(err)
		}
		got.Stats = want.Stats
		if !reflect.DeepEqual(*got, want) {
			s.Errorf("got %+v, want %+v", *got, want)
		}
	}
}

func order(s *suite) {
	w := s.lease("t")
	parent := ""
	for i, at := range []int{5, 1, 3} { // times need not grow
		c := record("t", fmt.Sprint("c", i), parent)
		c.CreatedAt = start.Add(time.Duration(at) * time.Second)
		s.add(c, w)
		parent = c.ID
	}
	s.listed("t", "c1", "c2", "c0")
	s.head("t", "c2")
}

func orderOfBytes(s *suite) {
	w := s.lease("t")
	parent := ""
	for _, id := range []string{"é", "😀", "a", "B"} {
		s.add(record("t", id, parent), w)
		parent = id
	}
	s.listed("t", "B", "a", "é", "😀")
}

func listOptions(s *suite) {
	w := s.lease("t")
	parent := ""
	for i := range 5 {
		c := record("t", fmt.Sprint("c", i), parent)
		c.CreatedAt = start.Add(time.Duration(i) * time.Second)
		if i%2 == 0 {
			c.Label, c.Reason = "even", checkpoint.Named
		}
		s.add(c, w)
		parent = c.ID
	}
	for _, test := range []struct {
		o    checkpoint.ListOptions
		want []string
	}{
		{checkpoint.ListOptions{Newest: true}, []string{"c4", "c3", "c2", "c1", "c0"}},
		{checkpoint.ListOptions{Limit: 2}, []string{"c0", "c1"}},
		{checkpoint.ListOptions{Newest: true, Limit: 1}, []string{"c4"}},
		{checkpoint.ListOptions{Label: "even"}, []string{"c0", "c2", "c4"}},
		{checkpoint.ListOptions{Label: "odd"}, nil},
	} {
		if got := s.ids("t", test.o); !slices.Equal(got, test.want) {
			s.Errorf("%+v lists %q, want %q", test.o, got, test.want)
		}
	}
	for c, err := range s.List(s.ctx, "t", checkpoint.ListOptions{Whole: true, Limit: 1}) {
		if err != nil || len(c.Files) != 2 || len(c.Conversation) != 1 {
			s.Errorf("listed whole: %+v (%v)", c, err)
		}
	}
}

func threadsAreApart(s *suite) {
	a, b := s.lease("a"), s.lease("b")
	s.add(record("a", "a1", ""), a)
	s.add(record("b", "b1", ""), b)
	s.head("a", "a1")
	s.listed("b", "b1")
	c := record("b", "a1", "b1")
	_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: c, ExpectedHead: "b1", Writer: &b})
	s.refused("an id of another thread", err, checkpoint.ErrDuplicateID)
	c = record("a", "a2", "a1")
	_, err = s.Append(s.ctx, checkpoint.Append{Checkpoint: c, ExpectedHead: "a1", Writer: &b})
	s.refused("a writer of another thread", err, checkpoint.ErrWriterLost)
	s.listed("a", "a1")
}

func invalidIDs(s *suite) {
	w := s.lease("t")
	for _, bad := range []string{"", "\xff", "a\xed\xa0\x80b"} {
		_, err := s.Get(s.ctx, bad)
		s.refused("get", err, checkpoint.ErrInvalidID)
		_, err = s.Head(s.ctx, bad)
		s.refused("head", err, checkpoint.ErrInvalidID)
		for _, err := range s.List(s.ctx, bad, checkpoint.ListOptions{}) {
			s.refused("list", err, checkpoint.ErrInvalidID)
		}
		_, err = s.Acquire(s.ctx, bad)
		s.refused("acquire", err, checkpoint.ErrInvalidID)
		s.refused("delete", s.DeleteHead(s.ctx, "t", bad, w), checkpoint.ErrInvalidID)
		if bad != "" {
			for _, a := range []checkpoint.Append{
				{Checkpoint: record("t", bad, "")}, {Checkpoint: record("t", "c", bad)}, {Checkpoint: record("t", "c", ""), ExpectedHead: bad},
			} {
				a.Writer = &w
				_, err = s.Append(s.ctx, a)
				s.refused("append", err, checkpoint.ErrInvalidID)
			}
		}
	}
	s.listed("t")
}

func invalidEntries(s *suite) {
	w := s.lease("t")
	file := func(path string) checkpoint.File {
		return checkpoint.File{Path: path, Kind: "file", BlobKey: key("a"), Size: 1}
	}
	tests := map[string][]checkpoint.File{
		"twice":             {file("a"), file("a")},
		"beneath a file":    {file("a"), file("a/b")},
		"of another kind":   {{Path: "a", Kind: "pipe"}},
		"negative":          {{Path: "a", Kind: "file", BlobKey: key("a"), Size: -1}},
		"too large":         {{Path: "a", Kind: "file", BlobKey: key("a"), Size: 1 << 53}},
		"another key":       {{Path: "a", Kind: "file", BlobKey: "sandbox-artifacts/sha256/" + strings.Repeat("0", 64)}},
		"a short key":       {{Path: "a", Kind: "file", BlobKey: key("a")[:80]}},
		"a key of capitals": {{Path: "a", Kind: "file", BlobKey: key("A")}},
		"no key":            {{Path: "a", Kind: "file"}},
		"a dir with size":   {{Path: "a", Kind: "dir", Size: 1}},
		"a dir with key":    {{Path: "a", Kind: "dir", BlobKey: key("a")}},
	}
	for _, path := range []string{"", "/a", "a/", "a//b", "./a", "a/..", "a\\b", "a\x00b", "c:/a", "c:"} {
		tests[fmt.Sprintf("the path %q", path)] = []checkpoint.File{file(path)}
	}
	for name, files := range tests {
		c := record("t", "c", "")
		c.Files = files
		_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: c, Writer: &w})
		s.refused(name, err, checkpoint.ErrInvalidEntry)
	}
	good := checkpoint.Artifact{ID: "a", Name: "n", MimeType: "text/plain", Size: 3, BlobKey: artifactKey("b"), CreatedAt: start}
	for name, spoil := range map[string]func(*checkpoint.Artifact){
		"artifact without id":     func(a *checkpoint.Artifact) { a.ID = "" },
		"artifact without name":   func(a *checkpoint.Artifact) { a.Name = "" },
		"artifact without type":   func(a *checkpoint.Artifact) { a.MimeType = "" },
		"artifact of a file":      func(a *checkpoint.Artifact) { a.BlobKey = key("b") },
		"artifact of no size":     func(a *checkpoint.Artifact) { a.Size = -1 },
		"artifact of a huge size": func(a *checkpoint.Artifact) { a.Size = 1 << 53 },
	} {
		c, bad := record("t", "c", ""), good
		spoil(&bad)
		c.Artifacts = []checkpoint.Artifact{bad}
		_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: c, Writer: &w})
		s.refused(name, err, checkpoint.ErrInvalidEntry)
	}
	s.head("t", "")
	c := record("t", "c", "")
	c.Files = []checkpoint.File{file("a:b"), {Path: "dir", Kind: "dir"}, file("dir/ein Name, ö 😀"), {Path: "zero", Kind: "file", BlobKey: key("e")}}
	s.add(c, w)
}

func orderOfChecks(s *suite) {
	w := s.lease("t")
	s.add(record("t", "c1", ""), w)
	s.add(record("t", "c2", "c1"), w)
	lost := w
	lost.Fence--
	try := func(what string, c checkpoint.Checkpoint, expected string, w checkpoint.Writer, want checkpoint.Code) {
		s.Helper()
		_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: c, ExpectedHead: expected, Writer: &w})
		s.refused(what, err, want)
	}
	try("a lost lease before a duplicate", record("t", "c1", "c1"), "c1", lost, checkpoint.ErrWriterLost)
	try("a duplicate before a stale head", record("t", "c1", "c1"), "c1", w, checkpoint.ErrDuplicateID)
	try("a stale head before the parent", record("t", "c3", "c2"), "c1", w, checkpoint.ErrHeadConflict)
	try("no head expected", record("t", "c3", ""), "", w, checkpoint.ErrHeadConflict)
	try("the parent", record("t", "c3", "c1"), "c2", w, checkpoint.ErrParentMismatch)
	try("no parent", record("t", "c3", ""), "c2", w, checkpoint.ErrParentMismatch)
	bad := record("t", "c1", "c1")
	bad.Files[0].Path = "../x"
	try("an entry before a lost lease", bad, "c1", lost, checkpoint.ErrInvalidEntry)
	s.listed("t", "c1", "c2")
	_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c3", "c1"), ExpectedHead: "c1", Writer: &w})
	conflict, ok := errors.AsType[*checkpoint.HeadConflictError](err)
	if !ok || conflict.Expected != "c1" || conflict.Head != "c2" {
		s.Errorf("a stale head: %#v", err)
	}
}

func nothingIsShared(s *suite) {
	w := s.lease("t")
	c := record("t", "c1", "")
	s.add(c, w)
	c.Files[0].Path = "changed"
	copy(c.Conversation[0], "changed!")
	check := func(when string) *checkpoint.Checkpoint {
		got, err := s.Get(s.ctx, "c1")
		if err != nil || got.Files[0].Path != "src/main.go" || !strings.HasPrefix(string(got.Conversation[0]), `{"role"`) {
			s.Errorf("%s: %+v, %v", when, got, err)
		}
		return got
	}
	got := check("after the caller changed what it had passed in")
	got.Files[0].Path, got.Label = "changed", "changed"
	for c := range s.List(s.ctx, "t", checkpoint.ListOptions{Whole: true}) {
		if c != nil && len(c.Files) > 0 {
			c.Files[0].Path = "changed"
		}
	}
	if got := check("after the caller changed what it had got"); got.Label != "" {
		s.Errorf("the label is %q", got.Label)
	}
}

func withoutWriter(s *suite) {
	_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c1", "")})
	if err != nil {
		s.Fatal(err)
	}
	w := s.lease("t")
	_, err = s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c2", "c1"), ExpectedHead: "c1"})
	s.refused("while another has the lease", err, checkpoint.ErrWriterConflict)
	if err := s.Release(s.ctx, w); err != nil {
		s.Fatal(err)
	}
	if _, err = s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c2", "c1"), ExpectedHead: "c1"}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.Acquire(s.ctx, "t"); err != nil {
		s.Errorf("the append kept the lease: %v", err)
	}
	s.listed("t", "c1", "c2")
}

func anyHead(s *suite) {
	w := s.lease("t")
	s.add(record("t", "c1", ""), w)
	done, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c2", "c1"), AnyHead: true, Writer: &w})
	if err != nil || done.Checkpoint.Parent != "c1" {
		s.Errorf("onto any head: %+v, %v", done, err)
	}
	s.head("t", "c2")
}

func keys(s *suite) {
	a := checkpoint.Append{Checkpoint: record("t", "c1", ""), Key: "key-1"}
	first, err := s.Append(s.ctx, a)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c2", "c1"), ExpectedHead: "c1"}); err != nil {
		s.Fatal(err)
	}
	again, err := s.Append(s.ctx, a)
	if err != nil || again.Checkpoint.ID != first.Checkpoint.ID {
		s.Errorf("the same append again: %+v, %v", again, err)
	}
	s.listed("t", "c1", "c2")
}

func oneLease(s *suite) {
	first := s.lease("t")
	_, err := s.Acquire(s.ctx, "t")
	s.refused("a second writer", err, checkpoint.ErrWriterConflict)
	s.lease("another")
	if err := s.Release(s.ctx, first); err != nil {
		s.Fatal(err)
	}
	if second := s.lease("t"); second.Fence <= first.Fence || second.OwnerToken == first.OwnerToken {
		s.Errorf("the fence went from %d to %d", first.Fence, second.Fence)
	}
	s.head("t", "")
}

func release(s *suite) {
	first := s.lease("t")
	if err := s.Release(s.ctx, first); err != nil {
		s.Fatal(err)
	}
	second := s.lease("t")
	for range 2 {
		if err := s.Release(s.ctx, first); err != nil {
			s.Errorf("a release that comes late: %v", err)
		}
	}
	_, err := s.Acquire(s.ctx, "t")
	s.refused("after the late release", err, checkpoint.ErrWriterConflict)
	_, err = s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c", ""), Writer: &first})
	s.refused("append after the release", err, checkpoint.ErrWriterLost)
	_, err = s.Renew(s.ctx, first)
	s.refused("renew after the release", err, checkpoint.ErrWriterLost)
	s.add(record("t", "c", ""), second)
}

// needClock skips a test of a store whose clock cannot be moved.
func (s *suite) needClock() {
	if s.clock == nil {
		s.Skip("the clock of this store cannot be moved")
	}
}

func expiry(s *suite) {
	s.needClock()
	lease, err := s.Acquire(s.ctx, "t")
	if err != nil {
		s.Fatal(err)
	}
	w := lease.Writer
	s.add(record("t", "c1", ""), w)
	refused := func(when string) {
		_, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c2", "c1"), ExpectedHead: "c1", Writer: &w})
		s.refused("append "+when, err, checkpoint.ErrWriterLost)
		_, err = s.Renew(s.ctx, w)
		s.refused("renew "+when, err, checkpoint.ErrWriterLost)
		s.refused("delete "+when, s.DeleteHead(s.ctx, "t", "c1", w), checkpoint.ErrWriterLost)
		s.listed("t", "c1")
	}
	s.clock.Advance(time.Hour)
	refused("after the lease expired")
	next := s.lease("t")
	if next.Fence <= w.Fence {
		s.Errorf("the fence went from %d to %d", w.Fence, next.Fence)
	}
	refused("after another took over")
	s.add(record("t", "c2", "c1"), next)
}

func renewal(s *suite) {
	s.needClock()
	lease, err := s.Acquire(s.ctx, "t")
	if err != nil {
		s.Fatal(err)
	}
	if lease.RenewAfter <= 0 {
		s.Fatalf("a lease that is to be renewed after %s", lease.RenewAfter)
	}
	end := lease.ExpiresAt
	for range 5 {
		s.clock.Advance(lease.RenewAfter)
		renewed, err := s.Renew(s.ctx, lease.Writer)
		if err != nil {
			s.Fatalf("renew: %v", err)
		}
		if got := renewed.ExpiresAt.Sub(end); got <= 0 || renewed.Writer != lease.Writer {
			s.Errorf("renewed %+v to %+v", lease, renewed)
		}
		end = renewed.ExpiresAt
	}
	s.add(record("t", "c1", ""), lease.Writer)
}

func deleteHead(s *suite) {
	w := s.lease("t")
	for i := range 3 {
		parent := ""
		if i > 0 {
			parent = fmt.Sprint("c", i-1)
		}
		c := record("t", fmt.Sprint("c", i), parent)
		c.CreatedAt = start.Add(time.Duration(i) * time.Second)
		s.add(c, w)
	}
	s.refused("not the head", s.DeleteHead(s.ctx, "t", "c1", w), checkpoint.ErrNotHead)
	s.refused("not there", s.DeleteHead(s.ctx, "t", "nothing", w), checkpoint.ErrNotHead)
	other := s.lease("other")
	s.refused("another writer", s.DeleteHead(s.ctx, "t", "c2", other), checkpoint.ErrWriterLost)
	for i := 2; i >= 0; i-- {
		if err := s.DeleteHead(s.ctx, "t", fmt.Sprint("c", i), w); err != nil {
			s.Fatal(err)
		}
		want := ""
		if i > 0 {
			want = fmt.Sprint("c", i-1)
		}
		s.head("t", want)
	}
	s.listed("t")
	_, err := s.Get(s.ctx, "c0")
	s.refused("get of what was deleted", err, checkpoint.ErrMissingCheckpoint)
}

// counts collects the references of a store.
func counts(s *suite, c checkpoint.Counter) (keys []string, all map[string]int) {
	all = map[string]int{}
	for r, err := range (iter.Seq2[checkpoint.Reference, error])(c.References(s.ctx)) {
		if err != nil {
			s.Fatalf("references: %v", err)
		}
		keys = append(keys, r.Key)
		all[r.Key] = r.Count
	}
	return keys, all
}

func references(s *suite) {
	counter, ok := s.Store.(checkpoint.Counter)
	if !ok {
		s.Skip("the store counts no references")
	}
	w := s.lease("t")
	c := record("t", "c1", "")
	c.Files = []checkpoint.File{
		{Path: "x", Kind: "file", BlobKey: key("b"), Size: 1}, {Path: "y", Kind: "file", BlobKey: key("b"), Size: 1}, {Path: "z", Kind: "file", BlobKey: key("a"), Size: 1},
	}
	c.Artifacts = []checkpoint.Artifact{{ID: "a", Name: "n", MimeType: "text/plain", Size: 3, BlobKey: artifactKey("b"), CreatedAt: start}}
	s.add(c, w)
	c.ID, c.Parent, c.Files, c.Artifacts = "c2", "c1", c.Files[:1], nil
	s.add(c, w)
	order, got := counts(s, counter)
	want := map[string]int{key("a"): 1, key("b"): 2, artifactKey("b"): 1}
	if !reflect.DeepEqual(got, want) || !slices.IsSorted(order) {
		s.Errorf("references %v in the order %q, want %v", got, order, want)
	}
	if err := s.DeleteHead(s.ctx, "t", "c2", w); err != nil {
		s.Fatal(err)
	}
	if _, got = counts(s, counter); got[key("b")] != 1 {
		s.Errorf("after the deletion: %v", got)
	}
	if err := s.DeleteHead(s.ctx, "t", "c1", w); err != nil {
		s.Fatal(err)
	}
	if _, got = counts(s, counter); len(got) != 0 {
		s.Errorf("with nothing left: %v", got)
	}
}

// forker skips the test of a store that cannot fork.
func (s *suite) forker() checkpoint.Forker {
	f, ok := s.Store.(checkpoint.Forker)
	if !ok {
		s.Skip("the store does not fork")
	}
	return f
}

func fork(s *suite) {
	f := s.forker()
	w := s.lease("source")
	first := record("source", "c1", "")
	first.Label, first.Reason, first.Run = "begin", checkpoint.Named, "run-1"
	s.add(first, w)
	later := record("source", "c2", "c1")
	later.Files, later.Conversation = later.Files[1:], nil
	s.add(later, w)
	at := start.Add(time.Hour)
	dest := s.lease("dest")
	made, err := f.ForkFrom(s.ctx, checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "dest", ID: "d1", CreatedAt: at, Writer: &dest})
	if err != nil || made.ID != "d1" {
		s.Fatalf("forked %+v, %v", made, err)
	}
	got, err := s.Get(s.ctx, "d1")
	if err != nil {
		s.Fatal(err)
	}
	if got.Thread != "dest" || got.Parent != "" || got.Reason != checkpoint.ForkRoot || !got.CreatedAt.Equal(at) || got.Label != "" || got.Run != "" ||
		!reflect.DeepEqual(got.Files, first.Files) || !reflect.DeepEqual(got.Conversation, first.Conversation) {
		s.Errorf("the fork is %+v", got)
	}
	s.head("dest", "d1")
	s.head("source", "c2")
	s.add(record("source", "c3", "c2"), w) // the source's lease is untouched
	s.add(record("dest", "d2", "d1"), dest)
	if err := s.DeleteHead(s.ctx, "source", "c3", w); err != nil {
		s.Fatal(err)
	}
	s.listed("source", "c1", "c2")
	s.ids("dest", checkpoint.ListOptions{})
	s.head("dest", "d2")
}

func forkRefusals(s *suite) {
	f := s.forker()
	w := s.lease("source")
	s.add(record("source", "c1", ""), w)
	used := s.lease("used")
	s.add(record("used", "u1", ""), used)
	dest := s.lease("dest")
	lost := dest
	lost.Fence--
	for _, test := range []struct {
		name string
		p    checkpoint.ForkParams
		want checkpoint.Code
	}{
		{"the same thread", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "source", Writer: &w}, checkpoint.ErrForkThreadMismatch},
		{"no source", checkpoint.ForkParams{Source: "source", Checkpoint: "none", Thread: "dest", Writer: &dest}, checkpoint.ErrForkSourceNotFound},
		{"another source", checkpoint.ForkParams{Source: "used", Checkpoint: "c1", Thread: "dest", Writer: &dest}, checkpoint.ErrForkThreadMismatch},
		{"another writer", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "dest", Writer: &used}, checkpoint.ErrWriterLost},
		{"a lost writer", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "dest", Writer: &lost}, checkpoint.ErrWriterLost},
		{"a held lease", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "dest"}, checkpoint.ErrWriterConflict},
		{"a thread in use", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "used", Writer: &used}, checkpoint.ErrForkDestinationInUse},
		{"an id in use", checkpoint.ForkParams{Source: "source", Checkpoint: "c1", Thread: "dest", ID: "u1", Writer: &dest}, checkpoint.ErrForkDestinationInUse},
	} {
		if test.p.ID == "" {
			test.p.ID = "d1"
		}
		test.p.CreatedAt = start
		_, err := f.ForkFrom(s.ctx, test.p)
		s.refused(test.name, err, test.want)
		s.head("dest", "")
		s.listed("used", "u1")
		s.listed("source", "c1")
	}
}

// oneWins lets many writers append after the same head at once.
func oneWins(s *suite) {
	const writers = 8
	if _, err := s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", "c", "")}); err != nil {
		s.Fatal(err)
	}
	var wg sync.WaitGroup
	results := make([]error, writers)
	for i := range writers {
		wg.Go(func() {
			_, results[i] = s.Append(s.ctx, checkpoint.Append{Checkpoint: record("t", fmt.Sprint("w", i), "c"), ExpectedHead: "c"})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, checkpoint.ErrHeadConflict) && !errors.Is(err, checkpoint.ErrWriterConflict) {
			s.Errorf("a writer that lost: %v", err)
		}
	}
	if n := len(s.ids("t", checkpoint.ListOptions{})); won != 1 || n != 2 {
		s.Errorf("%d writers won, and there are %d checkpoints", won, n)
	}
}

// native captures and restores directories, where the store keeps the bytes too.
func native(s *suite) {
	blobs, ok := s.Store.(checkpoint.Blobs)
	if !ok {
		s.Skip("the store keeps no bytes")
	}
	dir, state := s.TempDir(), s.TempDir()
	capture := func(text string) *checkpoint.Captured {
		s.Helper()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644); err != nil {
			s.Fatal(err)
		}
		c, err := checkpoint.Capture(s.ctx, checkpoint.CaptureParams{
			Store: s.Store, Blobs: blobs, Thread: "t", Roots: []checkpoint.Root{{Path: dir}}, StateDir: state,
		})
		if err != nil {
			s.Fatal(err)
		}
		return c
	}
	first := capture("one")
	second := capture("two")
	if second.Unchanged || second.Checkpoint.Parent != first.Checkpoint.ID || !second.Checkpoint.Native() {
		s.Errorf("the second capture: %+v of %+v", second, second.Checkpoint)
	}
	if n := len(s.ids("t", checkpoint.ListOptions{})); n != 2 {
		s.Errorf("the thread has %d checkpoints", n)
	}
	missing := checkpoint.Digest{1}
	_, err := s.Append(s.ctx, checkpoint.Append{
		Checkpoint: checkpoint.Checkpoint{ID: "x", Thread: "other", Root: missing}, Upload: "none",
	})
	if _, apart := s.Store.(*checkpoint.Memory); !apart { // its bytes may be elsewhere: it cannot tell
		s.refused("a root that is missing", err, checkpoint.ErrMissingBlob)
	}
	head := second.Checkpoint
	for _, always := range []bool{false, true} {
		done, err := s.Append(s.ctx, checkpoint.Append{
			Checkpoint: checkpoint.Checkpoint{Thread: "t", Root: head.Root}, ExpectedHead: head.ID, Always: always,
		})
		if err != nil || done.Unchanged == always || (done.Checkpoint.ID == head.ID) == always {
			s.Errorf("the root of the head again, always %v: %+v, %v", always, done, err)
		}
	}
	s.saysMore(head.Root)
	out := s.TempDir()
	if _, err := checkpoint.Restore(s.ctx, checkpoint.RestoreParams{
		Store: s.Store, Blobs: blobs, Thread: "t", Checkpoint: first.Checkpoint.ID, Roots: []checkpoint.Root{{Path: out}}, StateDir: state,
	}); err != nil {
		s.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "file")); err != nil || string(b) != "one" {
		s.Errorf("restored %q, %v", b, err)
	}
}

// saysMore appends the files of the head once more, with what the head does not say, and without.
func (s *suite) saysMore(root checkpoint.Digest) {
	s.Helper()
	head, err := s.Head(s.ctx, "t")
	if err != nil {
		s.Fatal(err)
	}
	at := func(commit string) *checkpoint.Git { return &checkpoint.Git{Repo: "r", Commit: commit} }
	for _, step := range []struct {
		label     string
		git       *checkpoint.Git
		unchanged bool
	}{
		{label: "name"}, {unchanged: true}, {label: "name", unchanged: true}, {label: "other"},
		{git: at("1")}, {git: at("1"), unchanged: true}, {unchanged: true}, {git: at("2")},
	} {
		done, err := s.Append(s.ctx, checkpoint.Append{
			Checkpoint: checkpoint.Checkpoint{Thread: "t", Root: root, Label: step.label, Git: step.git}, ExpectedHead: head,
		})
		if err != nil || done.Unchanged != step.unchanged || !step.unchanged && (done.Checkpoint.Label != step.label || done.Checkpoint.Parent != head) {
			s.Fatalf("the files of the head with %+v: %+v, %v", step, done, err)
		}
		head = done.Checkpoint.ID
	}
	_, err = s.Append(s.ctx, checkpoint.Append{Checkpoint: checkpoint.Checkpoint{ID: head, Thread: "t", Root: root}, ExpectedHead: head})
	s.refused("an id that is taken, with the files of the head", err, checkpoint.ErrDuplicateID)
}
