package cli

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cairnstate/cairn/internal/auth"
)

// remoteRepos manages the repositories of an org over REST.
type remoteRepos struct{ remote }

var _ repoAdmin = (*remoteRepos)(nil)

func (r *remoteRepos) create(ctx context.Context, c creation) (repoRow, error) {
	body := map[string]any{}
	if c.DefaultBranch != "" {
		body["default_branch"] = c.DefaultBranch
	}
	if c.Source != "" {
		token, err := r.token(c.Source, string(auth.GitRead))
		if err != nil {
			return repoRow{}, err
		}
		base := map[string]any{"provider": "code", "name": c.Source, "operation": "fork", "auth": map[string]string{"token": token}}
		for key, value := range map[string]string{"ref": c.Ref, "sha": c.SHA, "default_branch": c.DefaultBranch} {
			if value != "" {
				base[key] = value
			}
		}
		body["base_repo"] = base
	}
	var row repoRow
	err := r.call(ctx, http.MethodPost, "/api/repos", c.Name, string(auth.RepoWrite), body, &row)
	return row, err
}

func (r *remoteRepos) list(ctx context.Context, query string, yield func(repoRow) error) error {
	for cursor := ""; ; {
		q := url.Values{"limit": {"100"}}
		if query != "" {
			q.Set("q", query)
		}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Repos      []repoRow `json:"repos"`
			NextCursor string    `json:"next_cursor"`
			HasMore    bool      `json:"has_more"`
		}
		if err := r.call(ctx, http.MethodGet, "/api/repos?"+q.Encode(), "org", string(auth.OrgRead), nil, &page); err != nil {
			return err
		}
		for _, row := range page.Repos {
			if err := yield(row); err != nil {
				return err
			}
		}
		if !page.HasMore {
			return nil
		}
		cursor = page.NextCursor
	}
}

func (r *remoteRepos) remove(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodDelete, repoPath(name), name, string(auth.RepoWrite), nil, nil)
}

func (r *remoteRepos) undelete(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodPost, repoPath(name)+"/undelete", name, string(auth.RepoWrite), nil, nil)
}

func (r *remoteRepos) protections(ctx context.Context, name string) ([]protection, error) {
	var out struct {
		Protections []protection `json:"protections"`
	}
	err := r.call(ctx, http.MethodGet, repoPath(name)+"/protections", name, string(auth.GitRead), nil, &out)
	return out.Protections, err
}

func (r *remoteRepos) protect(ctx context.Context, name string, rules []protection) error {
	return r.call(ctx, http.MethodPut, repoPath(name)+"/protections", name, string(auth.RepoWrite), map[string]any{"protections": rules}, nil)
}
