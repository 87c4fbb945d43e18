package auth

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

type digest = [sha256.Size]byte

// cache remembers the principals of verified tokens, least recently used out first. It holds digests, never tokens.
type cache struct {
	mu      sync.Mutex
	size    int
	entries map[digest]*list.Element
	recent  list.List // of *entry, most recent first
}

type entry struct {
	sum       digest
	org       string
	version   int64
	principal *Principal
}

func newCache(size int) *cache {
	return &cache{size: size, entries: make(map[digest]*list.Element)}
}

// get returns the principal verified under this version of org, or nil. An entry of another version is dropped.
func (c *cache) get(sum digest, org string, version int64) *Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.entries[sum]
	if !ok {
		return nil
	}
	e := el.Value.(*entry)
	if e.org != org || e.version != version {
		c.remove(el)
		return nil
	}
	c.recent.MoveToFront(el)
	return e.principal
}

// peek returns the principal under any version, or nil.
func (c *cache) peek(sum digest) *Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[sum]; ok {
		return el.Value.(*entry).principal
	}
	return nil
}

func (c *cache) put(sum digest, org string, version int64, p *Principal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[sum]; ok {
		c.remove(el)
	}
	if c.recent.Len() >= c.size {
		c.remove(c.recent.Back())
	}
	c.entries[sum] = c.recent.PushFront(&entry{sum, org, version, p})
}

func (c *cache) remove(el *list.Element) {
	delete(c.entries, el.Value.(*entry).sum)
	c.recent.Remove(el)
}
