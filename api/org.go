package api

// SigningKey is a public key that verifies signatures of commits and tags in
// the repositories of an org.
type SigningKey struct {
	// Fingerprint names the key: upper-case hexadecimal of an OpenPGP key,
	// "SHA256:" and base64 of an SSH key.
	Fingerprint string `json:"fingerprint"`
	Kind        string `json:"kind"` // openpgp or ssh
	Title       string `json:"title"`
	PublicKey   string `json:"public_key"`
	// Server says that the server signs the commits with this key that it makes
	// over REST.
	Server bool `json:"server"`
	// NotBefore and NotAfter bound the dates of the commits and tags that the
	// key may sign; absent is no bound.
	NotBefore string `json:"not_before,omitempty"`
	NotAfter  string `json:"not_after,omitempty"`
}

// SigningKeyList is all signing keys of an org, oldest first.
type SigningKeyList struct {
	SigningKeys []SigningKey `json:"signing_keys"`
}

// AddSigningKey registers a key, or gives a registered one a new title and new
// bounds.
type AddSigningKey struct {
	// PublicKey is an armoured OpenPGP public key or an SSH public key.
	PublicKey string `json:"public_key"`
	// Title is for people; what the key says of its owner when absent.
	Title string `json:"title"`
	// NotBefore and NotAfter are times (RFC 3339).
	NotBefore string `json:"not_before"`
	NotAfter  string `json:"not_after"`
}

// RemoveSigningKey asks to forget a key: nothing that it signed counts from the
// next change of a ref on.
type RemoveSigningKey struct {
	Fingerprint string `json:"fingerprint" query:"fingerprint"`
}

// ListAudit asks for a page of the org's audit log, newest first.
type ListAudit struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 500, 100 when absent
	// Repo, Sub and Since (RFC 3339) narrow it.
	Repo  string `query:"repo"`
	Sub   string `query:"sub"`
	Since string `query:"since"`
}

// AuditEntry is one thing that was done: an action, or the change of a ref.
type AuditEntry struct {
	At       string `json:"at"`
	Action   string `json:"action"` // for example repo.create; "ref" for the change of a ref
	Detail   string `json:"detail,omitempty"`
	RepoName string `json:"repo_name,omitempty"`
	Ref      string `json:"ref,omitempty"` // full stored name
	OldSHA   string `json:"old_sha,omitempty"`
	NewSHA   string `json:"new_sha,omitempty"`
	// Subject is the token's sub, absent for the operator; Route what it came
	// through; Agent what the client called itself.
	Subject string `json:"sub,omitempty"`
	Route   string `json:"route,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Entries    []AuditEntry `json:"entries"`
	NextCursor string       `json:"next_cursor,omitempty"`
	HasMore    bool         `json:"has_more"`
}

// RemovedSigningKey is the answer to the removal of a key.
type RemovedSigningKey struct {
	Fingerprint string `json:"fingerprint"`
	Message     string `json:"message"`
}
