package api

// Grep asks for the lines of a commit's files that match a pattern. Files that git
// takes for binary, symbolic links and files of more than 16 MiB are not searched.
type Grep struct {
	Query GrepPattern `json:"query"`
	// Ref is a branch, tag, commit or revision; the default branch when absent.
	Ref       string `json:"ref,omitempty"`
	Rev       string `json:"rev,omitempty"` // legacy
	Ephemeral bool   `json:"ephemeral,omitempty"`
	// Paths are files, directories, and globs as in an archive, which select what is
	// below a directory that they match too.
	Paths       []string        `json:"paths,omitempty"`
	FileFilters *GrepFilters    `json:"file_filters,omitempty"`
	Context     *GrepContext    `json:"context,omitempty"`
	Limits      *GrepLimits     `json:"limits,omitempty"`
	Pagination  *GrepPagination `json:"pagination,omitempty"`
}

// GrepPattern is what is looked for.
type GrepPattern struct {
	// Pattern is a regular expression in the syntax of RE2, matched against each line;
	// ^ and $ are the ends of a line.
	Pattern       string `json:"pattern"`
	CaseSensitive *bool  `json:"case_sensitive,omitempty"` // true when absent
}

// GrepFilters select files. Globs are those of an archive.
type GrepFilters struct {
	IncludeGlobs     []string `json:"include_globs,omitempty"`
	ExcludeGlobs     []string `json:"exclude_globs,omitempty"`
	ExtensionFilters []string `json:"extension_filters,omitempty"` // such as ".js"
}

// GrepContext says how many lines around a match are told, at most 100 of each.
type GrepContext struct {
	Before int `json:"before,omitempty"`
	After  int `json:"after,omitempty"`
}

// GrepLimits bound an answer.
type GrepLimits struct {
	// MaxLines bounds the lines of a page, those around matches included: 1 to 2000,
	// 2000 when absent.
	MaxLines *int `json:"max_lines,omitempty"`
	// MaxMatchesPerFile is how many matches of a file are told; 200 when absent.
	MaxMatchesPerFile *int `json:"max_matches_per_file,omitempty"`
}

// GrepPagination selects a page.
type GrepPagination struct {
	// Cursor continues an answer, of the commit and for the query that it was for.
	Cursor string `json:"cursor,omitempty"`
	Limit  *int   `json:"limit,omitempty"` // matches on a page: 1 to 2000, 200 when absent
}

// GrepResult is a page of matches, by path and line. A page may hold few matches or
// none and still have more behind it, when searching takes long.
type GrepResult struct {
	Query      GrepQuery   `json:"query"`
	Repo       GrepRepo    `json:"repo"`
	Matches    []GrepMatch `json:"matches"`
	NextCursor string      `json:"next_cursor,omitempty"`
	HasMore    bool        `json:"has_more"`
}

// GrepQuery repeats what was looked for.
type GrepQuery struct {
	Pattern       string `json:"pattern"`
	CaseSensitive bool   `json:"case_sensitive"`
}

// GrepRepo says what was searched.
type GrepRepo struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
}

// GrepMatch is a file with lines that match and lines around them.
type GrepMatch struct {
	Path  string     `json:"path"`
	Lines []GrepLine `json:"lines"`
}

// GrepLine is a line of a file.
type GrepLine struct {
	LineNumber int `json:"line_number"`
	// Text is the line in UTF-8 without its line break, cut at 4096 bytes.
	Text string `json:"text"`
	Type string `json:"type"` // match or context
}
