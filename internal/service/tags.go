package service

import (
	"context"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// Tag is a tag under its short name.
type Tag struct {
	Name string
	ID   object.ID // what it finally points to
}

func tagOf(r meta.Ref) Tag {
	t := Tag{Name: strings.TrimPrefix(r.Name, refname.TagsPrefix), ID: r.ID}
	if !r.Peeled.IsZero() {
		t.ID = r.Peeled
	}
	return t
}

// Tags returns up to limit tags in the byte order of their names, strictly after
// the one with a full name; "" is the start.
func (s *Service) Tags(ctx context.Context, a *Access, after string, limit int) ([]Tag, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return nil, err
	}
	refs := v.RefsAfter(refname.TagsPrefix, after, limit)
	tags := make([]Tag, len(refs))
	for i, r := range refs {
		tags[i] = tagOf(r)
	}
	return tags, nil
}

// Tag returns one tag by its short name.
func (s *Service) Tag(ctx context.Context, a *Access, name string) (Tag, error) {
	page, err := s.Meta.Refs(ctx, meta.RefQuery{Repo: a.Repo.ID, Names: []string{refname.TagsPrefix + name}})
	if err != nil {
		return Tag{}, err
	}
	if len(page.Refs) == 0 {
		return Tag{}, Refuse(NotFound, "tag not found: %.200q", name)
	}
	return tagOf(page.Refs[0]), nil
}

// CreateTag makes a lightweight tag and returns its commit.
func (s *Service) CreateTag(ctx context.Context, a *Access, req repo.TagRequest) (object.ID, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return object.Zero, err
	}
	return s.Engine.CreateTag(ctx, a.Writer("POST tags"), v, req)
}

// DeleteTag removes a tag.
func (s *Service) DeleteTag(ctx context.Context, a *Access, name string) error {
	v, err := s.View(ctx, a)
	if err != nil {
		return err
	}
	return s.Engine.DeleteTag(ctx, a.Writer("DELETE tags"), v, name)
}
