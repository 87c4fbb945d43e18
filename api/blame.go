package api

// GetBlame asks which commits the lines of a file come from, as git blame does.
type GetBlame struct {
	Path string `query:"path"`
	// Ref is a branch, tag, commit or revision; the default branch when absent.
	Ref       string `query:"ref"`
	Ephemeral bool   `query:"ephemeral"`
	// Ranges are parts of the file in the forms of git blame -L, at most 16: "10,20",
	// "10,+5", "/from/,/to/", ":function". Without any, the whole file is told.
	Ranges []string `query:"range"`
	// DetectMoves also looks for lines that were moved within a file or copied from
	// others, as git blame -M -C -C.
	DetectMoves bool `query:"detect_moves"`
}

// Blame tells where lines come from, in the order of the file.
type Blame struct {
	Ref       string      `json:"ref"` // echoes what was asked for
	Path      string      `json:"path"`
	CommitSHA string      `json:"commit_sha"` // that Ref is
	Lines     []BlameLine `json:"lines"`
}

// BlameLine is where one line comes from.
type BlameLine struct {
	LineNumber int `json:"line_number"`
	// CommitSHA is the commit that wrote the line; it had it as OriginalLineNumber of
	// OriginalPath.
	CommitSHA          string `json:"commit_sha"`
	OriginalLineNumber int    `json:"original_line_number"`
	OriginalPath       string `json:"original_path"`
	// PreviousCommitSHA is the parent of that commit which has the file too; absent
	// where none has.
	PreviousCommitSHA string `json:"previous_commit_sha,omitempty"`
	AuthorName        string `json:"author_name"`
	AuthorEmail       string `json:"author_email"`
	AuthorTime        string `json:"author_time"`
	CommitterName     string `json:"committer_name"`
	CommitterEmail    string `json:"committer_email"`
	CommitterTime     string `json:"committer_time"`
	Summary           string `json:"summary"` // the first line of the message
}
