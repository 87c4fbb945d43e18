package checkpoint

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/tree"
)

// KeyedStore keeps bytes by key, as a bucket does. It may be used at the same time.
type KeyedStore interface {
	// Has reports whether Get would find the key.
	Has(ctx context.Context, key string) (bool, error)
	// Get returns what was put under the key, and false if nothing was.
	Get(ctx context.Context, key string) ([]byte, bool, error)
	// Put keeps b, which is valid during the call only. Equal keys have equal bytes.
	Put(ctx context.Context, key string, b []byte) error
}

// keyPrefix is where a KeyedStore has objects.
const keyPrefix = "sandbox-files/sha256/"

// keyedParallel is how many keys are asked for at a time.
const keyedParallel = 16

// Keyed makes Blobs of anything that has, gets and puts bytes by key: each object under "sandbox-files/sha256/" and its
// digest in hex. Whoever removes keys must keep those that a checkpoint's objects name, and those of running captures.
func Keyed(store KeyedStore) Blobs { return &keyed{store} }

type keyed struct{ store KeyedStore }

func (k *keyed) Missing(ctx context.Context, _ Scope, digests []Digest) ([]Digest, error) {
	has := make([]bool, len(digests))
	err := parallel(ctx, len(digests), func(ctx context.Context, i int) (err error) {
		has[i], err = k.store.Has(ctx, keyPrefix+digests[i].String())
		return err
	})
	var missing []Digest
	for i, d := range digests {
		if !has[i] {
			missing = append(missing, d)
		}
	}
	return missing, err
}

func (k *keyed) Put(ctx context.Context, _ Scope, objects []Object) error {
	return parallel(ctx, len(objects), func(ctx context.Context, i int) error {
		return k.store.Put(ctx, keyPrefix+objects[i].Digest.String(), objects[i].Bytes)
	})
}

func (k *keyed) Fetch(ctx context.Context, _ Scope, digests []Digest, fn func(Digest, []byte) error) error {
	var mu sync.Mutex
	missing := &MissingBlobError{}
	err := parallel(ctx, len(digests), func(ctx context.Context, i int) error {
		b, ok, err := k.store.Get(ctx, keyPrefix+digests[i].String())
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if !ok {
			missing.Digests = append(missing.Digests, digests[i])
			return nil
		}
		return fn(digests[i], b)
	})
	if err == nil && len(missing.Digests) > 0 {
		return missing
	}
	return err
}

// parallel calls fn for 0 to n-1, some at a time, and returns the first error.
func parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, keyedParallel) {
		wg.Go(func() {
			for i := range next {
				if err := fn(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// source reads the objects of a thread from Blobs, for package tree.
type source struct {
	blobs Blobs
	at    Scope

	mu   sync.Mutex
	got  Fetched
	told func(Fetched) // or nil
}

// Fetched counts objects that were fetched.
type Fetched struct {
	Objects uint64
	Bytes   uint64
}

// Get gives what digests name. See tree.Source.
func (s *source) Get(ctx context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	if s.told == nil {
		return s.blobs.Fetch(ctx, s.at, digests, fn)
	}
	return s.blobs.Fetch(ctx, s.at, digests, func(d tree.Digest, b []byte) error {
		s.count(len(b))
		return fn(d, b)
	})
}

func (s *source) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got.Objects++
	s.got.Bytes += uint64(n)
	s.told(s.got)
}

// newSource returns the objects of a thread. told, if given, is called with what was fetched so far.
func newSource(blobs Blobs, at Scope, told func(Fetched)) tree.Source {
	s := &source{blobs: blobs, at: at, told: told}
	if _, ok := blobs.(*Remote); ok {
		return &checked{s}
	}
	return s
}

// checked is the source of a Remote, which compares what it gives with the digests.
type checked struct{ *source }

// Checked makes it a tree.Checker.
func (*checked) Checked() {}

// union reads objects from the first source that has them.
type union struct{ first, rest tree.Source }

// Get gives what digests name. See tree.Source.
func (u *union) Get(ctx context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	given := map[tree.Digest]bool{}
	err := u.first.Get(ctx, digests, func(d tree.Digest, b []byte) error {
		given[d] = true
		return fn(d, b)
	})
	if !errors.Is(missingBlobs(err), ErrMissingBlob) {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(digests), func(d tree.Digest) bool { return given[d] })
	return u.rest.Get(ctx, left, fn)
}

// missingBlobs turns errors of package tree about objects into those of this package.
func missingBlobs(err error) error {
	if e, ok := errors.AsType[*tree.MissingError](err); ok {
		return &MissingBlobError{Digests: e.Digests}
	}
	if e, ok := errors.AsType[*tree.CorruptError](err); ok {
		return &Error{Code: ErrInvalidBlob, Message: e.Error(), Err: err}
	}
	if errors.Is(err, tree.ErrInvalid) {
		return &Error{Code: ErrInvalidBlob, Message: err.Error(), Err: err}
	}
	return err
}
