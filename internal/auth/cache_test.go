package auth

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCacheHitSkipsTheSignature(t *testing.T) {
	v := newVerifier(t, Options{})
	raw := es256(t, goodClaims())
	first, err := v.Verify(raw, acme(t), testNow)
	if err != nil {
		t.Fatal(err)
	}
	wrong := acme(t, registered(t, "", "P-256 other"))
	again, err := v.Verify(raw, wrong, testNow)
	if err != nil || again != first {
		t.Errorf("same version: got %p, %v, want the remembered %p", again, err, first)
	}
	wrong.Version = 2
	p, err := v.Verify(raw, wrong, testNow)
	expect(t, raw, p, err, TokenSignature)
	p, err = v.Verify(raw, OrgKeys{Name: "acme", Version: 1}, testNow)
	expect(t, raw, p, err, TokenSignature)
}

func TestCacheIsPerOrganisation(t *testing.T) {
	v := newVerifier(t, Options{})
	raw := es256(t, goodClaims())
	if _, err := v.Verify(raw, acme(t), testNow); err != nil {
		t.Fatal(err)
	}
	other := acme(t)
	other.Name = "other"
	p, err := v.Verify(raw, other, testNow)
	expect(t, raw, p, err, TokenSignature)
}

func TestCacheChecksExpiryEachTime(t *testing.T) {
	v := newVerifier(t, Options{Grace: 10 * time.Second})
	raw := es256(t, goodClaims())
	for after, want := range map[time.Duration]Code{
		0: "", 3600 * time.Second: "", 3609 * time.Second: "", 3610 * time.Second: TokenExpired,
	} {
		p, err := v.Verify(raw, acme(t), testNow.Add(after))
		expect(t, raw, p, err, want)
	}
}

func TestCacheDoesNotRememberRefusals(t *testing.T) {
	v := newVerifier(t, Options{})
	raw := es256(t, goodClaims().with("nbf", testNow.Unix()+100))
	p, err := v.Verify(raw, acme(t), testNow)
	expect(t, raw, p, err, TokenNotYetValid)
	p, err = v.Verify(raw, acme(t), testNow.Add(100*time.Second))
	expect(t, raw, p, err, "")
}

func TestCacheIsBounded(t *testing.T) {
	v := newVerifier(t, Options{CacheSize: 3})
	raws := make([]string, 5)
	for i := range raws {
		raws[i] = es256(t, goodClaims().with("sub", fmt.Sprint(i)))
	}
	remembered := func() (out string) {
		for i, raw := range raws {
			if v.cache.entries[sumOf(raw)] != nil {
				out += fmt.Sprint(i)
			}
		}
		return out
	}
	for _, step := range []struct {
		use  int
		want string
	}{{0, "0"}, {1, "01"}, {2, "012"}, {0, "012"}, {3, "023"}, {4, "034"}} {
		if _, err := v.Verify(raws[step.use], acme(t), testNow); err != nil {
			t.Fatal(err)
		}
		if got := remembered(); got != step.want {
			t.Errorf("after token %d the cache holds %s, want %s", step.use, got, step.want)
		}
	}
	large := es256(t, goodClaims().with("sub", strings.Repeat("x", maxCachedToken)))
	if _, err := v.Verify(large, acme(t), testNow); err != nil {
		t.Fatal(err)
	}
	if v.cache.entries[sumOf(large)] != nil || v.cache.recent.Len() != 3 {
		t.Error("a token too large for the cache is in it")
	}
}

func TestCacheConcurrently(t *testing.T) {
	v := newVerifier(t, Options{CacheSize: 2})
	raws := []string{es256(t, goodClaims()), es256(t, goodClaims().with("sub", "b")), es256(t, goodClaims().with("sub", "c"))}
	org := acme(t)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				raw := raws[(g+i)%len(raws)]
				keys := org
				keys.Version = int64(i % 3)
				p, err := v.Verify(raw, keys, testNow)
				if err != nil || p.Org != "acme" {
					errs <- errors.Join(err, fmt.Errorf("principal %v", p))
					return
				}
				if _, _, _, _, err := v.Peek(raw); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if n := v.cache.recent.Len(); n > 2 || n != len(v.cache.entries) {
		t.Errorf("cache holds %d and %d entries, want at most 2", n, len(v.cache.entries))
	}
}

func BenchmarkVerify(b *testing.B) {
	raw := es256(b, goodClaims())
	org := acme(b)
	b.Run("hit", func(b *testing.B) {
		v := newVerifier(b, Options{})
		for b.Loop() {
			if _, err := v.Verify(raw, org, testNow); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("miss", func(b *testing.B) {
		v := newVerifier(b, Options{})
		for b.Loop() {
			org.Version++
			if _, err := v.Verify(raw, org, testNow); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("peek", func(b *testing.B) {
		v := newVerifier(b, Options{})
		for b.Loop() {
			if _, _, _, _, err := v.Peek(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
