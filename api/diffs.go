package api

// DiffCommit asks how a commit differs from another one.
type DiffCommit struct {
	// Ref is a branch, tag, commit or revision.
	Ref string `query:"ref"`
	SHA string `query:"sha"` // legacy
	// BaseRef is what Ref is compared with; its first parent when absent, and
	// nothing for a commit without parents.
	BaseRef         string `query:"base_ref"`
	BaseSHA         string `query:"baseSha"` // legacy
	RefIsEphemeral  bool   `query:"ref_is_ephemeral"`
	BaseIsEphemeral bool   `query:"base_is_ephemeral"`
	// GitApplyCompatible leaves nothing out: the raw diffs of all files, one after
	// the other, are a patch that git apply makes the commit's tree with. Otherwise
	// changes of the amount of white space count as none.
	GitApplyCompatible       *bool `query:"git_apply_compatible"`
	LegacyGitApplyCompatible *bool `query:"gitApplyCompatible"` // legacy
	// Path is a file or directory to compare, of any number. A file that is named is
	// never filtered.
	Path []string `query:"path"`
}

// DiffBranch asks what a branch has changed since it left its base.
type DiffBranch struct {
	Branch        string   `query:"branch"`
	Base          string   `query:"base"` // the default branch when absent
	Ephemeral     bool     `query:"ephemeral"`
	EphemeralBase bool     `query:"ephemeral_base"`
	Path          []string `query:"path"` // as in DiffCommit
	// GitApplyCompatible is as in DiffCommit.
	GitApplyCompatible       *bool `query:"git_apply_compatible"`
	LegacyGitApplyCompatible *bool `query:"gitApplyCompatible"` // legacy
}

// CommitDiff is the answer to DiffCommit.
type CommitDiff struct {
	SHA string `json:"sha"`
	// BaseSHA is absent when the commit is compared with nothing.
	BaseSHA       string         `json:"base_sha,omitempty"`
	Stats         DiffStats      `json:"stats"`
	Files         []FileDiff     `json:"files"`
	FilteredFiles []FilteredFile `json:"filtered_files"`
}

// BranchDiff is the answer to DiffBranch.
type BranchDiff struct {
	Branch string `json:"branch"`
	Base   string `json:"base"`
	// MergeBaseSHA is the commit that the branch is compared with. It is absent when
	// branch and base have none in common: then all of the branch is new.
	MergeBaseSHA  string         `json:"merge_base_sha,omitempty"`
	Stats         DiffStats      `json:"stats"`
	Files         []FileDiff     `json:"files"`
	FilteredFiles []FilteredFile `json:"filtered_files"`
}

// DiffStats count files and lines, filtered files included, except lines of files
// that are binary or too large to be compared.
type DiffStats struct {
	Files     int `json:"files"`
	Additions int `json:"additions"`
	Deletions int `json:"deletions"`
	Changes   int `json:"changes"` // additions and deletions
}

// FileDiff is how one file differs.
type FileDiff struct {
	Path string `json:"path"`
	// State is A, M, D or T (another type), or R or C with the similarity in per
	// cent, for example R097.
	State   string `json:"state"`
	OldPath string `json:"old_path,omitempty"` // of renames and copies
	// Raw is the diff as git shows it. Outside of git_apply_compatible, bytes that
	// are not UTF-8 are replaced.
	Raw   string `json:"raw"`
	Bytes int64  `json:"bytes"` // of raw
	// IsEOF is false when raw is cut off, because the whole answer is too long.
	IsEOF     bool `json:"is_eof"`
	Additions *int `json:"additions,omitempty"` // lines; absent for binary files
	Deletions *int `json:"deletions,omitempty"`
}

// FilteredFile is a file that differs and is not shown, because it is binary or
// its diff is too long.
type FilteredFile struct {
	Path    string `json:"path"`
	State   string `json:"state"`
	OldPath string `json:"old_path,omitempty"`
	// Bytes is the length of the diff that is left out, or of a binary file.
	Bytes int64 `json:"bytes"`
	IsEOF bool  `json:"is_eof"` // true
}

// RestoreCommit asks for a commit that brings back an earlier state of a branch.
type RestoreCommit struct {
	Metadata *RestoreMetadata `json:"metadata"`
}

// RestoreMetadata says which state, of which branch.
type RestoreMetadata struct {
	TargetBranch string `json:"target_branch"`
	// BaseRef is the revision to restore, an ancestor of the branch's tip, which is
	// HEAD here: HEAD~1 is the state before the last commit.
	BaseRef         string    `json:"base_ref,omitempty"`
	TargetCommitSHA string    `json:"target_commit_sha,omitempty"` // legacy
	Author          *Identity `json:"author"`
	Committer       *Identity `json:"committer,omitempty"` // the author when absent
	// CommitMessage is `Reset BRANCH to "SUBJECT"` when absent.
	CommitMessage string `json:"commit_message,omitempty"`
	// ExpectedTargetSHA is what the branch must be at.
	ExpectedTargetSHA string `json:"expected_target_sha,omitempty"`
	ExpectedHeadSHA   string `json:"expected_head_sha,omitempty"` // legacy
	TargetIsEphemeral *bool  `json:"target_is_ephemeral,omitempty"`
	Ephemeral         *bool  `json:"ephemeral,omitempty"` // legacy
}

// CommitDiffStream is the first line of the newline-delimited JSON that makes a
// commit of a diff. The lines after it are CommitDiffLines with the diff.
type CommitDiffStream struct {
	Metadata *CommitMetadata `json:"metadata"` // files play no part
}

// CommitDiffLine is one further line of a diff-commit body.
type CommitDiffLine struct {
	DiffChunk *DiffChunk `json:"diff_chunk"`
}

// DiffChunk is a piece of a diff, unified or in git's format, as git apply takes it.
type DiffChunk struct {
	// Data is at most 4 MiB in base64 with padding.
	Data []byte `json:"data"`
	// EOF marks the last piece.
	EOF bool `json:"eof"`
}
