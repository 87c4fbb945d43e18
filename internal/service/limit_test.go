package service

import (
	"errors"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	var l limiter
	now := time.Unix(1_800_000_000, 0)
	allowed := func(n int, subject string) (passed int, last *Error) {
		for range n {
			err := l.take(Rates{Org: 30, Subject: 10}, 1, subject, now)
			if err == nil {
				passed++
			} else if !errors.As(err, &last) || last.Code != Limited || last.Status() != 429 {
				t.Errorf("refused with %v", err)
			}
		}
		return passed, last
	}
	n, refused := allowed(50, "ann")
	if n != 20 || refused == nil || refused.RetryAfter() != 1 {
		t.Errorf("%d requests of one subject at once, want its burst of 20; %+v", n, refused)
	}
	if n, _ := allowed(20, "bob"); n != 20 {
		t.Errorf("%d requests of another subject, want 20", n)
	}
	if n, _ := allowed(50, "eve"); n != 20 {
		t.Errorf("%d requests before the org has its 60, want 20", n)
	}
	if n, _ := allowed(5, "dan"); n != 0 {
		t.Errorf("%d requests beyond those of the org", n)
	}
	now = now.Add(time.Second)
	if n, _ := allowed(50, "ann"); n != 10 {
		t.Errorf("%d requests a second later, want 10", n)
	}
}
