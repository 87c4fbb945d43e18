package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/meta"
)

// Bounds of one transaction.
const (
	maxBatch      = 256
	maxBatchBytes = 8 << 20
)

// job is one Change, or some statements that must run in a write transaction.
type job struct {
	change  *meta.Change
	stmts   func(now int64) []stmt // when change is nil
	alone   bool                   // the statements must see what Changes before them wrote
	state   atomic.Uint32
	verdict meta.Verdict
	err     error
	done    chan struct{}
}

// The states of a job: whoever moves it out of jobQueued owns it.
const (
	jobQueued uint32 = iota
	jobTaken
	jobCancelled
)

// solo reports whether the job has a transaction of its own: rare writes that
// later Changes of a batch would have to be decided on top of.
func (j *job) solo() bool {
	c := j.change
	return j.alone || c != nil && (c.CreateOrg != nil || c.DeleteOrg || c.PutKey != nil || c.RemoveKey != "" ||
		c.SetMaxTTL != nil || c.PutSigningKey != nil || c.RemoveSigningKey != "" || c.SetServerKey != nil || c.PurgeRepo || !c.EmptyRepo.IsZero() ||
		c.Follow != nil || c.Thread != nil || soloContent(c.Content) ||
		c.SetQuota != nil || c.SetRepoQuota != nil || c.SetEphemeralAge != nil || c.SetRepoAge != nil)
}

// bytes is what the job weighs in a batch.
func (j *job) bytes() int {
	n := 0
	if c := j.change; c != nil {
		if c.AddPack != nil {
			n += len(c.AddPack.Data)
		}
		if c.ReplacePacks != nil {
			for i := range c.ReplacePacks.Add {
				n += len(c.ReplacePacks.Add[i].Data)
			}
		}
		if c.Content != nil {
			for i := range c.Content.AddPacks {
				n += len(c.Content.AddPacks[i].Data)
			}
		}
		for i := range c.Events {
			n += len(c.Events[i].Body)
		}
	}
	return n
}

// lanes runs jobs: those of one lane in order, as many at once as wait; those
// of different lanes beside each other.
type lanes struct {
	run   func(batch []*job)
	slots chan struct{} // bounds the transactions that run at once

	mu      sync.Mutex
	waiting map[int64][]*job // a lane that runs has an entry, perhaps empty
	closed  bool
	running sync.WaitGroup
}

func newLanes(parallel int, run func(batch []*job)) *lanes {
	return &lanes{run: run, slots: make(chan struct{}, parallel), waiting: make(map[int64][]*job)}
}

// do queues a job and waits until it has run. When ctx ends before a
// transaction took the job, nothing happens and the error is meta.ErrNotApplied.
func (l *lanes) do(ctx context.Context, lane int64, j *job) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", meta.ErrNotApplied, context.Cause(ctx))
	}
	j.done = make(chan struct{})
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("%w: the metadata store is closed", meta.ErrNotApplied)
	}
	queue, active := l.waiting[lane]
	l.waiting[lane] = append(queue, j)
	if !active {
		l.running.Add(1)
		go l.drain(lane)
	}
	l.mu.Unlock()

	select {
	case <-j.done:
	case <-ctx.Done():
		if j.state.CompareAndSwap(jobQueued, jobCancelled) {
			return fmt.Errorf("%w: %w", meta.ErrNotApplied, context.Cause(ctx))
		}
		<-j.done
	}
	return j.err
}

// drain runs batches of a lane until none waits.
func (l *lanes) drain(lane int64) {
	defer l.running.Done()
	for more := true; more; {
		l.slots <- struct{}{}
		var batch []*job
		if batch, more = l.take(lane); len(batch) > 0 {
			l.run(batch)
		}
		<-l.slots
		for _, j := range batch {
			close(j.done)
		}
	}
}

// take claims the next batch of a lane; more is false when the lane has ended.
func (l *lanes) take(lane int64) (batch []*job, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.waiting[lane]
	if len(queue) == 0 {
		delete(l.waiting, lane)
		return nil, false
	}
	size := 0
	for len(queue) > 0 && len(batch) < maxBatch && size < maxBatchBytes {
		j := queue[0]
		if len(batch) > 0 && j.solo() {
			break
		}
		queue[0] = nil
		queue = queue[1:]
		if !j.state.CompareAndSwap(jobQueued, jobTaken) {
			continue
		}
		batch = append(batch, j)
		size += j.bytes()
		if j.solo() {
			break
		}
	}
	l.waiting[lane] = queue
	return batch, true
}

// close refuses new jobs and waits for those that were queued.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}
