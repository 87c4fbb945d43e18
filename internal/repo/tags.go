package repo

import (
	"context"
	"errors"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
)

// RefsAfter returns up to limit refs whose stored names begin with prefix, in
// byte order, strictly after a full name; "" is the start.
func (v *View) RefsAfter(prefix, after string, limit int) []meta.Ref {
	from := ""
	if after != "" {
		from = after + "\x00" // the least name that sorts after it
	}
	var page []meta.Ref
	v.refs.each(prefix, from, func(r meta.Ref) bool {
		page = append(page, r)
		return len(page) < limit
	})
	return page
}

// TagRequest asks for a lightweight tag in the normal namespace.
type TagRequest struct {
	Name string // short name
	Ref  string // any revision
	// Record, when set, makes the row that is kept for the request's
	// idempotency key.
	Record func(commit object.ID) *meta.Idempotency
}

// CreateTag makes a tag and returns the commit that it points to. Refusals are
// those of Update, *NotFoundError for the revision, and *ExistsError.
func (e *Engine) CreateTag(ctx context.Context, w Writer, v *View, req TagRequest) (object.ID, error) {
	full, err := tagName(req.Name)
	if err != nil {
		return object.Zero, err
	}
	at, err := v.Resolve(ctx, req.Ref, false)
	if err != nil {
		return object.Zero, err
	}
	u := Update{Refs: []RefUpdate{{Name: full, New: at.ID}}, toMove: true}
	if req.Record != nil {
		u.Idempotency = req.Record(at.ID)
	}
	out, err := e.Update(ctx, w, v, u)
	var stale *StaleError
	if errors.As(err, &stale) || (err == nil && len(out.Moved) == 0) {
		return object.Zero, &ExistsError{What: "tag", Name: req.Name}
	}
	return at.ID, err
}

// DeleteTag removes a tag. Refusals are those of Update, and *NotFoundError.
func (e *Engine) DeleteTag(ctx context.Context, w Writer, v *View, short string) error {
	full, err := tagName(short)
	if err != nil {
		return err
	}
	out, err := e.Update(ctx, w, v, Update{Refs: []RefUpdate{{Name: full, AnyOld: true}}, toMove: true})
	if err == nil && len(out.Moved) == 0 {
		return &NotFoundError{What: "tag", Name: clip(short)}
	}
	return err
}

// tagName returns the full name of a tag. The error is an *InvalidError.
func tagName(short string) (string, error) {
	full := refname.TagsPrefix + short
	if short == "" || strings.HasPrefix(short, "-") || strings.HasPrefix(short, "refs/") {
		return "", invalid("invalid tag name %q", clip(short))
	}
	if err := CheckStoredName(full); err != nil {
		return "", invalid("invalid tag name %q: %v", clip(short), err)
	}
	return full, nil
}
