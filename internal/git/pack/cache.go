package pack

import (
	"container/list"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Cache keeps inflated objects that deltas were applied to, bounded by bytes.
// Packs share one; it is safe for concurrent use.
type Cache struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	items map[cacheKey]*list.Element
	order *list.List // most recently used first; values are *cacheItem
}

type cacheKey struct {
	pack   *packData
	offset int64
}

type cacheItem struct {
	key  cacheKey
	typ  object.Type
	data []byte
}

// cacheOverhead is what an item costs beside its data, in bytes.
const cacheOverhead = 200

// NewCache returns a cache that holds at most limit bytes.
func NewCache(limit int64) *Cache {
	return &Cache{limit: limit, items: map[cacheKey]*list.Element{}, order: list.New()}
}

// get returns an object's content, which must not be modified.
func (c *Cache) get(key cacheKey) (object.Type, []byte, bool) {
	if c == nil {
		return 0, nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[key]
	if e == nil {
		return 0, nil, false
	}
	c.order.MoveToFront(e)
	item := e.Value.(*cacheItem)
	return item.typ, item.data, true
}

// put keeps data, which must not change afterwards, unless it would take more
// than a quarter of the cache.
func (c *Cache) put(key cacheKey, t object.Type, data []byte) {
	if c == nil || int64(len(data)) > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[key] != nil {
		return
	}
	c.items[key] = c.order.PushFront(&cacheItem{key, t, data})
	c.bytes += int64(len(data)) + cacheOverhead
	for c.bytes > c.limit {
		last := c.order.Back()
		item := c.order.Remove(last).(*cacheItem)
		delete(c.items, item.key)
		c.bytes -= int64(len(item.data)) + cacheOverhead
	}
}
