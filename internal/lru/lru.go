// Package lru keeps values that can be made again, bounded by their weight in
// bytes; what was used longest ago goes first.
package lru

import (
	"container/list"
	"sync"
)

// overhead is what an item costs beside its value, in bytes.
const overhead = 160

// Cache is a bounded map. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	items map[K]*list.Element
	order *list.List // most recently used first; values are *item[K, V]
}

type item[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

// New returns a cache of at most limit bytes.
func New[K comparable, V any](limit int64) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, items: make(map[K]*list.Element), order: list.New()}
}

// Get returns the value of a key and marks it as used.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[key]
	if e == nil {
		var none V
		return none, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*item[K, V]).value, true
}

// Put keeps a value of the given weight, replacing the key's earlier one. A
// value that outweighs the whole cache is not kept.
func (c *Cache[K, V]) Put(key K, value V, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[key]; e != nil {
		c.drop(e)
	}
	bytes += overhead
	if bytes > c.limit {
		return
	}
	c.items[key] = c.order.PushFront(&item[K, V]{key, value, bytes})
	for c.bytes += bytes; c.bytes > c.limit; {
		c.drop(c.order.Back())
	}
}

// Remove forgets a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[key]; e != nil {
		c.drop(e)
	}
}

// Bytes returns the weight of all values.
func (c *Cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *Cache[K, V]) drop(e *list.Element) {
	it := c.order.Remove(e).(*item[K, V])
	delete(c.items, it.key)
	c.bytes -= it.bytes
}
