package api

// Identity is the author or committer of a commit.
type Identity struct {
	Name  string `json:"name"`
	Email string `json:"email"`
	// Date is RFC 3339; the time of the request when absent.
	Date string `json:"date,omitempty"`
}

// CommitPack is the first line of the newline-delimited JSON that writes a
// commit. The lines after it are CommitPackLines with the content of the files.
type CommitPack struct {
	Metadata *CommitMetadata `json:"metadata"`
}

// CommitMetadata describes a commit and the changes it makes.
type CommitMetadata struct {
	TargetBranch  string       `json:"target_branch"`
	CommitMessage string       `json:"commit_message"`
	Author        *Identity    `json:"author"`
	Committer     *Identity    `json:"committer,omitempty"` // the author when absent
	Files         []FileChange `json:"files,omitempty"`
	// ExpectedTargetSHA is what the target must be at, or what the base must be
	// at when the target is new. Forty zeros: the target must not exist.
	ExpectedTargetSHA string `json:"expected_target_sha,omitempty"`
	ExpectedHeadSHA   string `json:"expected_head_sha,omitempty"` // legacy
	// BaseBranch is where a target that does not exist starts.
	BaseBranch        string `json:"base_branch,omitempty"`
	TargetIsEphemeral *bool  `json:"target_is_ephemeral,omitempty"`
	Ephemeral         *bool  `json:"ephemeral,omitempty"` // legacy
	BaseIsEphemeral   *bool  `json:"base_is_ephemeral,omitempty"`
	EphemeralBase     *bool  `json:"ephemeral_base,omitempty"` // legacy
}

// FileChange is a change of one path.
type FileChange struct {
	Path string `json:"path"`
	// ContentID names the chunks that hold the content of an upsert.
	ContentID string `json:"content_id,omitempty"`
	Operation string `json:"operation,omitempty"` // upsert, the default, or delete
	// Mode is 100644, 100755, 120000 or 160000; an existing file keeps its mode
	// when absent, a new one takes 100644.
	Mode string `json:"mode,omitempty"`
	// EOL is keep-existing to have the lines of an upsert end as those of the file
	// that is at the path do: with LF or with CRLF, if all of those end alike. When
	// absent, contents are stored byte for byte.
	EOL string `json:"eol,omitempty"`
}

// CommitPackLine is one further line of a commit-pack body.
type CommitPackLine struct {
	BlobChunk *BlobChunk `json:"blob_chunk"`
}

// BlobChunk is a piece of the content of a file. The pieces of one content_id
// come in order; those of different ones may alternate.
type BlobChunk struct {
	ContentID string `json:"content_id"`
	// Data is at most 4 MiB in base64 with padding.
	Data []byte `json:"data"`
	// EOF marks the last piece.
	EOF bool `json:"eof"`
}

// CommitAck is the answer to a commit that was written.
type CommitAck struct {
	Commit CommitInfo   `json:"commit"`
	Result UpdateResult `json:"result"`
}

// CommitInfo describes a commit that was written.
type CommitInfo struct {
	CommitSHA    string `json:"commit_sha"`
	TreeSHA      string `json:"tree_sha"`
	TargetBranch string `json:"target_branch"`
	PackBytes    int64  `json:"pack_bytes"`
	BlobCount    int    `json:"blob_count"`
}

// UpdateResult says what became of a branch.
type UpdateResult struct {
	Branch       string `json:"branch"` // legacy
	TargetBranch string `json:"target_branch"`
	OldSHA       string `json:"old_sha"`
	NewSHA       string `json:"new_sha"`
	Success      bool   `json:"success"`
	// Status is "ok", or why it failed: precondition_failed, conflict,
	// not_found, invalid, unauthorized, forbidden, unavailable,
	// payload_too_large, timeout or internal.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}
