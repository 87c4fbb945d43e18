package api

// ListCommits asks for a page of the history of a commit, newest first, as git log
// lists it.
type ListCommits struct {
	// Ref is a branch, tag, commit or revision; the default branch when absent.
	Ref       string `query:"ref"`
	Branch    string `query:"branch"` // legacy
	Ephemeral bool   `query:"ephemeral"`
	// Path keeps the commits that git log shows for a file or directory.
	Path string `query:"path"`
	// Cursor continues the history that its page was of, even when Ref has moved
	// since.
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
}

// CommitList is a page of commits. It is empty for a repository without commits
// when no ref was asked for.
type CommitList struct {
	Commits    []Commit `json:"commits"`
	NextCursor string   `json:"next_cursor,omitempty"`
	HasMore    bool     `json:"has_more"`
}

// GetCommit asks for one commit.
type GetCommit struct {
	// Ref is a branch, tag, commit or revision.
	Ref       string `query:"ref"`
	SHA       string `query:"sha"` // legacy
	Ephemeral bool   `query:"ephemeral"`
}

// CommitDetails is the answer to GetCommit.
type CommitDetails struct {
	Commit SignedCommit `json:"commit"`
}

// Commit describes a commit.
type Commit struct {
	SHA        string   `json:"sha"`
	ParentSHAs []string `json:"parent_shas"` // none of a root commit
	// Message is in UTF-8 and without line breaks at its end.
	Message        string `json:"message"`
	AuthorName     string `json:"author_name"`
	AuthorEmail    string `json:"author_email"`
	CommitterName  string `json:"committer_name"`
	CommitterEmail string `json:"committer_email"`
	Date           string `json:"date"` // of the committer
}

// SignedCommit is a commit with its signature, if it has one.
type SignedCommit struct {
	Commit
	// Signature is the OpenPGP, X.509 or SSH signature as armored text, and
	// Payload what it signs: the commit object without the signature. Both are
	// absent when the commit has none, or when the payload is not UTF-8.
	Signature string `json:"signature,omitempty"`
	Payload   string `json:"payload,omitempty"`
}
