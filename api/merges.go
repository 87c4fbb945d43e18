package api

// Merge asks to merge a commit into a branch.
type Merge struct {
	// SourceRef is a branch, tag, commit or revision.
	SourceRef    string `json:"source_ref,omitempty"`
	SourceBranch string `json:"source_branch,omitempty"` // legacy
	TargetBranch string `json:"target_branch"`
	// Strategy is merge (a commit, unless the target has it all), ff_only or
	// ff_prefer.
	Strategy          string `json:"strategy"`
	SourceIsEphemeral bool   `json:"source_is_ephemeral,omitempty"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral,omitempty"`
	// ExpectedTargetSHA is the commit that the target must be at.
	ExpectedTargetSHA string `json:"expected_target_sha,omitempty"`
	// CommitMessage is "Merge SOURCE into TARGET" when absent.
	CommitMessage string `json:"commit_message,omitempty"`
	// Author is the token's subject when absent.
	Author    *Identity `json:"author,omitempty"`
	Committer *Identity `json:"committer,omitempty"` // the author when absent
	// AllowUnrelatedHistories merges what has no commit in common.
	AllowUnrelatedHistories bool `json:"allow_unrelated_histories,omitempty"`
	// Squash makes one commit with all changes, whose only parent is the target.
	Squash bool `json:"squash,omitempty"`
}

// Merged is the answer to a merge that was made.
type Merged struct {
	// Result is merge_commit, fast_forward, squash, or no_op when the target has
	// everything already.
	Result    string      `json:"result"`
	CommitSHA string      `json:"commit_sha"` // that the target is at
	TreeSHA   string      `json:"tree_sha"`
	Source    MergeSource `json:"source"`
	Target    MergeTarget `json:"target"`
	// MergeBaseSHA is absent for unrelated histories.
	MergeBaseSHA string `json:"merge_base_sha,omitempty"`
	// PromotedCommits is how many commits the target reaches that it did not.
	PromotedCommits int `json:"promoted_commits"`
}

// MergeSource is what was merged.
type MergeSource struct {
	Branch    string `json:"branch"` // legacy
	Ref       string `json:"ref"`
	Ephemeral bool   `json:"ephemeral"`
	SHA       string `json:"sha"`
}

// MergeTarget is the branch that was merged into.
type MergeTarget struct {
	Branch    string `json:"branch"`
	Ephemeral bool   `json:"ephemeral"`
	OldSHA    string `json:"old_sha"`
	NewSHA    string `json:"new_sha"`
}

// MergeRefusal is what the refusal of a merge with status 409 tells besides.
type MergeRefusal struct {
	// ConflictType is merge_conflict when the sides disagree, target_moved when the
	// target is not where it was expected or keeps moving.
	ConflictType string `json:"conflict_type,omitempty"`
	// ConflictPaths are the paths in conflict, at most 10,000.
	ConflictPaths []string `json:"conflict_paths,omitempty"`
	MergeBaseSHA  string   `json:"merge_base_sha,omitempty"`
}

// PreviewMerge asks what a merge would do.
type PreviewMerge struct {
	SourceBranch      string `query:"source_branch"` // or a tag, commit or revision
	SourceRef         string `query:"source_ref"`    // the same
	TargetBranch      string `query:"target_branch"`
	SourceIsEphemeral bool   `query:"source_is_ephemeral"`
	TargetIsEphemeral bool   `query:"target_is_ephemeral"`
	// IncludeContent asks for the texts in conflict: 64 KiB of a version, 8 MiB in
	// all.
	IncludeContent bool `query:"include_content"`
}

// MergePreview says what a merge would do.
type MergePreview struct {
	Status       string `json:"status"` // clean or conflicted
	Result       string `json:"result"` // merge_commit, fast_forward or no_op
	SourceBranch string `json:"source_branch"`
	TargetBranch string `json:"target_branch"`
	SourceTipSHA string `json:"source_tip_sha"`
	TargetTipSHA string `json:"target_tip_sha"`
	MergeBaseSHA string `json:"merge_base_sha,omitempty"`
	// ConflictPaths are the paths in conflict, at most 10,000.
	ConflictPaths []string `json:"conflict_paths"`
	// Conflicts describe the first 100 of them.
	Conflicts []PathConflict `json:"conflicts"`
	// FilteredConflicts are the others.
	FilteredConflicts []FilteredConflict `json:"filtered_conflicts"`
}

// PathConflict is a path at which the sides disagree.
type PathConflict struct {
	Path   string          `json:"path"`
	Result ConflictVersion `json:"result"` // with conflict markers where it is a text
	Base   ConflictVersion `json:"base"`
	Ours   ConflictVersion `json:"ours"`   // the target's
	Theirs ConflictVersion `json:"theirs"` // the source's
}

// ConflictVersion is a version of a path in conflict.
type ConflictVersion struct {
	// OID is absent where there is no version. That of a result with markers is
	// the id that its text has, and absent where the text is truncated.
	OID       string `json:"oid,omitempty"`
	Content   string `json:"content,omitempty"`
	Truncated bool   `json:"truncated"`
	Binary    bool   `json:"binary"` // it is no text in UTF-8; there is no content
}

// FilteredConflict is a path in conflict that is not described, and why.
type FilteredConflict struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // max_conflict_files_exceeded
}
