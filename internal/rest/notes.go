package rest

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

// notesRef completes the name of a notes ref.
func notesRef(name string) (string, error) {
	if name == "" {
		return repo.DefaultNotes, nil
	}
	full, err := underNotes(name)
	if err == nil {
		err = repo.CheckNotesRef(full)
	}
	return full, err
}

// underNotes completes what begins the name of a notes ref.
func underNotes(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, repo.NotesPrefix):
		return name, nil
	case strings.HasPrefix(name, "refs/"):
		return "", invalid("%.200q is not below %s: use a name such as reviews", name, repo.NotesPrefix)
	}
	return repo.NotesPrefix + strings.TrimPrefix(name, "notes/"), nil
}

func (c *call) getNote(q api.GetNote) (api.Note, error) {
	rev := first(q.ObjectRef, q.SHA)
	if rev == "" {
		return api.Note{}, invalid("query parameter %q is missing: it names an object", "object_ref")
	}
	ref, err := notesRef(first(q.NotesRef, q.Ref))
	if err != nil {
		return api.Note{}, err
	}
	n, err := c.Service.Note(c.ctx, c.access, ref, rev)
	if err != nil {
		return api.Note{}, err
	}
	return api.Note{SHA: n.Object.String(), Note: strings.TrimRight(utf8Text(string(n.Text), ""), "\n"), RefSHA: n.Tip.String()}, nil
}

var noteActions = map[string]repo.NoteAction{"": repo.AddNote, "add": repo.AddNote, "append": repo.AppendNote, "remove": repo.RemoveNote}

func (c *call) writeNote(q api.WriteNote) error {
	action, ok := noteActions[q.Action]
	text := strings.TrimSpace(q.Note)
	switch {
	case !ok:
		return invalid("action %.40q is not known: use add, append or remove", q.Action)
	case action == repo.RemoveNote:
		text = ""
	case text == "":
		return invalid("note is missing: send its text")
	}
	return c.changeNote(api.DeleteNote{
		ObjectRef: q.ObjectRef, SHA: q.SHA, NotesRef: q.NotesRef, Ref: q.Ref,
		ExpectedNotesRefSHA: q.ExpectedNotesRefSHA, ExpectedRefSHA: q.ExpectedRefSHA, Author: q.Author,
	}, action, text)
}

func (c *call) deleteNote(q api.DeleteNote) error { return c.changeNote(q, repo.RemoveNote, "") }

// changeNote changes a note and answers. What a guard, a policy or the note that
// is there refuses is told in the shape of an answer.
func (c *call) changeNote(q api.DeleteNote, action repo.NoteAction, text string) error {
	rev := first(q.ObjectRef, q.SHA)
	if rev == "" {
		return invalid("object_ref is missing: it names the object of the note")
	}
	req := repo.NoteRequest{Action: action, Text: text}
	var err error
	if req.Ref, err = notesRef(first(q.NotesRef, q.Ref)); err != nil {
		return err
	}
	if expected := first(q.ExpectedNotesRefSHA, q.ExpectedRefSHA); expected != "" {
		id, err := object.ParseID(expected)
		if err != nil {
			return invalid("expected_notes_ref_sha %.80q is not a full commit id of 40 hexadecimal digits", expected)
		}
		req.Expected = &id
	}
	if q.Author == nil {
		name, email := c.access.Identity()
		q.Author = &api.Identity{Name: name, Email: email}
	}
	if req.Author, err = signature("author", q.Author, time.Now()); err != nil {
		return err
	}
	target, err := c.Service.NoteTarget(c.ctx, c.access, req.Ref, rev)
	if err != nil {
		return err
	}
	out := api.NoteUpdate{SHA: target.Object.String(), TargetRef: req.Ref, NotesRef: req.Ref}
	written := func(res repo.NoteResult) api.NoteUpdate {
		done := out
		done.NewRefSHA, done.Result = res.New.String(), api.NoteResult{Success: true, Status: "ok"}
		if !res.Old.IsZero() {
			done.BaseCommit = res.Old.String()
		}
		return done
	}
	req.Record = record(c, written)
	res, err := c.Service.WriteNote(c.ctx, c.access, target, req)
	if err == nil {
		return c.conclude(http.StatusOK, written(res))
	}
	if err = c.settle(err); err != nil {
		return c.refuseNote(out, target.Tip, err)
	}
	return nil
}

// refuseNote tells why a note was not changed.
func (c *call) refuseNote(out api.NoteUpdate, tip object.ID, err error) error {
	p := service.Public(err)
	switch p.Code {
	case service.Stale, service.Denied, service.AlreadyExists, service.Conflict:
	default:
		return err
	}
	if stale, ok := errors.AsType[*repo.StaleError](err); ok {
		tip = stale.Current
	}
	if !tip.IsZero() {
		out.BaseCommit, out.NewRefSHA = tip.String(), tip.String()
	}
	c.log(p)
	out.Result = api.NoteResult{Status: labels[p.Code], Message: clip(p.Message)}
	return c.answer(p.Status(), out)
}

func (c *call) listNotesRefs(q api.ListNotesRefs) (api.NotesRefList, error) {
	list := api.NotesRefList{Refs: []api.NotesRefItem{}}
	var err error
	if list.Prefix, err = underNotes(q.Prefix); err != nil {
		return list, err
	}
	after, err := resumed(c, q.Cursor, func(cursor string) (string, error) { return namePosition(cursor, notesCursor) })
	if err != nil {
		return list, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	refs, err := c.Service.NotesRefs(c.ctx, c.access, list.Prefix, after, limit+1)
	if err != nil {
		return list, err
	}
	if len(refs) > limit {
		refs = refs[:limit]
		list.HasMore, list.NextCursor = true, c.issue(afterName(notesCursor, refs[limit-1].Name))
	}
	for _, r := range refs {
		list.Refs = append(list.Refs, api.NotesRefItem{Cursor: c.issue(afterName(notesCursor, r.Name)), Ref: r.Name, SHA: r.ID.String()})
	}
	return list, nil
}
