package rest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/repo"
)

// maxPaths is how many paths one comparison may name.
const maxPaths = 1000

func (c *call) diffCommit(q api.DiffCommit) error {
	rev := first(q.Ref, q.SHA)
	if strings.TrimSpace(rev) == "" {
		return invalid("query parameter %q is missing: it names a commit", "ref")
	}
	paths, err := filterPaths(q.Path)
	if err != nil {
		return err
	}
	d, err := c.Service.CommitDiff(c.ctx, c.access, repo.DiffQuery{
		Ref: rev, Ephemeral: q.RefIsEphemeral, Base: first(q.BaseRef, q.BaseSHA), BaseEphemeral: q.BaseIsEphemeral,
		Paths: paths, Exact: firstFlag(q.GitApplyCompatible, q.LegacyGitApplyCompatible),
	})
	if err != nil {
		return err
	}
	return c.sendDiff(&d, api.CommitDiff{SHA: d.Commit.String(), BaseSHA: idOrNone(d.Base), Stats: diffStats(&d)})
}

func (c *call) diffBranch(q api.DiffBranch) error {
	branch, base := shortBranch(q.Branch), shortBranch(q.Base)
	if branch == "" {
		return invalid("query parameter %q is missing: it names the branch to compare", "branch")
	}
	if base == "" {
		base = c.access.Repo.DefaultBranch
	}
	paths, err := filterPaths(q.Path)
	if err != nil {
		return err
	}
	d, err := c.Service.BranchDiff(c.ctx, c.access, repo.DiffQuery{
		Ref: branch, Ephemeral: q.Ephemeral, Base: base, BaseEphemeral: q.EphemeralBase,
		Paths: paths, Exact: firstFlag(q.GitApplyCompatible, q.LegacyGitApplyCompatible),
	})
	if err != nil {
		return err
	}
	return c.sendDiff(&d, api.BranchDiff{Branch: branch, Base: base, MergeBaseSHA: idOrNone(d.Base), Stats: diffStats(&d)})
}

// filterPaths is filterPath for several; those that are blank name nothing.
func filterPaths(paths []string) ([]string, error) {
	if len(paths) > maxPaths {
		return nil, invalid("%d paths are too many: name at most %d, or their directories", len(paths), maxPaths)
	}
	var out []string
	for _, p := range paths {
		p, err := filterPath(p)
		if err != nil {
			return nil, err
		}
		if p != "" {
			out = append(out, p)
		}
	}
	return out, nil
}

func diffStats(d *repo.Diff) api.DiffStats {
	return api.DiffStats{
		Files: d.Stats.Files, Additions: d.Additions, Deletions: d.Deletions, Changes: d.Additions + d.Deletions,
	}
}

// sendDiff writes a comparison, file by file. head is the answer without files.
func (c *call) sendDiff(d *repo.Diff, head any) error {
	w := bufio.NewWriterSize(&started{c: c, start: func() {
		c.header().Set("Content-Type", "application/json")
		c.header().Set("Cache-Control", "no-store")
	}}, 64<<10)
	data, err := json.Marshal(head)
	if err != nil {
		return err
	}
	none := []byte(`"files":null,"filtered_files":null}`)
	w.Write(bytes.TrimSuffix(data, none))
	w.WriteString(`"files":[`)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range d.Files {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := enc.Encode(describeDiff(&d.Files[i])); err != nil {
			return err
		}
		d.Files[i].Patch = nil // it is not needed any more
	}
	w.WriteString(`],"filtered_files":[`)
	for i := range d.Filtered {
		if i > 0 {
			w.WriteByte(',')
		}
		f := &d.Filtered[i]
		if err := enc.Encode(api.FilteredFile{Path: f.Path, State: f.State, OldPath: f.Old, Bytes: f.Bytes, IsEOF: true}); err != nil {
			return err
		}
	}
	w.WriteString("]}\n")
	return w.Flush()
}

func describeDiff(f *repo.FileDiff) api.FileDiff {
	out := api.FileDiff{Path: f.Path, State: f.State, OldPath: f.Old, Raw: string(f.Patch), Bytes: f.Bytes, IsEOF: !f.Cut}
	if !f.Binary {
		out.Additions, out.Deletions = &f.Additions, &f.Deletions
	}
	return out
}
