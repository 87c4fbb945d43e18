package service

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cairnstate/cairn/internal/meta"
)

// Rates bounds how many requests a second one process answers; a burst of two
// seconds' worth is allowed. Zero is no bound.
type Rates struct {
	Org     int // of all tokens of an org together
	Subject int // of all tokens of an org with one subject
}

// maxBuckets bounds the buckets that are kept: beyond it all begin anew, full.
const maxBuckets = 100_000

// limiter holds a token bucket for each org and subject.
type limiter struct {
	mu      sync.Mutex
	buckets map[bucket]*rate.Limiter
}

// bucket names a bucket: that of a subject, or of the whole org.
type bucket struct {
	org     meta.OrgID
	whole   bool
	subject string
}

// take refuses a request that is one too many.
func (l *limiter) take(r Rates, org meta.OrgID, subject string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The subject first: who is slowed takes nothing from the others.
	for _, b := range []struct {
		bucket
		rate int
	}{{bucket{org: org, subject: subject}, r.Subject}, {bucket{org: org, whole: true}, r.Org}} {
		if b.rate <= 0 {
			continue
		}
		known := l.buckets[b.bucket]
		if known == nil {
			if l.buckets == nil || len(l.buckets) >= maxBuckets {
				l.buckets = make(map[bucket]*rate.Limiter)
			}
			known = rate.NewLimiter(rate.Limit(b.rate), 2*b.rate)
			l.buckets[b.bucket] = known
		}
		if !known.AllowN(now, 1) {
			wait := time.Duration((1 - known.TokensAt(now)) / float64(b.rate) * float64(time.Second))
			e := Refuse(Limited, "too many requests: wait %s and try again", max(wait, time.Second).Round(time.Second))
			e.After = wait
			return e
		}
	}
	return nil
}
