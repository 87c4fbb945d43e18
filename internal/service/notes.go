package service

import (
	"context"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// mayUse refuses notes refs that the operator did not enable.
func (s *Service) mayUse(notes string) error {
	if s.DefaultNotesOnly && notes != repo.DefaultNotes {
		return Refuse(Invalid, "custom notes refs are not enabled")
	}
	return nil
}

// Note returns the note of the object that a revision names, in a notes ref with
// a full name.
func (s *Service) Note(ctx context.Context, a *Access, ref, rev string) (repo.Note, error) {
	if err := s.mayUse(ref); err != nil {
		return repo.Note{}, err
	}
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.Note{}, err
	}
	// The object of a note may be gone.
	id, err := object.ParseID(rev)
	if err != nil {
		if id, err = v.Annotated(ctx, rev); err != nil {
			return repo.Note{}, err
		}
	}
	return v.Note(ctx, ref, id)
}

// NoteTarget is the object of a note that is to be changed, and where its notes
// ref is.
type NoteTarget struct {
	view   *repo.View
	Object object.ID
	Tip    object.ID // zero: the ref does not exist
}

// NoteTarget finds the object that a revision names.
func (s *Service) NoteTarget(ctx context.Context, a *Access, ref, rev string) (NoteTarget, error) {
	if err := s.mayUse(ref); err != nil {
		return NoteTarget{}, err
	}
	v, err := s.View(ctx, a)
	if err != nil {
		return NoteTarget{}, err
	}
	id, err := v.Annotated(ctx, rev)
	if err != nil {
		return NoteTarget{}, err
	}
	at, _, err := v.Ref(ctx, ref)
	return NoteTarget{view: v, Object: id, Tip: at.ID}, err
}

// WriteNote changes the note of a target.
func (s *Service) WriteNote(ctx context.Context, a *Access, t NoteTarget, req repo.NoteRequest) (repo.NoteResult, error) {
	req.Object = t.Object
	route := "POST notes"
	if req.Action == repo.RemoveNote {
		route = "DELETE notes"
	}
	return s.Engine.WriteNote(ctx, a.Writer(route), t.view, req)
}

// NotesRefs returns up to limit refs whose full names begin with prefix, in byte
// order, strictly after a full name; "" is the start.
func (s *Service) NotesRefs(ctx context.Context, a *Access, prefix, after string, limit int) ([]meta.Ref, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return nil, err
	}
	return v.RefsAfter(prefix, after, limit), nil
}
