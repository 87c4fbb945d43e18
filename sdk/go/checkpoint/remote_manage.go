package checkpoint

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/cairnstate/cairn/api"
)

// pages yields the elements of a listing, page by page.
func pages[P, E any](ctx context.Context, r *Remote, q request, take func(*P) (elements []E, next string)) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for {
			var page P
			if err := r.call(ctx, q, &page); err != nil {
				var none E
				yield(none, err)
				return
			}
			elements, next := take(&page)
			for _, e := range elements {
				if !yield(e, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.query.Set("cursor", next)
		}
	}
}

// of is a request about a checkpoint whose thread is not known.
func (r *Remote) of(method, id, rest string, scopes ...string) request {
	return request{
		method: method, path: checkpointPath(id, rest), query: url.Values{}, thread: everything, scopes: scopes, again: method == http.MethodGet,
	}
}

// Threads yields the threads that the token covers, by the bytes of their names.
func (r *Remote) Threads(ctx context.Context, prefix string) iter.Seq2[api.Thread, error] {
	q := request{method: http.MethodGet, path: "/api/threads", query: url.Values{"limit": {"1000"}}, thread: everything, scopes: []string{readScope}, again: true}
	if prefix != "" {
		q.query.Set("prefix", prefix)
	}
	return pages(ctx, r, q, func(p *api.ThreadPage) ([]api.Thread, string) { return p.Threads, p.NextCursor })
}

// DeleteThread deletes a thread with all its checkpoints and returns how many there were.
func (r *Remote) DeleteThread(ctx context.Context, thread string) (int64, error) {
	if err := checkIDs(thread); err != nil {
		return 0, err
	}
	var answer api.DeletedThread
	err := r.call(ctx, request{method: http.MethodDelete, path: threadPath(thread, ""), thread: thread, scopes: []string{writeScope}}, &answer)
	return answer.Checkpoints, err
}

// Entries yields the files of a checkpoint in order of their paths, or those beneath a directory of it.
func (r *Remote) Entries(ctx context.Context, id, path string) iter.Seq2[api.Entry, error] {
	q := r.of(http.MethodGet, id, "/manifest", readScope)
	q.query.Set("limit", "10000")
	if path != "" {
		q.query.Set("path", path)
	}
	return pages(ctx, r, q, func(p *api.EntryPage) ([]api.Entry, string) { return p.Entries, p.NextCursor })
}

// Diff yields what differs from base to a checkpoint; from its parent for no base.
func (r *Remote) Diff(ctx context.Context, id, base string) iter.Seq2[api.CheckpointChange, error] {
	q := r.of(http.MethodGet, id, "/diff", readScope)
	q.query.Set("limit", "10000")
	if base != "" {
		q.query.Set("base", base)
	}
	return pages(ctx, r, q, func(p *api.CheckpointDiff) ([]api.CheckpointChange, string) { return p.Changes, p.NextCursor })
}

// Archive writes the files of a checkpoint, or a path of it, to w as "tar", "tar.gz" or "tar.zst". After an error what was
// written is part of an archive.
func (r *Remote) Archive(ctx context.Context, id, format, path string, w io.Writer) error {
	q := r.of(http.MethodGet, id, "/archive", readScope)
	q.again = false
	q.query.Set("format", format)
	if path != "" {
		q.query.Set("path", path)
	}
	return r.open(ctx, q, func(resp *http.Response) error {
		if _, err := io.Copy(w, resp.Body); err != nil {
			return r.unreachable(err)
		}
		return nil
	})
}

// Pin keeps a checkpoint from retention and deletion, or ends that.
func (r *Remote) Pin(ctx context.Context, id string, pinned bool) error {
	method := http.MethodPost
	if !pinned {
		method = http.MethodDelete
	}
	q := r.of(method, id, "/pin", readScope, writeScope)
	q.again = true
	return r.call(ctx, q, nil)
}

// Delete deletes a checkpoint, in whichever place of its thread it is, and returns the head of the thread after it.
func (r *Remote) Delete(ctx context.Context, id string) (head string, err error) {
	var answer api.DeletedCheckpoint
	err = r.call(ctx, r.of(http.MethodDelete, id, "", readScope, writeScope), &answer)
	return answer.Head, err
}

// FromCommit appends the files of a commit to a thread. Without ExpectedHead and Onto the thread must be empty. With a private
// key the token is minted for the repository of c too.
func (r *Remote) FromCommit(ctx context.Context, thread string, c api.ThreadFromCommit) (*api.AppendedCheckpoint, error) {
	if err := checkIDs(thread); err != nil {
		return nil, err
	}
	q := request{
		method: http.MethodPost, path: threadPath(thread, "/from-commit"), thread: thread, repo: c.Repo, scopes: []string{writeScope, "git:read"}, in: c,
	}
	var done api.AppendedCheckpoint
	err := r.call(ctx, q, &done)
	return &done, err
}

// Promote makes a commit of the files of a checkpoint. With a private key the token is minted for the repository of p too.
func (r *Remote) Promote(ctx context.Context, id string, p api.PromoteCheckpoint) (*api.PromotedCheckpoint, error) {
	body := map[string]any{"repo": p.Repo, "branch": p.Branch}
	for name, value := range map[string]string{"base": p.Base, "root": p.Root, "message": p.Message, "expected_head": p.ExpectedHead} {
		if value != "" {
			body[name] = value
		}
	}
	if p.Ephemeral {
		body["ephemeral"] = true
	}
	if p.Author != nil {
		body["author"] = p.Author
	}
	q := r.of(http.MethodPost, id, "/promote", readScope, "git:read", "git:write")
	q.repo, q.in = p.Repo, body
	var answer api.PromotedCheckpoint
	err := r.call(ctx, q, &answer)
	return &answer, err
}

// Prune deletes the checkpoints of a thread that no rule of p keeps.
func (r *Remote) Prune(ctx context.Context, thread string, p api.PruneThread) (*api.PrunedThread, error) {
	if err := checkIDs(thread); err != nil {
		return nil, err
	}
	body := map[string]any{"dry_run": p.DryRun}
	if p.KeepLast != nil {
		body["keep_last"] = *p.KeepLast
	}
	if p.OlderThanSeconds != nil {
		body["older_than_seconds"] = *p.OlderThanSeconds
	}
	if p.Label != nil {
		body["label"] = *p.Label
	}
	all := &api.PrunedThread{DryRun: p.DryRun, Deleted: []string{}}
	for {
		var answer api.PrunedThread
		err := r.call(ctx, request{
			method: http.MethodPost, path: threadPath(thread, "/prune"), thread: thread, scopes: []string{readScope, writeScope}, in: body,
		}, &answer)
		if err != nil {
			return nil, err
		}
		all.Deleted = append(all.Deleted, answer.Deleted...)
		all.Kept, all.HasMore = answer.Kept, answer.HasMore
		if p.DryRun || !answer.HasMore {
			return all, nil
		}
	}
}
