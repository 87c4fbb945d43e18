package api

// ListBranches asks for a page of branches in order of their creation.
type ListBranches struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
	// Ephemeral selects the ephemeral namespace.
	Ephemeral bool `query:"ephemeral"`
}

// BranchList is a page of branches.
type BranchList struct {
	Branches   []BranchItem `json:"branches"`
	NextCursor string       `json:"next_cursor,omitempty"`
	HasMore    bool         `json:"has_more"`
}

// BranchItem is a branch of a list. Its cursor continues after it.
type BranchItem struct {
	Cursor string `json:"cursor"`
	Branch
}

// Branch is a branch under its short name.
type Branch struct {
	Name      string `json:"name"`
	HeadSHA   string `json:"head_sha"`
	CreatedAt string `json:"created_at"`
}

// GetBranch asks for one branch by its short name.
type GetBranch struct {
	Name      string `query:"name"`
	Ephemeral bool   `query:"ephemeral"`
}

// BranchInfo is the answer to GetBranch.
type BranchInfo struct {
	Branch Branch `json:"branch"`
}

// CreateBranch asks for a branch that starts at a commit.
type CreateBranch struct {
	TargetBranch string `json:"target_branch"`
	// BaseRef is a branch, tag, commit or revision.
	BaseRef           string `json:"base_ref,omitempty"`
	BaseBranch        string `json:"base_branch,omitempty"` // legacy
	BaseIsEphemeral   bool   `json:"base_is_ephemeral,omitempty"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral,omitempty"`
	// Force moves a branch that exists already.
	Force bool `json:"force,omitempty"`
}

// CreatedBranch is the answer to CreateBranch.
type CreatedBranch struct {
	Message           string `json:"message"`
	TargetBranch      string `json:"target_branch"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	CommitSHA         string `json:"commit_sha"`
}

// DeleteBranch asks to delete a branch by its short name.
type DeleteBranch struct {
	TargetBranch string `json:"target_branch,omitempty"`
	Name         string `json:"name,omitempty"` // legacy
	Ephemeral    bool   `json:"ephemeral,omitempty"`
}

// DeletedBranch is the answer to DeleteBranch.
type DeletedBranch struct {
	Name         string `json:"name"` // legacy
	TargetBranch string `json:"target_branch"`
	Message      string `json:"message"`
	Ephemeral    bool   `json:"ephemeral"`
}
