package checkpoint

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Durations of leases.
const (
	DefaultLease = 120 * time.Second
	MinLease     = time.Second
	MaxLease     = time.Hour
)

// Granted is a lease that was acquired or renewed.
type Granted struct {
	Lease
	Expires time.Time // by the clock of the server
	// RenewAfter is when its holder had better renew it.
	RenewAfter time.Duration
}

// duration bounds how long a lease is asked for; 0 takes the default.
func duration(asked time.Duration) time.Duration {
	if asked == 0 {
		return DefaultLease
	}
	return min(max(asked, MinLease), MaxLease)
}

// renewAfter leaves time for two more attempts: 45 of 120 seconds.
func renewAfter(d time.Duration) time.Duration { return d * 3 / 8 }

// Acquire takes the lease of a thread. It does not wait: the code WriterConflict
// says that somebody holds it. token "" makes one; who asks twice with the same
// token has one lease.
func (e *Engine) Acquire(ctx context.Context, c Caller, thread, token string, asked time.Duration) (Granted, error) {
	if err := CheckThread(thread); err != nil {
		return Granted{}, err
	}
	d := duration(asked)
	l := Lease{Token: token}
	if token == "" {
		l.Token = newOwner()
	}
	v, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Acquire: &meta.AcquireLease{Owner: l.writer().Owner, Duration: d}}))
	if err != nil {
		return Granted{}, err
	}
	l.Fence = v.Thread.Fence
	return Granted{l, v.Thread.LeaseUntil, renewAfter(d)}, nil
}

// Renew lets a lease last from now on. One that has ended cannot be renewed.
func (e *Engine) Renew(ctx context.Context, c Caller, thread string, l Lease, asked time.Duration) (Granted, error) {
	if err := CheckThread(thread); err != nil {
		return Granted{}, err
	}
	d := duration(asked)
	v, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Writer: l.writer(), Renew: d}))
	if err != nil {
		return Granted{}, err
	}
	return Granted{l, v.Thread.LeaseUntil, renewAfter(d)}, nil
}

// Release gives a lease back. One that has ended, or is another's, is left alone.
func (e *Engine) Release(ctx context.Context, c Caller, thread string, l Lease) error {
	if err := CheckThread(thread); err != nil {
		return err
	}
	_, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Writer: l.writer(), Release: true}))
	return err
}

// newOwner returns a token for a lease: a random UUID, as in TanStack AI.
func newOwner() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
