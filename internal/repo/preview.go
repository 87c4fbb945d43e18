package repo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/merge"
)

// PreviewRequest asks what a merge would do.
type PreviewRequest struct {
	Source          string // a revision
	SourceEphemeral bool
	TargetBranch    string // short name
	TargetEphemeral bool
	// Content asks for the texts in conflict.
	Content bool
}

// Preview is what a merge with a merge commit, or forward, would do.
type Preview struct {
	Kind           MergeKind
	Source, Target object.ID
	Base           object.ID // the latest merge base, zero for none
	// Paths are all paths in conflict, sorted; the first maxConflictPaths.
	Paths []string
	// Conflicts describe the first maxPreview of them.
	Conflicts []PreviewConflict
}

// PreviewConflict is a path in conflict with what each side has there, and what
// git made of it.
type PreviewConflict struct {
	Path                       string
	Result, Base, Ours, Theirs PreviewSide
}

// PreviewSide is a version of a path in conflict; zero when there is none.
type PreviewSide struct {
	ID object.ID
	// Content is text, when it was asked for; it is cut where Truncated is set.
	Content   string
	Truncated bool
	Binary    bool // it is no text; there is no content
}

// Bounds of the texts in a preview.
const (
	maxPreview      = 100      // conflicts
	maxSideBytes    = 64 << 10 // of one side
	maxContentBytes = 8 << 20  // of all
)

// PreviewMerge says what a merge would do, and changes nothing. Refusals are
// *NotFoundError, *InvalidError, *UnrelatedError, *LimitError and *CrashError.
func (e *Engine) PreviewMerge(ctx context.Context, v *View, req PreviewRequest) (Preview, error) {
	target, err := branchName(req.TargetBranch, req.TargetEphemeral)
	if err != nil {
		return Preview{}, err
	}
	source, err := v.Resolve(ctx, req.Source, req.SourceEphemeral)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Source: source.ID, Target: v.valueOf(target)}
	if p.Target.IsZero() {
		return Preview{}, &NotFoundError{What: "branch", Name: clip(req.TargetBranch)}
	}
	s, err := e.stand(ctx, v, p.Source, p.Target)
	if err != nil {
		return Preview{}, err
	}
	p.Base = s.base()
	switch {
	case s.merged:
		return p, nil
	case s.behind:
		p.Kind = Forwarded
		return p, nil
	case len(s.bases) == 0:
		return Preview{}, &UnrelatedError{}
	}
	p.Kind = MergeCommitted
	merged, err := e.merge(ctx, v, &s, p.Source)
	if err != nil {
		return Preview{}, err
	}
	defer merged.Close() // what remains, the next start removes
	p.Paths = conflictPaths(merged.Conflicts)
	r := conflictReader{merged: merged, content: req.Content, left: maxContentBytes, names: [2]string{req.TargetBranch, req.Source}}
	for _, c := range merged.Conflicts[:min(len(merged.Conflicts), maxPreview)] {
		read, err := r.conflict(ctx, c)
		if err != nil {
			return Preview{}, err
		}
		p.Conflicts = append(p.Conflicts, read)
	}
	return p, nil
}

// conflictReader reads texts in conflict.
type conflictReader struct {
	merged  *merge.Merged
	content bool
	left    int       // of maxContentBytes
	names   [2]string // of target and source, for markers
}

func (r *conflictReader) conflict(ctx context.Context, c merge.Conflict) (PreviewConflict, error) {
	out := PreviewConflict{Path: c.Path}
	result, err := r.merged.Result(ctx, c)
	if err != nil {
		return out, err
	}
	for _, side := range []struct {
		from merge.Side
		to   *PreviewSide
	}{{result, &out.Result}, {c.Base, &out.Base}, {c.Ours, &out.Ours}, {c.Theirs, &out.Theirs}} {
		if side.from.Mode == 0 {
			continue
		}
		if *side.to, err = r.side(ctx, side.from); err != nil {
			return out, err
		}
	}
	return out, nil
}

// side reads one version. A text that git wrote names the sides by the ids it was
// given; with other names it has another id, which is told when it is whole.
func (r *conflictReader) side(ctx context.Context, s merge.Side) (PreviewSide, error) {
	out := PreviewSide{ID: s.ID}
	if s.Mode.Type() != object.Blob {
		return out, nil
	}
	written := r.merged.Wrote(s.ID)
	if !r.content && !written {
		return out, nil
	}
	_, size, content, err := r.merged.Object(ctx, s.ID)
	if err != nil {
		return out, err
	}
	defer content.Close()
	text, err := io.ReadAll(io.LimitReader(content, maxSideBytes))
	if err != nil {
		return out, fmt.Errorf("read object %s: %w", s.ID, err)
	}
	whole := int64(len(text)) == size
	out.Binary = isBinary(text, whole)
	if written && !out.Binary {
		text = r.merged.Relabel(text, r.names[0], r.names[1])
		out.ID = object.Zero
		if whole {
			out.ID = object.Hash(object.Blob, text)
		}
	}
	if r.content && !out.Binary {
		out.Truncated = !whole || len(text) > r.left
		text = text[:min(len(text), r.left)]
		r.left -= len(text)
		out.Content = string(wholeRunes(text))
	}
	return out, nil
}

// isBinary reports whether a text cannot be told as one. Of one that goes on, the
// last character may be cut.
func isBinary(text []byte, whole bool) bool {
	if !whole {
		text = wholeRunes(text)
	}
	return bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text)
}

// wholeRunes drops a character that is cut at the end.
func wholeRunes(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
