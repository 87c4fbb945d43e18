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
