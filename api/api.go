// Package api holds the wire types of Cairn's REST interface: what each route
// takes and answers. It has no logic; servers and clients share it.
//
// Routes answer at two paths, a legacy one below /api/v1 and a preferred one
// below /api, and take two vocabularies on either. Where a request has a
// standard and a legacy name for one thing, the standard one wins when both are
// sent; responses carry both.
//
// The tag "query" names a query parameter, the tag "json" a member of the body,
// the tag "path" a segment of the path. Of several the path wins, then the body.
package api

// Error is the body of every answer that is not a success. The members beside
// Message and Code are those of RFC 9457.
type Error struct {
	// Message says in one sentence what was refused, why, and what to do.
	Message string `json:"error"`
	// Code is a stable word for programs.
	Code   Code   `json:"code"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"` // the same as Message
	Type   string `json:"type"`   // "about:blank"
	// Limit, Used, Reserved and Needed are there when a quota has no room for the
	// request: bytes, or numbers of repositories. Reserved is what other requests
	// keep while their bytes arrive.
	Limit    *int64 `json:"limit,omitempty"`
	Used     *int64 `json:"used,omitempty"`
	Reserved *int64 `json:"reserved,omitempty"`
	Needed   *int64 `json:"needed,omitempty"`
	// NextAfter is there when events that a reader asked for are not kept any more:
	// the value of "after" that goes on with the oldest one that is.
	NextAfter string `json:"next_after,omitempty"`
	// Result is there when a route that writes commits refuses.
	Result *UpdateResult `json:"result,omitempty"`
	*MergeRefusal
	*SnapshotRefusal
}

// Code is a stable, machine-readable kind of refusal.
type Code string

// The codes of refusals, with their status. A refused token has status 401 and
// one of the codes that begin with "token_".
const (
	Invalid           Code = "invalid"               // 400
	Unsupported       Code = "not_available"         // 400: known, and not offered by this server
	Unauthorized      Code = "unauthorized"          // 401
	ScopeMissing      Code = "scope_missing"         // 403
	Denied            Code = "denied_by_policy"      // 403
	NotFound          Code = "not_found"             // 404
	RepositoryMissing Code = "repository_not_found"  // 404
	MethodNotAllowed  Code = "method_not_allowed"    // 405
	Timeout           Code = "timeout"               // 408
	RepositoryDeleted Code = "repository_deleted"    // 409
	AlreadyExists     Code = "already_exists"        // 409
	Stale             Code = "stale"                 // 409
	Conflict          Code = "conflict"              // 409
	MergeConflict     Code = "merge_conflict"        // 409: the sides disagree
	DefaultBranch     Code = "default_branch"        // 409
	Syncing           Code = "sync_in_progress"      // 409: the first import from an upstream has not ended
	KeyReused         Code = "idempotency_mismatch"  // 409: the key came with another request
	EventsPruned      Code = "events_pruned"         // 410: events after the one that was named are not kept any more
	NoChanges         Code = "no_changes"            // 412
	Precondition      Code = "precondition_failed"   // 412: a conditional request
	TooLarge          Code = "payload_too_large"     // 413
	Range             Code = "range_not_satisfiable" // 416
	Limited           Code = "rate_limited"          // 429
	Internal          Code = "internal"              // 500
	Unavailable       Code = "unavailable"           // 503
	QuotaExceeded     Code = "quota_exceeded"        // 507: the space of the org or the repository is used up
	TokenMissing      Code = "token_missing"         // 401
	TokenMalformed    Code = "token_malformed"       // 401
	TokenExpired      Code = "token_expired"         // 401
	TokenNotYetValid  Code = "token_not_yet_valid"   // 401
	TokenSignature    Code = "token_signature"       // 401
	TokenAlgorithm    Code = "token_algorithm"       // 401
	TokenSuperseded   Code = "token_superseded"      // 401
	TokenLifetime     Code = "token_lifetime"        // 401

	// Those of checkpoints are the words of TanStack AI.
	StaleHead               Code = "SANDBOX_SNAPSHOT_STALE_HEAD"                  // 409: the head is another one
	DuplicateID             Code = "SANDBOX_SNAPSHOT_DUPLICATE_ID"                // 409
	InvalidID               Code = "SANDBOX_SNAPSHOT_INVALID_ID"                  // 400
	InvalidEntry            Code = "SANDBOX_SNAPSHOT_INVALID_ENTRY"               // 400
	ParentMismatch          Code = "SANDBOX_SNAPSHOT_PARENT_MISMATCH"             // 409
	NotHead                 Code = "SANDBOX_SNAPSHOT_NOT_HEAD"                    // 409
	WriterConflict          Code = "SANDBOX_SNAPSHOT_WRITER_CONFLICT"             // 409: another writer holds the lease
	WriterLost              Code = "SANDBOX_SNAPSHOT_WRITER_LOST"                 // 409: the lease is not, or no longer, the sender's
	MissingCheckpoint       Code = "SANDBOX_SNAPSHOT_MISSING_CHECKPOINT"          // 404
	ForkSourceNotFound      Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND"       // 404
	ForkSourceMismatch      Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH" // 409
	ForkDestinationNotEmpty Code = "SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY"  // 409
	MissingObject           Code = "SANDBOX_SNAPSHOT_MISSING_BLOB"                // 404, and 409 of an append
	InvalidObject           Code = "SANDBOX_SNAPSHOT_INVALID_BLOB"                // 400: not the bytes that the digest names
	Pinned                  Code = "checkpoint_pinned"                            // 409
	ThreadMissing           Code = "thread_not_found"                             // 404
)

// None is the request of a route that takes nothing beyond its path.
type None struct{}
