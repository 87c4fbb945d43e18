package api

// Usage is what an org or a repository has stored, in bytes of packs.
type Usage struct {
	// Bytes, Objects and Packs are those that count: for an org each pack once,
	// for a repository those that it made and still lists.
	Bytes   int64 `json:"bytes"`
	Objects int64 `json:"objects"`
	Packs   int64 `json:"packs"`
	// SharedBytes are, for a fork, those of packs that another repository made.
	SharedBytes int64 `json:"shared_bytes"`
	// CheckpointBytes are those among Bytes that keep checkpoints; 0 for a repository.
	CheckpointBytes int64 `json:"checkpoint_bytes"`
	// GarbageBytes are those among Bytes that nothing reaches and that are kept for
	// a while.
	GarbageBytes int64 `json:"garbage_bytes"`
	// ReservedBytes is what requests under way keep while their bytes arrive.
	ReservedBytes int64 `json:"reserved_bytes"`
	// LimitBytes bounds Bytes and ReservedBytes together; absent is no limit.
	LimitBytes int64 `json:"limit_bytes,omitempty"`
	// Repositories counts those that are not deleted, DeletedRepositories those that
	// can come back and still count.
	Repositories        int64 `json:"repositories"`
	DeletedRepositories int64 `json:"deleted_repositories"`
	// LimitRepositories bounds Repositories; absent is no limit.
	LimitRepositories int64     `json:"limit_repositories,omitempty"`
	Refs              RefCounts `json:"refs"`
	// Threads and Checkpoints count those of an org; they are 0 for a repository.
	Threads     int64 `json:"threads"`
	Checkpoints int64 `json:"checkpoints"`
	// Events and IdempotencyKeys count what is kept for the org; they are 0 for a
	// repository.
	Events          int64 `json:"events"`
	IdempotencyKeys int64 `json:"idempotency_keys"`
}

// RefCounts counts refs by namespace.
type RefCounts struct {
	Branches  int64 `json:"branches"`
	Tags      int64 `json:"tags"`
	Ephemeral int64 `json:"ephemeral"`
	Other     int64 `json:"other"` // notes, for example
}

// UndeletedRepo is the answer when a deleted repository is back.
type UndeletedRepo struct {
	RepoID   string `json:"repo_id"`
	RepoName string `json:"repo_name"`
	Message  string `json:"message"`
}
