package content

import (
	"context"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
)

// deletions is a blob store that removes retired blobs once no operation that began
// before is running, as the sweep of a server does.
type deletions struct {
	blob.Store
	mu      sync.Mutex
	next    int
	running map[int]time.Time
}

func (d *deletions) begin(ctx context.Context) (context.Context, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		d.running = make(map[int]time.Time)
	}
	d.next++
	id := d.next
	d.running[id] = time.Now()
	return ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, id)
	}, nil
}

// free removes what nobody can be reading.
func (d *deletions) free(w *world) error {
	d.mu.Lock()
	oldest := time.Now()
	for _, began := range d.running {
		if began.Before(oldest) {
			oldest = began
		}
	}
	d.mu.Unlock()
	retired, err := w.meta.Retired(w.ctx, oldest.Add(-time.Microsecond), 10000)
	if err != nil {
		return err
	}
	var keys []string
	for _, r := range retired {
		if err := d.Delete(w.ctx, blob.Key(r.Key)); err != nil {
			return err
		}
		keys = append(keys, r.Key)
	}
	return w.meta.ForgetRetired(w.ctx, keys)
}

// indexAll makes an index file of all packs that have none, however few.
func (w *world) indexAll(rows *meta.ContentView) error {
	var from []merged
	write := &meta.ContentIndexWrite{}
	for _, p := range uncovered(rows) {
		if p.Key == "" {
			continue
		}
		part, err := w.packTable(w.ctx, &p)
		if corrupt(err) {
			continue // it was replaced meanwhile
		}
		if err != nil {
			return err
		}
		from = append(from, merged{table: part.table})
		write.Covers = append(write.Covers, p.ID)
	}
	for i := range rows.Indexes {
		if len(rows.Indexes) < 3 {
			break
		}
		t, err := w.indexTable(w.ctx, &rows.Indexes[i])
		if corrupt(err) {
			return nil
		}
		if err != nil {
			return err
		}
		from = append(from, merged{t, setOf(rows.Indexes[i].Dead)})
		write.Replaces = append(write.Replaces, meta.ContentIndexSeen{ID: rows.Indexes[i].ID, Dead: len(rows.Indexes[i].Dead)})
	}
	if len(write.Covers) == 0 {
		return nil
	}
	_, err := w.addIndex(w.ctx, w.org, from, write)
	if corrupt(err) {
		return nil
	}
	return err
}
