// Package s3 is a blob.Store in a bucket of an S3 service.
//
// The service must be strongly consistent and know conditional writes
// (If-None-Match: *) on PutObject and CompleteMultipartUpload, as Amazon S3,
// MinIO, Ceph and versitygw do. Where a service ignores the condition on
// CompleteMultipartUpload, immutability of large objects rests on keys being
// random, which the contract asks for.
//
// Every upload carries a random id in the object's metadata. When the answer to
// a write is lost, or says that the object exists, the object is read back: with
// this upload's id the write has succeeded. A conflict (409), a server's error or
// a broken connection is tried again.
package s3

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/singleflight"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/lru"
)

// Store keeps objects in a bucket.
type Store struct {
	config Config
	core   minio.Core

	parts  sync.Pool // of *[]byte with the capacity of a part
	blocks *lru.Cache[blockID, []byte]
	flight singleflight.Group // reads of blocks
}

var _ blob.Store = (*Store)(nil)

// Open returns the store in the bucket, which must exist.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	endpoint, err := config.endpoint()
	if err != nil {
		return nil, err
	}
	if config.Transport == nil {
		config.Transport = newTransport()
	}
	lookup := minio.BucketLookupDNS
	if config.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(config.AccessKeyID, config.SecretAccessKey, config.SessionToken),
		Secure:       endpoint.Scheme == "https",
		Transport:    config.Transport,
		Region:       config.Region,
		BucketLookup: lookup,
		MaxRetries:   1, // retry is ours: only it can tell a lost answer from a conflict
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s := &Store{config: config, core: minio.Core{Client: client}, blocks: lru.New[blockID, []byte](config.CacheBytes)}
	s.parts.New = func() any {
		part := make([]byte, 0, config.PartSize)
		return &part
	}
	var exists bool
	err = s.retry(ctx, 0, func(ctx context.Context) (err error) {
		exists, err = client.BucketExists(ctx, config.Bucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", config.Bucket, err)
	}
	if !exists {
		return nil, fmt.Errorf("%w: bucket %q does not exist", ErrConfig, config.Bucket)
	}
	return s, nil
}

func newTransport() http.RoundTripper {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true, // objects are stored as they are
		ForceAttemptHTTP2:   true,
	}
}

func (s *Store) name(key blob.Key) string { return s.config.Prefix + string(key) }

func check(ctx context.Context, key blob.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return ctx.Err()
}

// opError wraps an error of an operation on a key in the contract's terms.
func opError(op string, key blob.Key, err error) error {
	if isNotFound(err) {
		return fmt.Errorf("%s %q: %w", op, string(key), blob.ErrNotFound)
	}
	return fmt.Errorf("%s %q: %w", op, string(key), err)
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key blob.Key, r io.Reader, size int64) error {
	w, err := s.Create(ctx, key)
	if err != nil {
		return err
	}
	return blob.Fill(ctx, w, r, size)
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	if err := check(ctx, key); err != nil {
		return blob.Info{}, err
	}
	info, err := s.head(ctx, key)
	if err != nil {
		return blob.Info{}, opError("stat", key, err)
	}
	return blob.Info{Key: key, Size: info.Size, ModTime: info.LastModified}, nil
}

func (s *Store) head(ctx context.Context, key blob.Key) (info minio.ObjectInfo, err error) {
	err = s.retry(ctx, 0, func(ctx context.Context) (err error) {
		info, err = s.core.StatObject(ctx, s.config.Bucket, s.name(key), minio.StatObjectOptions{})
		return err
	})
	return info, err
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		last := blob.Key("")
		for n := 1; ; n++ {
			before := last
			stopped, err := s.listAfter(ctx, prefix, &last, yield)
			if stopped {
				return
			}
			if last != before {
				n = 1
			}
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			} else if transient(err) && n < attempts {
				if err = s.wait(ctx, n); err == nil {
					continue
				}
			}
			yield(blob.Info{}, fmt.Errorf("list objects: %w", err))
			return
		}
	}
}

// listAfter yields the objects after *last, which it advances, until the yield
// function stops it, the end or an error.
func (s *Store) listAfter(ctx context.Context, prefix string, last *blob.Key, yield func(blob.Info, error) bool) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := minio.ListObjectsOptions{Prefix: s.config.Prefix + prefix, Recursive: true}
	if *last != "" {
		opts.StartAfter = s.name(*last)
	}
	watch := newWatch(s.config.Stall, cancel)
	defer watch.stop()
	for o := range s.core.ListObjectsIter(ctx, s.config.Bucket, opts) {
		watch.stop() // the caller may take its time
		if o.Err != nil {
			return false, o.Err
		}
		key, err := blob.ParseKey(strings.TrimPrefix(o.Key, s.config.Prefix))
		if err != nil {
			continue // a name that is no key is no object of ours
		}
		if key <= *last {
			yield(blob.Info{}, fmt.Errorf("list objects: the service lists %q after %q; it must list in byte order", string(key), string(*last)))
			return true, nil
		}
		*last = key
		if !yield(blob.Info{Key: key, Size: o.Size, ModTime: o.LastModified}, nil) {
			return true, nil
		}
		watch.restart()
	}
	return false, ctx.Err()
}

// Delete implements blob.Store. In a bucket with versioning the bytes stay as an
// old version until the bucket's own rules remove them.
func (s *Store) Delete(ctx context.Context, key blob.Key) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	err := s.retry(ctx, 0, func(ctx context.Context) error {
		return s.core.RemoveObject(ctx, s.config.Bucket, s.name(key), minio.RemoveObjectOptions{})
	})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %q: %w", string(key), err)
	}
	return nil
}

// SweepUploads aborts uploads that began before the given time and were never
// finished, whose parts the service keeps and bills. It returns how many.
func (s *Store) SweepUploads(ctx context.Context, before time.Time) (int, error) {
	swept := 0
	for upload := range s.core.ListIncompleteUploads(ctx, s.config.Bucket, s.config.Prefix, true) {
		if upload.Err != nil {
			return swept, fmt.Errorf("list unfinished uploads: %w", upload.Err)
		}
		if !upload.Initiated.Before(before) {
			continue
		}
		if err := s.abortUpload(ctx, upload.Key, upload.UploadID); err != nil {
			return swept, fmt.Errorf("abort unfinished upload of %q: %w", upload.Key, err)
		}
		swept++
	}
	return swept, ctx.Err()
}

func (s *Store) abortUpload(ctx context.Context, name, uploadID string) error {
	err := s.retry(ctx, 0, func(ctx context.Context) error {
		return s.core.AbortMultipartUpload(ctx, s.config.Bucket, name, uploadID)
	})
	if isNotFound(err) {
		return nil
	}
	return err
}
