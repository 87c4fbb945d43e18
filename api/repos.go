package api

// CreateRepo asks for the repository that the token names. The body may be
// absent.
type CreateRepo struct {
	// RepoName is optional and must equal the token's repo claim.
	RepoName *string `json:"repo_name,omitempty"`
	// DefaultBranch is a short name; a fork inherits its source's when none is
	// given, others take "main".
	DefaultBranch string         `json:"default_branch,omitempty" query:"default_branch"`
	BaseRepo      *BaseRepo      `json:"base_repo,omitempty"`
	InitialCommit *InitialCommit `json:"initial_commit,omitempty"`
}

// BaseRepo says where a new repository comes from.
type BaseRepo struct {
	// Provider is "code" or "code.storage" for a repository of this server, else
	// "github" (also when absent), "gitlab", "bitbucket", "gitea", "forgejo",
	// "codeberg" or "sr.ht".
	Provider string `json:"provider,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Name     string `json:"name,omitempty"`
	// Operation is "fork", "snapshot" or "sync".
	Operation     string `json:"operation,omitempty"`
	DefaultBranch string `json:"default_branch,omitempty"`
	// UpstreamHost is the host to sync with, where it is not the provider's own.
	UpstreamHost string        `json:"upstream_host,omitempty"`
	Auth         *BaseRepoAuth `json:"auth,omitempty"`
	// Ref and SHA narrow a fork to one branch; SHA wins. A snapshot needs Ref.
	Ref string `json:"ref,omitempty"`
	SHA string `json:"sha,omitempty"`
}

// BaseRepoAuth is how the source of a new repository is read.
type BaseRepoAuth struct {
	// Token grants git:read on the source of a fork or snapshot.
	Token string `json:"token,omitempty"`
	// AuthType is "public" for an upstream that is asked without a credential.
	AuthType string `json:"auth_type,omitempty"`
}

// InitialCommit describes the only commit of a snapshot.
type InitialCommit struct {
	Message string    `json:"message,omitempty"`
	Author  *Identity `json:"author,omitempty"`
}

// CreatedRepo is the answer to CreateRepo.
type CreatedRepo struct {
	RepoID   string `json:"repo_id"` // stable and opaque
	RepoName string `json:"repo_name"`
	HTTPURL  string `json:"http_url"` // clone URL without credentials
	Message  string `json:"message"`
}

// Repo describes a repository.
type Repo struct {
	RepoID        string `json:"repo_id"`
	URL           string `json:"url"` // legacy name of repo_name
	RepoName      string `json:"repo_name"`
	DefaultBranch string `json:"default_branch"`
	CreatedAt     string `json:"created_at"`
	// BaseRepo is the upstream that the repository follows.
	BaseRepo *Origin `json:"base_repo,omitempty"`
}

// UpdateRepo asks to change a repository. What is absent stays.
type UpdateRepo struct {
	// DefaultBranch is the short name of a branch that exists, unless the
	// repository has none.
	DefaultBranch string `json:"default_branch,omitempty"`
	// Deployment is not offered by this server.
	Deployment any `json:"deployment,omitempty"`
}

// UpdatedRepo is the answer to UpdateRepo.
type UpdatedRepo struct {
	RepoID        string `json:"repo_id"`
	RepoName      string `json:"repo_name"`
	DefaultBranch string `json:"default_branch"`
}

// LookUpRepo asks for the name and URL of the repository with an id.
type LookUpRepo struct {
	RepoID string `json:"-" path:"id"`
}

// RepoURL is the answer to LookUpRepo.
type RepoURL struct {
	Repo
	HTTPURL string `json:"http_url"` // clone URL without credentials
}

// ListRepos asks for a page of an org's repositories, newest first.
type ListRepos struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
	// Q keeps names that contain it, whatever the case.
	Q string `query:"q"`
}

// RepoList is a page of repositories.
type RepoList struct {
	Repos      []Repo `json:"repos"`
	NextCursor string `json:"next_cursor,omitempty"`
	HasMore    bool   `json:"has_more"`
}

// DeletedRepo is the answer to the deletion of a repository.
type DeletedRepo struct {
	RepoID   string `json:"repo_id"`
	RepoName string `json:"repo_name"`
	Message  string `json:"message"`
}

// Protections are the protection rules of a repository: the request that sets
// them and the answer that shows them. All rules that match a ref apply.
type Protections struct {
	Protections []Protection `json:"protections"`
}

// Protection restricts changes of the refs that a pattern matches.
type Protection struct {
	// Pattern is a full ref name, a prefix that ends in "/*", or "*". A pattern
	// without "refs/" means branches.
	Pattern string `json:"pattern"`
	// Ops are no-push, no-force-push, no-create, no-update, no-delete and
	// verify-sig.
	Ops []string `json:"ops"`
}
