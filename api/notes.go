package api

// GetNote asks for the note of an object.
type GetNote struct {
	// ObjectRef is the id of any object, or a revision.
	ObjectRef string `query:"object_ref"`
	SHA       string `query:"sha"` // legacy
	// NotesRef is the ref that holds the notes: "reviews", "notes/reviews" and
	// "refs/notes/reviews" are the same; "refs/notes/commits" when absent.
	NotesRef string `query:"notes_ref"`
	Ref      string `query:"ref"` // legacy
}

// Note is the answer to GetNote.
type Note struct {
	SHA    string `json:"sha"`     // of the object
	Note   string `json:"note"`    // without line breaks at its end
	RefSHA string `json:"ref_sha"` // the commit that the notes ref is at
}

// WriteNote asks to add a note to an object, or to append to the one it has.
type WriteNote struct {
	ObjectRef string `json:"object_ref,omitempty"`
	SHA       string `json:"sha,omitempty"` // legacy
	// Action is "add", the default, which refuses where there is a note; "append",
	// which leaves an empty line between; or "remove", as DeleteNote does.
	Action   string `json:"action,omitempty"`
	Note     string `json:"note,omitempty"`
	NotesRef string `json:"notes_ref,omitempty"`
	Ref      string `json:"ref,omitempty"` // legacy
	// ExpectedNotesRefSHA is what the notes ref must be at. Forty zeros: it must
	// not exist.
	ExpectedNotesRefSHA string    `json:"expected_notes_ref_sha,omitempty"`
	ExpectedRefSHA      string    `json:"expected_ref_sha,omitempty"` // legacy
	Author              *Identity `json:"author,omitempty"`           // made of the token's subject when absent
}

// DeleteNote asks to remove the note of an object. Its members are those of
// WriteNote.
type DeleteNote struct {
	ObjectRef           string    `json:"object_ref,omitempty"`
	SHA                 string    `json:"sha,omitempty"` // legacy
	NotesRef            string    `json:"notes_ref,omitempty"`
	Ref                 string    `json:"ref,omitempty"` // legacy
	ExpectedNotesRefSHA string    `json:"expected_notes_ref_sha,omitempty"`
	ExpectedRefSHA      string    `json:"expected_ref_sha,omitempty"` // legacy
	Author              *Identity `json:"author,omitempty"`
}

// NoteUpdate is the answer to a change of a note. It is also the whole body when
// the change is refused by a guard, a policy, or what is there already: then the
// result says so, and an Error is not sent.
type NoteUpdate struct {
	SHA       string `json:"sha"`        // of the object
	TargetRef string `json:"target_ref"` // legacy name of notes_ref
	NotesRef  string `json:"notes_ref"`
	// BaseCommit is where the notes ref was; absent when it did not exist.
	BaseCommit string     `json:"base_commit,omitempty"`
	NewRefSHA  string     `json:"new_ref_sha"` // where it is now; "" when it does not exist
	Result     NoteResult `json:"result"`
}

// NoteResult says what became of a note.
type NoteResult struct {
	Success bool `json:"success"`
	// Status is "ok", or why it failed: precondition_failed, conflict or
	// forbidden.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// ListNotesRefs asks for a page of the refs that hold notes, in the byte order of
// their names.
type ListNotesRefs struct {
	// Prefix narrows them; it is completed as names of notes refs are.
	Prefix string `query:"prefix"`
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
}

// NotesRefList is a page of notes refs.
type NotesRefList struct {
	Refs       []NotesRefItem `json:"refs"`
	NextCursor string         `json:"next_cursor,omitempty"`
	HasMore    bool           `json:"has_more"`
	Prefix     string         `json:"prefix"` // as completed
}

// NotesRefItem is a notes ref of a list. Its cursor continues after it.
type NotesRefItem struct {
	Cursor string `json:"cursor"`
	Ref    string `json:"ref"` // full name
	SHA    string `json:"sha"`
}
