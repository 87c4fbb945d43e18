package rest

import (
	"errors"
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

var strategies = map[string]repo.Strategy{
	"merge":     repo.MergeAlways,
	"ff_only":   repo.ForwardOnly,
	"ff_prefer": repo.ForwardFirst,
}

var mergeKinds = map[repo.MergeKind]string{
	repo.NothingToMerge: "no_op",
	repo.Forwarded:      "fast_forward",
	repo.MergeCommitted: "merge_commit",
	repo.Squashed:       "squash",
}

func (c *call) merge(q api.Merge) (api.Merged, error) {
	source, target := shortBranch(first(q.SourceRef, q.SourceBranch)), shortBranch(q.TargetBranch)
	strategy, known := strategies[q.Strategy]
	switch {
	case source == "":
		return api.Merged{}, invalid("source_ref is missing: it says what to merge")
	case target == "":
		return api.Merged{}, invalid("target_branch is missing: it names the branch to merge into")
	case !known:
		return api.Merged{}, invalid("strategy %.40q is not one of merge, ff_only and ff_prefer", q.Strategy)
	}
	req := repo.MergeRequest{
		Source: source, SourceEphemeral: q.SourceIsEphemeral, TargetBranch: target, TargetEphemeral: q.TargetIsEphemeral,
		Strategy: strategy, Squash: q.Squash, Unrelated: q.AllowUnrelatedHistories, Message: repo.MergeMessage(source, target),
	}
	if text := strings.TrimSpace(q.CommitMessage); text != "" {
		req.Message = text + "\n"
	}
	if err := c.mergeIdentities(&q, &req); err != nil {
		return api.Merged{}, err
	}
	if q.ExpectedTargetSHA != "" {
		id, err := object.ParseID(q.ExpectedTargetSHA)
		if err != nil {
			return api.Merged{}, invalid("expected_target_sha %.80q is not a full commit id of 40 hexadecimal digits", q.ExpectedTargetSHA)
		}
		req.Expected = &id
	}
	merged := func(res repo.MergeResult) api.Merged { return describeMerge(&q, source, target, res) }
	req.Record = record(c, merged)
	res, err := c.Service.Merge(c.ctx, c.access, req)
	if err != nil {
		return api.Merged{}, err
	}
	return merged(res), nil
}

func describeMerge(q *api.Merge, source, target string, res repo.MergeResult) api.Merged {
	return api.Merged{
		Result: mergeKinds[res.Kind], CommitSHA: res.Commit.String(), TreeSHA: res.Tree.String(),
		Source:       api.MergeSource{Branch: source, Ref: source, Ephemeral: q.SourceIsEphemeral, SHA: res.Source.String()},
		Target:       api.MergeTarget{Branch: target, Ephemeral: q.TargetIsEphemeral, OldSHA: res.Old.String(), NewSHA: res.Commit.String()},
		MergeBaseSHA: idOrNone(res.Base), PromotedCommits: res.Promoted,
	}
}

// mergeIdentities translates the author and committer, whose defaults are the
// token's subject and the author.
func (c *call) mergeIdentities(q *api.Merge, req *repo.MergeRequest) error {
	now := time.Now()
	author := q.Author
	if author == nil {
		name, email := c.access.Identity()
		author = &api.Identity{Name: name, Email: email}
	}
	var err error
	if req.Author, err = signature("author", author, now); err != nil {
		return err
	}
	req.Committer = req.Author
	if q.Committer != nil {
		req.Committer, err = signature("committer", q.Committer, now)
	}
	return err
}

// idOrNone is "" for what does not exist.
func idOrNone(id object.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// refusedMerge is what the refusal of a merge tells besides; nil where nothing is
// in conflict.
func refusedMerge(p *service.Error) *api.MergeRefusal {
	if conflict, ok := errors.AsType[*repo.MergeConflictError](p.Err); ok {
		return &api.MergeRefusal{ConflictType: "merge_conflict", ConflictPaths: conflict.Paths, MergeBaseSHA: idOrNone(conflict.Base)}
	}
	_, stale := errors.AsType[*repo.StaleError](p.Err)
	_, moving := errors.AsType[*repo.ConflictError](p.Err)
	if stale || moving {
		return &api.MergeRefusal{ConflictType: "target_moved"}
	}
	return nil
}

func (c *call) previewMerge(q api.PreviewMerge) (api.MergePreview, error) {
	source, target := shortBranch(first(q.SourceRef, q.SourceBranch)), shortBranch(q.TargetBranch)
	switch {
	case source == "":
		return api.MergePreview{}, invalid("query parameter %q is missing", "source_branch")
	case target == "":
		return api.MergePreview{}, invalid("query parameter %q is missing", "target_branch")
	}
	p, err := c.Service.PreviewMerge(c.ctx, c.access, repo.PreviewRequest{
		Source: source, SourceEphemeral: q.SourceIsEphemeral, TargetBranch: target, TargetEphemeral: q.TargetIsEphemeral, Content: q.IncludeContent,
	})
	if err != nil {
		return api.MergePreview{}, err
	}
	out := api.MergePreview{
		Status: "clean", Result: mergeKinds[p.Kind], SourceBranch: source, TargetBranch: target,
		SourceTipSHA: p.Source.String(), TargetTipSHA: p.Target.String(), MergeBaseSHA: idOrNone(p.Base),
		ConflictPaths: []string{}, Conflicts: []api.PathConflict{}, FilteredConflicts: []api.FilteredConflict{},
	}
	if len(p.Paths) == 0 {
		return out, nil
	}
	out.Status, out.ConflictPaths = "conflicted", p.Paths
	for _, x := range p.Conflicts {
		out.Conflicts = append(out.Conflicts, api.PathConflict{
			Path: x.Path, Result: conflictVersion(x.Result), Base: conflictVersion(x.Base), Ours: conflictVersion(x.Ours), Theirs: conflictVersion(x.Theirs),
		})
	}
	for _, path := range p.Paths[len(p.Conflicts):] {
		out.FilteredConflicts = append(out.FilteredConflicts, api.FilteredConflict{Path: path, Reason: "max_conflict_files_exceeded"})
	}
	return out, nil
}

func conflictVersion(s repo.PreviewSide) api.ConflictVersion {
	return api.ConflictVersion{OID: idOrNone(s.ID), Content: s.Content, Truncated: s.Truncated, Binary: s.Binary}
}
