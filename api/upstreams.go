package api

// CreateCredential asks to store what the repository's upstream is asked with.
// A repository has at most one credential.
type CreateCredential struct {
	// RepoID is the name of the repository, for clients that do not put it in the
	// path; it must equal the token's repo claim.
	RepoID string `json:"repo_id,omitempty"`
	// Username may be absent: then the provider's usual one goes with a token.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // or a token; it is never returned
}

// UpdateCredential asks to replace a credential. The id is in the path or the
// body.
type UpdateCredential struct {
	ID       string `json:"id,omitempty" path:"credential"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// DeleteCredential asks to forget a credential. The id is in the path or the
// body.
type DeleteCredential struct {
	ID string `json:"id,omitempty" path:"credential"`
}

// Credential describes a stored credential without its secret.
type Credential struct {
	ID        string `json:"id"`
	CreatedAt string `json:"created_at"`
}

// PullUpstream asks for a sync with the upstream. The body may be absent; what
// it says is a hint: the sync fetches all branches and tags.
type PullUpstream struct {
	Ref   string `json:"ref,omitempty"`
	After string `json:"after,omitempty"`
}

// Done is the answer of a route that has nothing else to say.
type Done struct {
	Message string `json:"message,omitempty"`
}

// Origin names the repository on another host that one follows.
type Origin struct {
	Provider string `json:"provider"`
	Owner    string `json:"owner"`
	Name     string `json:"name"`
	// UpstreamHost is the host, where it is not the provider's own.
	UpstreamHost string `json:"upstream_host,omitempty"`
	// SyncStatus is "importing" until the first sync has ended, then "failed" when
	// the last one did and "synced" otherwise.
	SyncStatus string `json:"sync_status"`
	// SyncedAt is when the last successful sync ended.
	SyncedAt string `json:"synced_at,omitempty"`
	// SyncError is why the last sync failed.
	SyncError string `json:"sync_error,omitempty"`
}
