package rest

import (
	"net/http"
	"reflect"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

// route is one row of the table: what it is called in metrics, how it is asked,
// who may, and what it does.
type route struct {
	name   string
	method string
	legacy string // path below /api/v1/, "" for none
	path   string // path below /api/, "" for none
	access access
	op     operation

	once    bool // it takes an Idempotency-Key
	sealed  bool // its answer holds a secret and is recorded encrypted
	commits bool // its refusals carry the result of a commit
	merges  bool // its refusals tell what is in conflict
	strict  bool // members of the body that are not known are refused
	halves  bool // escaped halves of characters are left to the operation, which keeps them
	maxBody int  // of JSON, in bytes, where that is not maxJSON
	rows    bool // it reads nothing of repositories that garbage collection removes, and may last
}

// operation is what a route does, with the types of what it takes and answers.
type operation struct {
	request, response reflect.Type
	// status is that of success; 0 where the operation decides.
	status int
	run    func(*call) error
	body   string // media type of a body that run reads itself, "" for JSON
}

// answers makes an operation that answers in JSON.
func answers[Q, A any](status int, f func(*call, Q) (A, error)) operation {
	return operation{request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](), status: status, run: func(c *call) error {
		var q Q
		if err := c.decode(&q); err != nil {
			return err
		}
		if err := c.replay(); err != nil {
			return err
		}
		a, err := f(c, q)
		if err != nil {
			return err
		}
		return c.conclude(status, a)
	}}
}

// sends makes an operation that writes its answer itself, while it is made.
func sends[Q, A any](f func(*call, Q) error) operation {
	return operation{request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](), run: func(c *call) error {
		var q Q
		if err := c.decode(&q); err != nil {
			return err
		}
		if err := c.replay(); err != nil {
			return err
		}
		return f(c, q)
	}}
}

// receives makes an operation that reads its body itself and answers in JSON. Once it has
// read the body it calls replay.
func receives[Q, A any](status int, f func(*call) (A, error)) operation {
	return operation{request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](), status: status, body: "application/x-ndjson", run: func(c *call) error {
		a, err := f(c)
		if err != nil {
			return err
		}
		return c.conclude(status, a)
	}}
}

// takes makes an operation that reads a body of some media type itself and answers
// in JSON.
func takes[Q, A any](media string, status int, f func(*call, Q) (A, error)) operation {
	return operation{request: reflect.TypeFor[Q](), response: reflect.TypeFor[A](), status: status, body: media, run: func(c *call) error {
		var q Q
		if err := c.decodeParameters(&q); err != nil {
			return err
		}
		a, err := f(c, q)
		if err != nil {
			return err
		}
		return c.conclude(status, a)
	}}
}

// routes is the table.
func routes() []*route {
	const get, head, post, put, patch, del = http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	return []*route{
		{name: "repos.create", method: post, once: true, legacy: "repos", path: "repos",
			access: creates(auth.RepoWrite), op: answers(http.StatusCreated, (*call).createRepo)},
		{name: "repos.list", method: get, legacy: "repos", path: "repos",
			access: ofOrg(auth.OrgRead), op: answers(http.StatusOK, (*call).listRepos)},
		{name: "repos.get", method: get, legacy: "repo", path: "repos/{r}",
			access: describes(auth.GitRead), op: answers(http.StatusOK, (*call).getRepo)},
		{name: "repos.update", method: patch, once: true, legacy: "repo", path: "repos/{r}",
			access: changes(auth.RepoWrite), op: answers(http.StatusOK, (*call).updateRepo)},
		{name: "repos.lookup", method: get, path: "repo-urls/{id}",
			access: ofOrg(auth.OrgRead), op: answers(http.StatusOK, (*call).lookUpRepo)},
		{name: "repos.delete", method: del, once: true, legacy: "repos/delete", path: "repos/{r}",
			access: changes(auth.RepoWrite), op: answers(http.StatusOK, (*call).deleteRepo)},
		{name: "repos.undelete", method: post, once: true, path: "repos/{r}/undelete",
			access: changes(auth.RepoWrite), op: answers(http.StatusOK, (*call).undeleteRepo)},
		{name: "usage.org", method: get, path: "usage", rows: true,
			access: ofOrg(auth.OrgRead, auth.OrgAdmin), op: answers(http.StatusOK, (*call).getUsage)},
		{name: "usage.repo", method: get, path: "repos/{r}/usage", rows: true,
			access: describes(auth.GitRead), op: answers(http.StatusOK, (*call).getUsage)},
		{name: "protections.get", method: get, path: "repos/{r}/protections",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).getProtections)},
		{name: "protections.set", method: put, once: true, path: "repos/{r}/protections", strict: true,
			access: changes(auth.RepoWrite), op: answers(http.StatusOK, (*call).setProtections)},

		{name: "audit.list", method: get, path: "audit",
			access: ofOrg(auth.OrgAdmin), op: answers(http.StatusOK, (*call).listAudit)},
		{name: "signing_keys.list", method: get, path: "org/signing-keys",
			access: ofOrg(auth.OrgRead, auth.OrgAdmin), op: answers(http.StatusOK, (*call).listSigningKeys)},
		{name: "signing_keys.add", method: post, once: true, path: "org/signing-keys", strict: true,
			access: changesOrg(auth.OrgAdmin), op: answers(http.StatusCreated, (*call).addSigningKey)},
		{name: "signing_keys.remove", method: del, once: true, path: "org/signing-keys", strict: true,
			access: changesOrg(auth.OrgAdmin), op: answers(http.StatusOK, (*call).removeSigningKey)},

		{name: "credentials.create", method: post, once: true, legacy: "repos/git-credentials", path: "repos/{r}/git-credentials",
			access: changes(auth.RepoWrite), op: answers(http.StatusCreated, (*call).createCredential)},
		{name: "credentials.update", method: put, once: true, legacy: "repos/git-credentials", path: "repos/{r}/git-credentials/{credential}",
			access: ofCredential(auth.RepoWrite), op: answers(http.StatusOK, (*call).updateCredential)},
		{name: "credentials.delete", method: del, once: true, legacy: "repos/git-credentials", path: "repos/{r}/git-credentials/{credential}",
			access: ofCredential(auth.RepoWrite), op: answers(http.StatusOK, (*call).deleteCredential)},
		{name: "upstream.pull", method: post, once: true, legacy: "repos/pull-upstream", path: "repos/{r}/pull-upstream",
			access: changes(auth.GitWrite), op: answers(http.StatusAccepted, (*call).pullUpstream)},
		{name: "upstream.detach", method: del, once: true, legacy: "repos/base", path: "repos/{r}/base",
			access: changes(auth.GitWrite), op: answers(http.StatusOK, (*call).detachUpstream)},

		{name: "file.get", method: get, legacy: "repos/file", path: "repos/{r}/file",
			access: reads(auth.GitRead), op: sends[api.GetFile, []byte]((*call).getFile)},
		{name: "file.head", method: head, legacy: "repos/file", path: "repos/{r}/file",
			access: reads(auth.GitRead), op: sends[api.GetFile, []byte]((*call).getFile)},
		{name: "files.list", method: get, legacy: "repos/files", path: "repos/{r}/files",
			access: reads(auth.GitRead), op: sends[api.ListFiles, api.FileList]((*call).listFiles)},
		{name: "files.details", method: get, legacy: "repos/files/metadata", path: "repos/{r}/files/metadata",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).listFileDetails)},
		{name: "archive.post", method: post, legacy: "repos/archive", path: "repos/{r}/archive",
			access: reads(auth.GitRead), op: sends[api.Archive, []byte]((*call).archive)},
		{name: "archive.get", method: get, legacy: "repos/archive", path: "repos/{r}/archive",
			access: reads(auth.GitRead), op: sends[api.Archive, []byte]((*call).archive)},

		{name: "branches.list", method: get, legacy: "repos/branches", path: "repos/{r}/branches",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).listBranches)},
		{name: "branches.get", method: get, legacy: "repos/branch", path: "repos/{r}/branch",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).getBranch)},
		{name: "branches.create", method: post, once: true, legacy: "repos/branches/create", path: "repos/{r}/branches/create",
			access: writes(auth.GitWrite), op: answers(http.StatusOK, (*call).createBranch)},
		{name: "branches.delete", method: del, once: true, legacy: "repos/branches", path: "repos/{r}/branches",
			access: writes(auth.GitWrite), op: answers(http.StatusOK, (*call).deleteBranch)},

		{name: "merge", method: post, once: true, legacy: "repos/merge", path: "repos/{r}/merge", merges: true,
			access: writes(auth.GitWrite), op: answers(http.StatusOK, (*call).merge)},
		{name: "merge.preview", method: get, legacy: "repos/merge/preview", path: "repos/{r}/merge/preview",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).previewMerge)},

		{name: "tags.list", method: get, legacy: "repos/tags", path: "repos/{r}/tags",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).listTags)},
		{name: "tags.get", method: get, legacy: "repos/tag", path: "repos/{r}/tag",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).getTag)},
		{name: "tags.create", method: post, once: true, legacy: "repos/tags", path: "repos/{r}/tags",
			access: writes(auth.GitWrite), op: answers(http.StatusOK, (*call).createTag)},
		{name: "tags.delete", method: del, once: true, legacy: "repos/tags", path: "repos/{r}/tags/{tag}",
			access: writes(auth.GitWrite), op: answers(http.StatusOK, (*call).deleteTag)},

		{name: "notes.get", method: get, legacy: "repos/notes", path: "repos/{r}/notes",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).getNote)},
		{name: "notes.write", method: post, once: true, legacy: "repos/notes", path: "repos/{r}/notes",
			access: writes(auth.GitWrite), op: sends[api.WriteNote, api.NoteUpdate]((*call).writeNote)},
		{name: "notes.delete", method: del, once: true, legacy: "repos/notes", path: "repos/{r}/notes",
			access: writes(auth.GitWrite), op: sends[api.DeleteNote, api.NoteUpdate]((*call).deleteNote)},
		{name: "notes.refs", method: get, legacy: "repos/notes/refs", path: "repos/{r}/notes/refs",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).listNotesRefs)},

		{name: "commits.list", method: get, legacy: "repos/commits", path: "repos/{r}/commits",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).listCommits)},
		{name: "commits.get", method: get, legacy: "repos/commit", path: "repos/{r}/commit",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).getCommit)},
		{name: "commits.diff", method: get, legacy: "repos/diff", path: "repos/{r}/diff",
			access: reads(auth.GitRead), op: sends[api.DiffCommit, api.CommitDiff]((*call).diffCommit)},
		{name: "branches.diff", method: get, legacy: "repos/branches/diff", path: "repos/{r}/branches/diff",
			access: reads(auth.GitRead), op: sends[api.DiffBranch, api.BranchDiff]((*call).diffBranch)},
		{name: "blame", method: get, legacy: "repos/blame", path: "repos/{r}/blame",
			access: reads(auth.GitRead), op: sends[api.GetBlame, api.Blame]((*call).blame)},
		{name: "grep", method: post, legacy: "repos/grep", path: "repos/{r}/grep",
			access: reads(auth.GitRead), op: answers(http.StatusOK, (*call).grep)},
		{name: "commits.pack", method: post, once: true, legacy: "repos/commit-pack", path: "repos/{r}/commit-pack", commits: true,
			access: writes(auth.GitWrite), op: receives[api.CommitPack](http.StatusCreated, (*call).commitPack)},
		{name: "commits.patch", method: post, once: true, legacy: "repos/diff-commit", path: "repos/{r}/diff-commit", commits: true,
			access: writes(auth.GitWrite), op: receives[api.CommitDiffStream](http.StatusCreated, (*call).commitPatch)},
		{name: "commits.restore", method: post, once: true, legacy: "repos/restore-commit", path: "repos/{r}/restore-commit", commits: true,
			access: writes(auth.GitWrite), op: answers(http.StatusCreated, (*call).restoreCommit)},
		{name: "commits.reset", method: post, once: true, legacy: "repos/reset-commits", path: "repos/{r}/reset-commits", commits: true,
			access: writes(auth.GitWrite), op: answers(http.StatusCreated, (*call).restoreCommit)},

		{name: "threads.list", method: get, path: "threads",
			access: ofThreads(auth.CheckpointRead), op: answers(http.StatusOK, (*call).listThreads)},
		{name: "threads.get", method: get, path: "threads/{thread}",
			access: inThread(auth.CheckpointRead), op: answers(http.StatusOK, (*call).getThread)},
		{name: "threads.delete", method: del, once: true, path: "threads/{thread}", strict: true,
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).deleteThread)},
		{name: "threads.prune", method: post, once: true, path: "threads/{thread}/prune", strict: true,
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).pruneThread)},
		{name: "leases.acquire", method: post, path: "threads/{thread}/lease",
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusCreated, (*call).acquireLease)},
		{name: "leases.renew", method: post, path: "threads/{thread}/lease/renew",
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).renewLease)},
		{name: "leases.release", method: del, path: "threads/{thread}/lease",
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).releaseLease)},
		{name: "checkpoints.append", method: post, once: true, halves: true, path: "threads/{thread}/checkpoints", strict: true, maxBody: largeJSON,
			access: inThread(auth.CheckpointWrite), op: sends[api.AppendCheckpoint, api.AppendedCheckpoint]((*call).appendCheckpoint)},
		{name: "checkpoints.append_manifest", method: post, once: true, halves: true, path: "threads/{thread}/manifests", maxBody: largeJSON,
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusCreated, (*call).appendManifest)},
		{name: "checkpoints.list", method: get, path: "threads/{thread}/checkpoints",
			access: inThread(auth.CheckpointRead), op: answers(http.StatusOK, (*call).listCheckpoints)},
		{name: "checkpoints.delete_head", method: del, once: true, halves: true, path: "threads/{thread}/head",
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).deleteHead)},
		{name: "checkpoints.get", method: get, path: "checkpoints/{checkpoint}",
			access: ofThreads(auth.CheckpointRead), op: answers(http.StatusOK, (*call).getCheckpoint)},
		{name: "checkpoints.delete", method: del, once: true, path: "checkpoints/{checkpoint}", strict: true,
			access: ofThreads(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).deleteCheckpoint)},
		{name: "checkpoints.fork", method: post, once: true, halves: true, path: "checkpoints/{checkpoint}/fork", strict: true,
			access: ofThreads(auth.CheckpointWrite), op: answers(http.StatusCreated, (*call).forkCheckpoint)},
		{name: "checkpoints.pin", method: post, once: true, path: "checkpoints/{checkpoint}/pin",
			access: ofThreads(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).pinCheckpoint)},
		{name: "checkpoints.unpin", method: del, once: true, path: "checkpoints/{checkpoint}/pin",
			access: ofThreads(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).unpinCheckpoint)},
		{name: "checkpoints.entries", method: get, path: "checkpoints/{checkpoint}/manifest",
			access: ofThreads(auth.CheckpointRead), op: answers(http.StatusOK, (*call).listEntries)},
		{name: "checkpoints.file", method: get, path: "checkpoints/{checkpoint}/files/{path}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.GetCheckpointFile, []byte]((*call).getCheckpointFile)},
		{name: "checkpoints.file_head", method: head, path: "checkpoints/{checkpoint}/files/{path}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.GetCheckpointFile, []byte]((*call).getCheckpointFile)},
		{name: "checkpoints.diff", method: get, path: "checkpoints/{checkpoint}/diff",
			access: ofThreads(auth.CheckpointRead), op: answers(http.StatusOK, (*call).diffCheckpoint)},
		{name: "checkpoints.archive", method: get, path: "checkpoints/{checkpoint}/archive",
			access: ofThreads(auth.CheckpointRead), op: sends[api.ArchiveCheckpoint, []byte]((*call).archiveCheckpoint)},
		{name: "checkpoints.promote", method: post, once: true, path: "checkpoints/{checkpoint}/promote", strict: true,
			access: ofThreads(auth.CheckpointRead), op: sends[api.PromoteCheckpoint, api.PromotedCheckpoint]((*call).promoteCheckpoint)},
		{name: "checkpoints.from_commit", method: post, once: true, path: "threads/{thread}/from-commit", strict: true,
			access: inThread(auth.CheckpointWrite), op: sends[api.ThreadFromCommit, api.AppendedCheckpoint]((*call).threadFromCommit)},

		{name: "objects.missing", method: post, path: "threads/{thread}/blobs/missing", strict: true, maxBody: digestJSON,
			access: inThread(auth.CheckpointWrite), op: answers(http.StatusOK, (*call).missingObjects)},
		{name: "objects.put", method: post, path: "threads/{thread}/blobs",
			access: inThread(auth.CheckpointWrite), op: takes(api.ObjectsType, http.StatusOK, (*call).putObjects)},
		{name: "objects.get", method: post, path: "threads/{thread}/blobs/get", strict: true, maxBody: digestJSON,
			access: inThread(auth.CheckpointRead), op: sends[api.GetObjects, []byte]((*call).getObjects)},
		{name: "blobs.get", method: get, path: "blobs/sandbox-files/sha256/{digest}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.Blob, []byte]((*call).getBlob)},
		{name: "blobs.head", method: head, path: "blobs/sandbox-files/sha256/{digest}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.Blob, []byte]((*call).getBlob)},
		{name: "blobs.put", method: put, path: "blobs/sandbox-files/sha256/{digest}",
			access: ofThreads(auth.CheckpointWrite), op: takes("application/octet-stream", http.StatusOK, (*call).putFile)},
		{name: "artifacts.get", method: get, path: "blobs/sandbox-artifacts/sha256/{digest}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.Blob, []byte]((*call).getBlob)},
		{name: "artifacts.head", method: head, path: "blobs/sandbox-artifacts/sha256/{digest}",
			access: ofThreads(auth.CheckpointRead), op: sends[api.Blob, []byte]((*call).getBlob)},
		{name: "artifacts.put", method: put, path: "blobs/sandbox-artifacts/sha256/{digest}",
			access: ofThreads(auth.CheckpointWrite), op: takes("application/octet-stream", http.StatusOK, (*call).putArtifact)},
		{name: "references.list", method: get, path: "blobs/references",
			access: ofThreads(auth.CheckpointRead), op: answers(http.StatusOK, (*call).listReferences)},

		{name: "events.list", method: get, path: "events", rows: true,
			access: ofPart(auth.OrgRead), op: sends[api.ListEvents, api.EventList]((*call).listEvents)},
		{name: "webhooks.list", method: get, legacy: "webhooks", path: "webhooks", rows: true,
			access: ofPart(auth.OrgRead, auth.RepoWrite), op: answers(http.StatusOK, (*call).listWebhooks)},
		{name: "webhooks.create", method: post, once: true, sealed: true, legacy: "webhooks", path: "webhooks", rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusCreated, (*call).createWebhook)},
		{name: "webhooks.get", method: get, path: "webhooks/{webhook}", rows: true,
			access: ofPart(auth.OrgRead, auth.RepoWrite), op: answers(http.StatusOK, (*call).getWebhook)},
		{name: "webhooks.update", method: patch, once: true, path: "webhooks/{webhook}", strict: true, rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusOK, (*call).updateWebhook)},
		{name: "webhooks.delete", method: del, once: true, path: "webhooks/{webhook}", rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusOK, (*call).deleteWebhook)},
		{name: "webhooks.rotate", method: post, once: true, sealed: true, path: "webhooks/{webhook}/rotate", rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusOK, (*call).rotateWebhook)},
		{name: "webhooks.deliveries", method: get, path: "webhooks/{webhook}/deliveries", rows: true,
			access: ofPart(auth.OrgRead, auth.RepoWrite), op: answers(http.StatusOK, (*call).listDeliveries)},
		{name: "webhooks.ping", method: post, once: true, path: "webhooks/{webhook}/ping", rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusOK, (*call).pingWebhook)},
		{name: "webhooks.redeliver", method: post, once: true, path: "webhooks/{webhook}/redeliver", rows: true,
			access: changesPart(auth.RepoWrite), op: answers(http.StatusOK, (*call).redeliver)},
	}
}
