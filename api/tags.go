package api

// ListTags asks for a page of tags in the byte order of their names.
type ListTags struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
}

// TagList is a page of tags.
type TagList struct {
	Tags       []TagItem `json:"tags"`
	NextCursor string    `json:"next_cursor,omitempty"`
	HasMore    bool      `json:"has_more"`
}

// TagItem is a tag of a list. Its cursor continues after it.
type TagItem struct {
	Cursor string `json:"cursor"`
	Tag
}

// Tag is a tag under its short name.
type Tag struct {
	Name string `json:"name"`
	// SHA is what the tag finally points to: of an annotated tag the commit, not
	// the tag object.
	SHA string `json:"sha"`
}

// GetTag asks for one tag by its short name.
type GetTag struct {
	Name string `query:"name"`
}

// TagInfo is the answer to GetTag.
type TagInfo struct {
	Tag Tag `json:"tag"`
}

// CreateTag asks for a lightweight tag.
type CreateTag struct {
	Name string `json:"name"`
	// Ref is a branch, tag, commit or revision.
	Ref    string `json:"ref,omitempty"`
	Target string `json:"target,omitempty"` // legacy: a full commit id only
}

// CreatedTag is the answer to CreateTag.
type CreatedTag struct {
	Name    string `json:"name"`
	SHA     string `json:"sha"`
	Message string `json:"message"`
}

// DeleteTag asks to delete a tag by its short name.
type DeleteTag struct {
	Name string `json:"name,omitempty" path:"tag"`
}

// DeletedTag is the answer to DeleteTag.
type DeletedTag struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}
