package service

import (
	"context"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

// Merge merges a commit into a branch.
func (s *Service) Merge(ctx context.Context, a *Access, req repo.MergeRequest) (repo.MergeResult, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.MergeResult{}, err
	}
	return s.Engine.Merge(ctx, a.Writer("POST merge"), v, req)
}

// PreviewMerge says what a merge would do.
func (s *Service) PreviewMerge(ctx context.Context, a *Access, req repo.PreviewRequest) (repo.Preview, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.Preview{}, err
	}
	return s.Engine.PreviewMerge(ctx, v, req)
}

// Identity is the author of commits that a request is sent none for: the subject
// of its token, at an address that takes no mail.
func (a *Access) Identity() object.Signature {
	plain := func(text string) string {
		return strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == '<' || r == '>' || r == 0x7f {
				return -1
			}
			return r
		}, text))
	}
	name := plain(a.Principal.Subject)
	if name == "" {
		name = "cairn"
	}
	mailbox := strings.ReplaceAll(name, " ", "-")
	return object.Signature{Name: name, Email: mailbox + "@users.noreply." + plain(a.Org.Name)}
}
