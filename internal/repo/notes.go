package repo

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/notetree"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// NotesPrefix begins the full names of the refs that hold notes, and DefaultNotes
// is the one that git notes takes when none is named.
const (
	NotesPrefix  = "refs/notes/"
	DefaultNotes = NotesPrefix + "commits"
)

// maxNote bounds a note in bytes, what was appended before included.
const maxNote = 4 << 20

// Note is the note of an object.
type Note struct {
	Object object.ID
	Text   []byte
	Tip    object.ID // of the notes ref: a commit
}

// Annotated returns the object that a revision names, as git notes takes it: a
// tag of its own right stays one. Anything that is not there is a *NotFoundError.
func (v *View) Annotated(ctx context.Context, rev string) (object.ID, error) {
	if id, err := object.ParseID(rev); err == nil {
		missing, err := v.Reachable(ctx, id)
		if err == nil && !missing.IsZero() {
			err = &NotFoundError{What: "object", Name: rev}
		}
		return id, err
	}
	at, err := v.Resolve(ctx, rev, false)
	if err != nil || at.Ref == "" {
		return at.ID, err
	}
	return v.valueOf(at.Ref), nil
}

// Note returns an object's note. ref is the full name of a notes ref. Without the
// ref, or the note, the error is a *NotFoundError.
func (v *View) Note(ctx context.Context, ref string, id object.ID) (Note, error) {
	n := notes{ctx: ctx, view: v}
	tree, err := n.open(ref)
	if err != nil {
		return Note{}, err
	}
	blob, ok, err := tree.Get(id)
	if err != nil {
		return Note{}, notesError(err)
	}
	if !ok {
		return Note{}, &NotFoundError{What: "note", Name: id.String()}
	}
	text, err := n.text(blob)
	return Note{Object: id, Text: text, Tip: n.tip}, err
}

// NoteAction is what becomes of a note.
type NoteAction uint8

// The actions. AddNote refuses with an *ExistsError where there is a note,
// RemoveNote with a *NotFoundError where there is none.
const (
	AddNote NoteAction = iota
	AppendNote
	RemoveNote
)

// messages are what git notes writes into its commits.
var messages = [...]string{
	AddNote:    "Notes added by 'git notes add'\n",
	AppendNote: "Notes added by 'git notes append'\n",
	RemoveNote: "Notes removed by 'git notes remove'\n",
}

// NoteRequest asks for a change of one note.
type NoteRequest struct {
	Ref    string    // full name of a notes ref
	Object object.ID // the caller has found it
	Action NoteAction
	Text   string // without line breaks at its end; of RemoveNote nothing
	// Expected is what the notes ref must point to; zero says that it must not
	// exist, nil anything.
	Expected *object.ID
	Author   object.Signature
	// Record, when set, makes the row that is kept for the request's
	// idempotency key; it is called before the note is written.
	Record func(NoteResult) *meta.Idempotency
}

// NoteResult says where the notes ref went from and to.
type NoteResult struct {
	Old, New object.ID // Old is zero when the ref was made
}

// WriteNote changes one note by a commit upon the notes ref, as git notes does.
// Without Expected it is made anew when the ref moves meanwhile. Refusals are
// those of Update and of the actions.
func (e *Engine) WriteNote(ctx context.Context, w Writer, v *View, req NoteRequest) (NoteResult, error) {
	if err := CheckNotesRef(req.Ref); err != nil {
		return NoteResult{}, err
	}
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return NoteResult{}, err
	}
	defer done()
	unlock, err := e.lanes.lock(ctx, v.Repo().ID, req.Ref)
	if err != nil {
		return NoteResult{}, err
	}
	defer unlock()
	for range maxAttempts {
		v = e.newest(v)
		tip := v.valueOf(req.Ref)
		if req.Expected != nil && *req.Expected != tip {
			return NoteResult{}, &StaleError{Ref: req.Ref, Current: tip}
		}
		res, err := e.writeNote(ctx, w, v, req)
		var stale *StaleError
		if !errors.As(err, &stale) {
			return res, err
		}
		if v, err = e.renew(ctx, v); err != nil {
			return NoteResult{}, err
		}
	}
	return NoteResult{}, &ConflictError{Ref: req.Ref}
}

// CheckNotesRef refuses what is not the full name of a notes ref. The error is an
// *InvalidError.
func CheckNotesRef(full string) error {
	if !strings.HasPrefix(full, NotesPrefix) {
		return invalid("%q is no notes ref: its name begins with %q", clip(full), NotesPrefix)
	}
	return CheckStoredName(full)
}

// writeNote makes the commit upon one view.
func (e *Engine) writeNote(ctx context.Context, w Writer, v *View, req NoteRequest) (NoteResult, error) {
	n := notes{ctx: ctx, view: v}
	tree, err := n.open(req.Ref)
	var missing *NotFoundError
	if errors.As(err, &missing) && req.Action != RemoveNote {
		tree, err = notetree.Open(object.Zero, n.source())
	}
	if err != nil {
		return NoteResult{}, err
	}
	if err := n.change(tree, req); err != nil {
		return NoteResult{}, notesError(err)
	}
	root, err := tree.Write(func(id object.ID, data []byte) error {
		if !n.known[id] {
			n.fresh = append(n.fresh, freshObject{object.Tree, id, data})
		}
		return nil
	})
	if err != nil {
		return NoteResult{}, notesError(err)
	}
	var parents []object.ID
	if !n.tip.IsZero() {
		parents = []object.ID{n.tip}
	}
	b := &built{tree: root, parents: parents}
	if err := e.encode(ctx, w, b, object.CommitData{Author: req.Author, Committer: req.Author, Message: messages[req.Action]}); err != nil {
		return NoteResult{}, err
	}
	n.fresh = append(n.fresh, freshObject{object.Commit, b.id, b.data})
	f, err := e.packObjects(w, v, n.db, n.fresh)
	defer f.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	if err != nil {
		return NoteResult{}, err
	}
	row, err := f.finish(ctx, v, b.commit())
	if err != nil {
		return NoteResult{}, err
	}
	res := NoteResult{Old: n.tip, New: b.id}
	u := Update{Refs: []RefUpdate{{Name: req.Ref, Old: n.tip, New: b.id, descends: true}}, Pack: row, made: b}
	if req.Record != nil {
		u.Idempotency = req.Record(res)
	}
	_, err = e.publish(ctx, w, v, u, f.file, f.index)
	return res, err
}

// freshObject is an object that is put into a pack.
type freshObject struct {
	typ  object.Type
	id   object.ID
	data []byte
}

// packObjects writes those of some objects into a pack that the repository does
// not reach.
func (e *Engine) packObjects(writer Writer, v *View, db *odb.DB, objects []freshObject) (*freshPack, error) {
	f := &freshPack{file: e.newPack(writer, v.repo.ID, meta.PackInsert), exact: true}
	var out []freshObject
	for _, o := range objects {
		if db.Has(o.id) {
			f.exact = false
			if v.tidy() {
				continue
			}
		}
		out = append(out, o)
	}
	w := pack.NewWriter(f.file, uint32(len(out)))
	for _, o := range out {
		f.note(o.id)(w.Add(o.typ, o.data))
	}
	return f, f.close(w)
}

// notes is the notes of one ref while a request reads or changes them.
type notes struct {
	ctx   context.Context
	view  *View
	db    *odb.DB
	tip   object.ID // zero: the ref does not exist
	known map[object.ID]bool
	fresh []freshObject
	made  map[object.ID][]byte // blobs that are in no pack yet
}

// open reads the notes of a ref.
func (n *notes) open(ref string) (*notetree.Tree, error) {
	db, err := n.view.DB(n.ctx)
	if err != nil {
		return nil, err
	}
	n.db, n.known, n.made = db, map[object.ID]bool{}, map[object.ID][]byte{}
	if n.tip = n.view.valueOf(ref); n.tip.IsZero() {
		return nil, &NotFoundError{What: "notes ref", Name: clip(ref)}
	}
	g, err := n.view.Graph(n.ctx)
	if err != nil {
		return nil, err
	}
	at, ok := g.Node(n.tip)
	if !ok {
		return nil, invalid("notes ref %q points to what is no commit", clip(ref))
	}
	tree, err := notetree.Open(g.Tree(at), n.source())
	return tree, notesError(err)
}

// notesError makes a refusal of what a notes tree of somebody's making cannot be
// read for.
func notesError(err error) error {
	if errors.Is(err, notetree.ErrMalformed) {
		return &InvalidError{Reason: err.Error()}
	}
	return err
}

func (n *notes) source() notetree.Source {
	return notetree.Source{
		Tree: func(id object.ID) ([]byte, error) {
			n.known[id] = true
			return n.db.Tree(n.ctx, id)
		},
		Join: n.join,
	}
}

// join makes one blob of two, as Git does where an object has two notes.
func (n *notes) join(first, second object.ID) (object.ID, error) {
	a, err := n.text(first)
	if err != nil {
		return object.Zero, err
	}
	b, err := n.text(second)
	switch {
	case err != nil:
		return object.Zero, err
	case len(b) == 0:
		return first, nil
	case len(a) == 0:
		return second, nil
	}
	return n.blob(slices.Concat(bytes.TrimSuffix(a, []byte("\n")), []byte("\n\n"), b))
}

// text returns a note.
func (n *notes) text(id object.ID) ([]byte, error) {
	if text, ok := n.made[id]; ok {
		return text, nil
	}
	t, text, err := n.db.Get(n.ctx, id)
	if err == nil && t != object.Blob {
		err = invalid("note %s is no blob", id)
	}
	return text, err
}

// blob makes a note.
func (n *notes) blob(text []byte) (object.ID, error) {
	if len(text) > maxNote {
		return object.Zero, invalid("the note would be longer than %d bytes", maxNote)
	}
	id := object.Hash(object.Blob, text)
	if _, known := n.made[id]; !known {
		n.made[id] = text
		n.fresh = append(n.fresh, freshObject{object.Blob, id, text})
	}
	return id, nil
}

// change makes the change of a request.
func (n *notes) change(tree *notetree.Tree, req NoteRequest) error {
	old, exists, err := tree.Get(req.Object)
	switch {
	case err != nil:
		return err
	case req.Action == RemoveNote && !exists:
		return &NotFoundError{What: "note", Name: req.Object.String()}
	case req.Action == RemoveNote:
		_, err := tree.Remove(req.Object)
		return err
	case req.Action == AddNote && exists:
		return &ExistsError{What: "note", Name: req.Object.String()}
	}
	text := []byte(req.Text + "\n")
	if exists {
		before, err := n.text(old)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			text = slices.Concat(bytes.TrimSuffix(before, []byte("\n")), []byte("\n\n"), text)
		}
	}
	id, err := n.blob(text)
	if err != nil {
		return err
	}
	return tree.Set(req.Object, id)
}
