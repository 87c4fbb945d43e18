package checkpoint_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/checkpoint/storetest"
)

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestMemoryKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(*testing.T) (checkpoint.Store, storetest.Clock) {
		c := &clock{now: time.Now()}
		return &checkpoint.Memory{Now: c.Now}, c
	})
}
