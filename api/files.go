package api

// GetFile asks for the content of one file. The answer is the content itself;
// Range, If-Range and the conditional headers of HTTP apply.
type GetFile struct {
	Path string `query:"path"`
	// Ref is a branch, tag, commit or revision; the default branch when absent.
	Ref       string `query:"ref"`
	Ephemeral *bool  `query:"ephemeral"`
	// EphemeralBase without Ephemeral means the same; beside it, Ref is looked
	// for in the ephemeral namespace first, then in the normal one.
	EphemeralBase bool `query:"ephemeral_base"`
}

// ListFiles asks for the files of a commit in the order of their paths' bytes.
// Without Cursor and Limit the answer holds all of them.
type ListFiles struct {
	Ref       string `query:"ref"`
	Ephemeral bool   `query:"ephemeral"`
	// Path narrows the answer to a directory.
	Path string `query:"path"`
	// Recursive descends into directories; true when absent.
	Recursive *bool `query:"recursive"`
	// Cursor is a path; the answer continues after it.
	Cursor *string `query:"cursor"`
	Limit  int     `query:"limit"` // 1 to 5000, 1000 when only Cursor is given
}

// FileList is a page of a commit's files.
type FileList struct {
	// Paths are those of files and symbolic links.
	Paths []string `json:"paths"`
	// Ref echoes what was listed.
	Ref        string      `json:"ref"`
	Entries    []FileEntry `json:"entries"`
	NextCursor string      `json:"next_cursor,omitempty"`
	HasMore    bool        `json:"has_more"`
}

// FileEntry is an entry of a tree under its full path.
type FileEntry struct {
	Path string `json:"path"`
	Type string `json:"type"` // blob, tree, symlink or submodule
	Mode string `json:"mode"` // six octal digits
}

// ListFileDetails asks for the files of a commit, in the order of their paths'
// bytes, with the commits that last touched them.
type ListFileDetails struct {
	// Ref is a branch, tag, commit or revision; when absent the default branch,
	// or else the branch main.
	Ref       string `query:"ref"`
	Ephemeral bool   `query:"ephemeral"`
	// Path narrows the answer to a directory.
	Path string `query:"path"`
	// Recursive changes nothing: directories are always descended into.
	Recursive bool `query:"recursive"`
	// Cursor is a path; the answer continues after it.
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 1000, 200 when absent
}

// FileDetailList is a page of a commit's files.
type FileDetailList struct {
	Files []FileDetail `json:"files"`
	// Commits are those that the files name.
	Commits map[string]FileCommit `json:"commits"`
	// Ref echoes what was listed.
	Ref        string `json:"ref"`
	NextCursor string `json:"next_cursor,omitempty"`
	HasMore    bool   `json:"has_more"`
}

// FileDetail is a file, link or submodule under its full path.
type FileDetail struct {
	Path string `json:"path"`
	Type string `json:"type"` // blob, symlink or submodule
	Mode string `json:"mode"` // six octal digits
	Size int64  `json:"size"` // in bytes; 0 of a submodule
	// LastCommitSHA is the newest commit that touched the path, as git log has it.
	LastCommitSHA string `json:"last_commit_sha"`
}

// FileCommit describes a commit that touched files.
type FileCommit struct {
	Author  string `json:"author"`  // name
	Date    string `json:"date"`    // of the committer
	Message string `json:"message"` // the whole of it
}

// Archive asks for the files of a commit as a gzip-compressed tar file.
type Archive struct {
	Ref       string `json:"ref,omitempty" query:"ref"`
	Ephemeral bool   `json:"ephemeral,omitempty" query:"ephemeral"`
	// IncludeGlobs and ExcludeGlobs select paths: ** crosses slashes, * does
	// not, and a pattern without a slash also matches base names.
	IncludeGlobs []string `json:"include_globs,omitempty" query:"include_globs"`
	ExcludeGlobs []string `json:"exclude_globs,omitempty" query:"exclude_globs"`
	// MaxBlobSize leaves out larger files, in bytes.
	MaxBlobSize *int64          `json:"max_blob_size,omitempty" query:"max_blob_size"`
	Archive     *ArchiveOptions `json:"archive,omitempty"`
	// Prefix is how the GET form spells Archive.Prefix.
	Prefix string `json:"-" query:"prefix"`
}

// ArchiveOptions shapes an archive.
type ArchiveOptions struct {
	// Prefix is the relative directory that all paths are put below.
	Prefix string `json:"prefix,omitempty"`
}
