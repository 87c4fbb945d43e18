package webhook

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
)

// Bounds of one worker.
const (
	maxWindow = 256 // events that are looked ahead
	// An event that keeps failing holds up its ref only, until this many events
	// wait behind it, or this many after it are settled.
	maxWaiting = 4096
	maxAhead   = 10_000
	maxFlying  = 8 // attempts at once, each of another ref
	saveEvery  = 250 * time.Millisecond
	holdIdle   = 10 * time.Second // that the lease is kept with nothing to do
	endWait    = 5 * time.Second  // to save progress at the end
)

// worker delivers to one endpoint while it has the lease. All but the attempts
// runs in one goroutine.
type worker struct {
	d    *Deliverer
	id   meta.WebhookID
	hook meta.Webhook

	fence     int64
	heldUntil time.Time // no attempt outlives it
	renewAt   time.Time

	window  []*delivery // what is not settled, by position
	read    int64       // position up to which events were read
	place   int64       // of the last that was read, when the endpoint is for one repository
	more    bool        // there may be events after read
	starved bool        // nothing in the window can be attempted now
	flying  int
	settled chan *delivery
	earlier map[int64]meta.Delivery // what former workers did after the position
	ahead   map[int64]struct{}      // settled after the position

	changed map[int64]meta.Delivery // to be saved
	saved   int64                   // position that is saved
	savedAt time.Time
	failing time.Time
	dirty   bool // failing is to be saved

	backlog, oldest atomic.Int64 // for figures; oldest in Unix microseconds
}

// delivery is one event on its way.
type delivery struct {
	meta.Delivery
	event   meta.Event
	since   time.Time // when it happened
	lane    string    // events of one lane are delivered in order
	bare    bool      // the event's body is still in the store
	flying  bool
	outcome Outcome
}

func newWorker(d *Deliverer, id meta.WebhookID) *worker {
	return &worker{
		d: d, id: id, settled: make(chan *delivery, maxFlying),
		earlier: make(map[int64]meta.Delivery), changed: make(map[int64]meta.Delivery), ahead: make(map[int64]struct{}),
	}
}

// errMoved says that an endpoint is for other events than it was: another worker
// goes on with those.
var errMoved = errors.New("the endpoint is for another repository")

// wants reports whether an endpoint is to get an event about ref.
func wants(w meta.Webhook, e meta.Event, ref string) bool {
	if w.Repo != 0 && w.Repo != e.Repo || len(w.Events) > 0 && !slices.Contains(w.Events, e.Type) {
		return false
	}
	_, ephemeral := refname.SplitEphemeral(ref)
	return !ephemeral || !w.MuteEphemeral
}

// renew takes or extends the lease, with what the endpoint is like now.
func (w *worker) renew(ctx context.Context) error {
	start := time.Now()
	lease, err := w.d.cfg.Feed.LeaseWebhook(ctx, w.id, w.d.cfg.Process, w.d.cfg.Lease)
	// The next fence is this worker's own, taken after its lease had run out.
	if err == nil && w.fence != 0 && lease.Fence > w.fence+1 {
		err = meta.ErrNotFound
	}
	if err != nil {
		return err
	}
	if w.fence == 0 {
		w.read, w.saved, w.failing = lease.Webhook.Position, lease.Webhook.Position, lease.Webhook.FailingSince
	} else if lease.Webhook.Repo != w.hook.Repo {
		return errMoved
	}
	w.hook, w.fence = lease.Webhook, lease.Fence
	w.heldUntil, w.renewAt = start.Add(w.d.cfg.Lease), start.Add(w.d.cfg.Lease/3)
	return nil
}

// run delivers until there was nothing to do for a while, the lease is lost, or
// ctx ends.
func (w *worker) run(ctx context.Context) (err error) {
	flights, land := context.WithCancel(ctx)
	defer func() {
		land()
		for w.flying > 0 {
			if d := <-w.settled; d.outcome.Delivered {
				w.land(d)
			} else {
				w.flying-- // it was cut off: it did not fail
			}
		}
		err = errors.Join(err, w.end(ctx))
	}()
	earlier, err := w.d.cfg.Feed.Deliveries(ctx, meta.DeliveryQuery{Webhook: w.id, After: w.read, Limit: 2 * maxAhead})
	if err != nil {
		return err
	}
	for _, d := range earlier {
		w.earlier[d.Position] = d
	}
	if w.hook.Repo != 0 {
		if w.place, err = w.d.cfg.Feed.PlaceAt(ctx, w.hook.Org, w.hook.Repo, w.read); err != nil {
			return err
		}
	}
	wake := make(chan struct{}, 1)
	defer w.d.cfg.Feed.Watch(w.hook.Org, wake)()
	w.more = true
	idleSince := time.Now()
	for {
		if err := w.fill(ctx); err != nil {
			return err
		}
		next := w.launch(flights)
		if len(w.window) > 0 {
			idleSince = time.Now()
		}
		if gone, err := w.keep(ctx); gone || err != nil {
			return err
		}
		w.measure()
		if time.Since(idleSince) > holdIdle {
			return nil
		}
		if w.more && w.room() {
			continue
		}
		timer := time.NewTimer(time.Until(w.soonest(next, idleSince)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-wake:
			w.more = true
		case d := <-w.settled:
			w.land(d)
			for len(w.settled) > 0 {
				w.land(<-w.settled)
			}
			if w.disabling() {
				timer.Stop()
				return nil
			}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// soonest is when something is to be done although nothing happens.
func (w *worker) soonest(next, idleSince time.Time) time.Time {
	at := w.renewAt
	if !next.IsZero() && next.Before(at) {
		at = next
	}
	if w.unsaved() {
		if save := w.savedAt.Add(saveEvery); save.Before(at) {
			at = save
		}
	}
	if idle := idleSince.Add(holdIdle + time.Millisecond); len(w.window) == 0 && idle.Before(at) {
		at = idle
	}
	return at
}

// room reports whether more events may be read: when few wait, or when those
// that wait are all behind ones that keep failing.
func (w *worker) room() bool {
	if len(w.ahead) >= maxAhead {
		return false
	}
	return len(w.window) < maxWindow/2 || w.starved && len(w.window) < maxWaiting
}

// fill reads events into the window.
func (w *worker) fill(ctx context.Context) error {
	for w.more && w.room() {
		const limit = maxWindow / 2
		w.starved = false
		q := meta.EventQuery{Org: w.hook.Org, Repo: w.hook.Repo, After: w.read, Limit: limit}
		if q.Repo != 0 {
			q.After = w.place
		}
		page, err := w.d.cfg.Feed.EventPage(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			w.read, w.place = e.Position, e.Place
			ref := events.Ref(e)
			before, tried := w.earlier[e.Position]
			delete(w.earlier, e.Position)
			if tried && before.State != meta.DeliveryWaiting {
				w.ahead[e.Position] = struct{}{}
				continue
			}
			if !wants(w.hook, e, ref) {
				continue
			}
			d := &delivery{event: e, since: e.At, lane: strconv.FormatInt(int64(e.Repo), 16) + " " + ref}
			d.Delivery = meta.Delivery{Position: e.Position, Type: e.Type}
			d.Attempts, d.Next = before.Attempts, before.Next
			if d.bare = len(w.window) >= maxWindow; d.bare {
				d.event.Body = nil
			}
			w.window = append(w.window, d)
		}
		w.more = len(page.Events) == limit
		if w.more && w.unsaved() && time.Since(w.savedAt) > saveEvery {
			return nil // a long stretch of events for others
		}
	}
	return nil
}

// launch starts the attempts that are due, the oldest events first and of each
// lane only the first. It returns when the next one is due.
func (w *worker) launch(ctx context.Context) (next time.Time) {
	now := time.Now()
	w.starved = false
	busy := make(map[string]bool)
	for _, d := range w.window {
		if w.flying >= maxFlying {
			return time.Time{}
		}
		if busy[d.lane] {
			continue
		}
		busy[d.lane] = true
		if d.flying {
			continue
		}
		if d.Next.After(now) {
			if next.IsZero() || d.Next.Before(next) {
				next = d.Next
			}
			continue
		}
		d.flying = true
		w.flying++
		hook, until := w.hook, w.heldUntil
		go func() {
			attempt, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			d.outcome = w.attempt(attempt, hook, d)
			w.settled <- d
		}()
	}
	w.starved = true
	return next
}

// attempt makes one attempt. It changes of d only what nobody else looks at
// while it flies.
func (w *worker) attempt(ctx context.Context, hook meta.Webhook, d *delivery) Outcome {
	if d.bare {
		rows, err := w.d.cfg.Feed.Events(ctx, hook.Org, d.Position-1, 1)
		if err != nil || len(rows) == 0 || rows[0].Position != d.Position {
			return Outcome{Error: "the event cannot be read"}
		}
		d.event, d.bare = rows[0], false
	}
	return w.d.cfg.Sender.Send(ctx, hook, d.event)
}

// land takes the outcome of an attempt.
func (w *worker) land(d *delivery) {
	d.flying = false
	w.flying--
	now := time.Now()
	c := &w.d.counts
	c.attempts.Add(1)
	d.Attempts++
	d.Status, d.Error, d.At, d.Next = d.outcome.Status, d.outcome.Error, now, time.Time{}
	switch {
	case d.outcome.Delivered:
		d.State = meta.DeliveryDelivered
		w.dirty = w.dirty || !w.failing.IsZero()
		w.failing = time.Time{}
		if d.Attempts > 1 {
			w.hurry(now)
		}
	default:
		c.failures.Add(1)
		if w.failing.IsZero() {
			w.failing, w.dirty = now, true
		}
		if d.Attempts > len(w.d.cfg.Schedule) {
			d.State = meta.DeliveryFailed
			c.givenUp.Add(1)
			break
		}
		d.State = meta.DeliveryWaiting
		after := w.d.cfg.Schedule[d.Attempts-1]
		d.Next = now.Add(after - after/5 + rand.N(2*after/5+1))
	}
	w.changed[d.Position] = d.Delivery
	if d.State != meta.DeliveryWaiting {
		w.window = slices.DeleteFunc(w.window, func(o *delivery) bool { return o == d })
		w.ahead[d.Position] = struct{}{}
	}
}

// hurry makes what waits due: an event that had failed went through, so the
// endpoint is back.
func (w *worker) hurry(now time.Time) {
	for _, d := range w.window {
		if !d.flying && d.Next.After(now) {
			d.Next = now
		}
	}
}

// position is the last event up to which all are settled.
func (w *worker) position() int64 {
	if len(w.window) > 0 {
		return w.window[0].Position - 1
	}
	return w.read
}

func (w *worker) unsaved() bool {
	return len(w.changed) > 0 || w.dirty || w.position() > w.saved
}

// keep renews the lease and saves progress when it is time. gone says that the
// lease is lost.
func (w *worker) keep(ctx context.Context) (gone bool, err error) {
	if time.Now().After(w.renewAt) {
		err = w.renew(ctx)
	}
	if err == nil && w.unsaved() && time.Since(w.savedAt) >= saveEvery {
		err = w.save(ctx, meta.DeliveryProgress{})
	}
	if errors.Is(err, meta.ErrNotFound) || errors.Is(err, errMoved) {
		return true, nil
	}
	return false, err
}

// save records progress; p says what else.
func (w *worker) save(ctx context.Context, p meta.DeliveryProgress) error {
	p.Webhook, p.Fence, p.Position, p.FailingSince = w.id, w.fence, w.position(), w.failing
	for _, d := range w.changed {
		p.Deliveries = append(p.Deliveries, d)
	}
	if err := w.d.cfg.Feed.SaveDeliveries(ctx, p); err != nil {
		return err
	}
	clear(w.changed)
	maps.DeleteFunc(w.ahead, func(position int64, _ struct{}) bool { return position <= p.Position })
	w.saved, w.savedAt, w.dirty = p.Position, time.Now(), false
	return nil
}

// disabling reports whether all attempts failed for so long that the endpoint is
// to be disabled.
func (w *worker) disabling() bool {
	return !w.failing.IsZero() && time.Since(w.failing) >= w.d.cfg.DisableAfter
}

// end saves progress for the last time and gives the lease back, unless another
// worker has it.
func (w *worker) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	p := meta.DeliveryProgress{Release: true}
	if w.disabling() {
		p.Disable = "every delivery failed since " + events.Stamp(w.failing)
		w.d.counts.disabled.Add(1)
	}
	if err := w.save(ctx, p); err != nil && !errors.Is(err, meta.ErrNotFound) {
		return err
	}
	return nil
}

// measure updates the figures.
func (w *worker) measure() {
	w.backlog.Store(int64(len(w.window)))
	if len(w.window) > 0 {
		w.oldest.Store(w.window[0].since.UnixMicro())
	} else {
		w.oldest.Store(0)
	}
}
