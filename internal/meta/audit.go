package meta

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// MaxAgent bounds what is kept of an agent, in bytes.
const MaxAgent = 200

// Action is one thing that a Change does to an org or a repository, changes of
// refs apart.
type Action struct {
	Name   string // for example "repo.create"
	Detail string // what exactly: a name, a fingerprint, an id; never a secret
}

// Actions names what a Change does. Engines write a row of the audit log for
// each, so that no way of doing it is left out; changes of refs have the ref log.
func (c *Change) Actions() []Action {
	var out []Action
	add := func(done bool, name, detail string) {
		if done {
			out = append(out, Action{name, detail})
		}
	}
	if c.CreateOrg != nil {
		add(true, "org.create", c.CreateOrg.Name)
	}
	add(c.DeleteOrg, "org.delete", "")
	if c.PutKey != nil {
		add(true, "key.add", c.PutKey.Fingerprint)
	}
	add(c.RemoveKey != "", "key.remove", c.RemoveKey)
	if c.SetMaxTTL != nil {
		add(true, "org.limit", c.SetMaxTTL.String())
	}
	for _, f := range c.RaiseFloors {
		add(true, "floor.raise", string(f.Kind)+" "+f.Target+" "+strconv.FormatInt(f.NotBefore, 10))
	}
	if q := c.SetQuota; q != nil {
		add(true, "org.quota", fmt.Sprintf("%d bytes, %d a repository, %d repositories", q.Bytes, q.RepoBytes, q.Repos))
	}
	if c.SetEphemeralAge != nil {
		add(true, "org.retention", c.SetEphemeralAge.String())
	}
	if c.PutSigningKey != nil {
		add(true, "signing_key.add", c.PutSigningKey.Fingerprint)
	}
	add(c.RemoveSigningKey != "", "signing_key.remove", c.RemoveSigningKey)
	if k := c.SetServerKey; k != nil {
		add(k.Fingerprint != "", "signing_key.sign", k.Fingerprint)
		add(k.Fingerprint == "", "signing_key.stop", "")
	}
	if w := c.CreateWebhook; w != nil {
		add(true, "webhook.create", strconv.FormatInt(int64(w.ID), 10))
	}
	if w := c.UpdateWebhook; w != nil {
		add(true, "webhook.update", strconv.FormatInt(int64(w.ID), 10))
	}
	add(c.DeleteWebhook != 0, "webhook.delete", strconv.FormatInt(int64(c.DeleteWebhook), 10))
	if r := c.CreateRepo; r != nil {
		add(r.Source == 0, "repo.create", r.Name)
		add(r.Source != 0, "repo.fork", r.Name)
	}
	add(c.DeleteRepo, "repo.delete", "")
	add(c.PurgeRepo, "repo.purge", "")
	add(c.UndeleteRepo, "repo.undelete", "")
	add(!c.EmptyRepo.IsZero(), "repo.empty", "")
	if c.SetRepoQuota != nil {
		add(true, "repo.quota", strconv.FormatInt(*c.SetRepoQuota, 10))
	}
	if c.SetRepoAge != nil {
		add(true, "repo.retention", c.SetRepoAge.String())
	}
	add(c.SetDefaultBranch != "", "repo.default_branch", c.SetDefaultBranch)
	if c.SetProtections != nil {
		add(true, "repo.protect", strconv.Itoa(len(*c.SetProtections))+" rules")
	}
	if t := c.Thread; t != nil {
		add(t.ForkOf != nil, "thread.fork", t.Name)
		add(t.DeleteThread, "thread.delete", t.Name)
		add(t.DeleteHead+t.Delete != "", "checkpoint.delete", t.DeleteHead+t.Delete)
		add(len(t.Prune) > 0, "thread.prune", t.Name)
		add(t.SetPinned != nil && t.SetPinned.Pinned, "checkpoint.pin", pinned(t))
		add(t.SetPinned != nil && !t.SetPinned.Pinned, "checkpoint.unpin", pinned(t))
	}
	if f := c.Follow; f != nil {
		add(f.PutCredential != nil && !f.Replace, "credential.create", "")
		add(f.PutCredential != nil && f.Replace, "credential.update", "")
		add(f.DeleteCredential != 0, "credential.delete", "")
		add(f.PutUpstream != nil, "upstream.follow", "")
		add(f.Detach, "upstream.detach", "")
		add(f.AddSync != nil, "upstream.pull", "")
	}
	return out
}

// AuditEntry is one line of the audit log: an action, or the change of a ref.
type AuditEntry struct {
	At       time.Time
	Repo     RepoID // 0 for an action on the org
	RepoName string // "" when the repository is purged
	// Action is "ref" for the change of Ref from Old to New.
	Action, Detail string
	Ref            string
	Old, New       object.ID
	Subject        string // "" for an operator
	Route, Agent   string
	// Seq tells entries of one time and repository apart.
	Seq int64
}

// AuditQuery selects a page of an org's audit log, newest first.
type AuditQuery struct {
	Org     OrgID
	Repo    RepoID // 0 for all
	Subject string // "" for all
	Since   time.Time
	// Before is the last entry of the page before; nil begins with the newest.
	Before *AuditEntry
	Limit  int
}

func pinned(t *ThreadChange) string {
	if t.SetPinned == nil {
		return ""
	}
	return t.SetPinned.ID
}
