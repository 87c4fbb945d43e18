package repo

import (
	"context"
	"fmt"
	"sync"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// maxRules bounds the repositories whose protection rules are kept in memory.
const maxRules = 10_000

// ruleCache keeps the protection rules of repositories, each with the range of
// versions that it is known to hold for: writes of this process that leave the
// rules alone extend the range, so that a busy repository does not read them
// again and again. It is safe for concurrent use.
type ruleCache struct {
	mu    sync.Mutex
	repos map[meta.RepoID]*knownRules
}

type knownRules struct {
	rules    []policy.Protection
	from, to int64
	// ahead are versions above to that are known to have left the rules alone.
	ahead map[int64]struct{}
}

// of returns the rules of a repository at its version.
func (c *ruleCache) of(ctx context.Context, store meta.Repos, r meta.Repo) ([]policy.Protection, error) {
	c.mu.Lock()
	k, ok := c.repos[r.ID]
	if ok && k.from <= r.Version && r.Version <= k.to {
		rules := k.rules
		c.mu.Unlock()
		return rules, nil
	}
	c.mu.Unlock()
	rows, err := store.Protections(ctx, r.ID)
	if err != nil {
		return nil, fmt.Errorf("read protection rules: %w", err)
	}
	rules := make([]policy.Protection, len(rows))
	for i, row := range rows {
		rules[i].Pattern = row.Pattern
		for _, op := range row.Ops {
			rules[i].Ops = append(rules[i].Ops, policy.Op(op))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.repos[r.ID]; ok && k.from > r.Version {
		return rules, nil
	}
	if len(c.repos) >= maxRules || c.repos == nil {
		c.repos = make(map[meta.RepoID]*knownRules)
	}
	c.repos[r.ID] = &knownRules{rules: rules, from: r.Version, to: r.Version}
	return rules, nil
}

// applied notes that a Change of this process made version; changed says that
// it wrote the rules.
func (c *ruleCache) applied(id meta.RepoID, version int64, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.repos[id]
	switch {
	case !ok || version <= k.to:
	case changed || len(k.ahead) > 1000:
		delete(c.repos, id)
	case version == k.to+1:
		k.to++
		for {
			if _, ok := k.ahead[k.to+1]; !ok {
				break
			}
			k.to++
			delete(k.ahead, k.to)
		}
	default:
		if k.ahead == nil {
			k.ahead = make(map[int64]struct{})
		}
		k.ahead[version] = struct{}{}
	}
}
