package s3_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/blobtest"
	"github.com/cairnstate/cairn/internal/blob/s3"
	"github.com/cairnstate/cairn/internal/testkit"
)

// config returns the configuration for a new bucket on a real server.
func config(tb testing.TB) s3.Config {
	tb.Helper()
	server := testkit.S3(tb)
	c, err := s3.ParseURL(fmt.Sprintf("s3://%s/some/prefix?endpoint=%s&path_style=true", server.Bucket, server.Endpoint), s3.Env{
		AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey, Region: server.Region,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func open(tb testing.TB, c s3.Config) *s3.Store {
	tb.Helper()
	s, err := s3.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// newStore returns an empty store that must hold no unfinished uploads in the
// end.
func newStore(tb testing.TB) blob.Store {
	s := open(tb, config(tb))
	tb.Cleanup(func() {
		if n, err := s.SweepUploads(context.Background(), time.Now().Add(time.Hour)); n > 0 || err != nil {
			tb.Errorf("%d unfinished uploads are left, %v", n, err)
		}
	})
	return s
}

func TestStore(t *testing.T) { blobtest.Test(t, newStore) }

// TestLarge allows three parts, the block cache and the garbage of a collection
// cycle.
func TestLarge(t *testing.T) {
	blobtest.TestLarge(t, func(tb testing.TB) blob.Store {
		c := config(tb)
		c.CacheBytes = 8 << 20
		return open(tb, c)
	}, 96<<20)
}

func BenchmarkStore(b *testing.B) { blobtest.Benchmark(b, newStore) }

func TestListManyPages(t *testing.T) {
	s := newStore(t)
	const objects = 1100 // a page has 1,000
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Go(func() {
			for i := worker; i < objects; i += 10 {
				if err := s.Put(t.Context(), blob.Key(fmt.Sprintf("page/%04d", i)), strings.NewReader("x"), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	i := 0
	for info, err := range s.List(t.Context(), "page/") {
		if err != nil {
			t.Fatal(err)
		}
		if want := blob.Key(fmt.Sprintf("page/%04d", i)); info.Key != want {
			t.Fatalf("object %d is %q, want %q", i, info.Key, want)
		}
		i++
	}
	if i != objects {
		t.Errorf("listed %d objects, want %d", i, objects)
	}
}

// TestSweepUploads leaves uploads behind as a process does that dies.
func TestSweepUploads(t *testing.T) {
	c := config(t)
	s := open(t, c)
	client, err := minio.NewCore(strings.TrimPrefix(c.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(c.AccessKeyID, c.SecretAccessKey, ""), Region: c.Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{c.Prefix + "a/1", c.Prefix + "a/2", "foreign/3"} {
		id, err := client.NewMultipartUpload(t.Context(), c.Bucket, name, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.PutObjectPart(t.Context(), c.Bucket, name, id, 1, strings.NewReader("part"), 4, minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sweep := range []struct {
		before time.Time
		want   int
	}{{time.Now().Add(-time.Hour), 0}, {time.Now().Add(time.Hour), 2}, {time.Now().Add(time.Hour), 0}} {
		if n, err := s.SweepUploads(t.Context(), sweep.before); n != sweep.want || err != nil {
			t.Errorf("sweep of uploads before %v: %d, %v; want %d", sweep.before, n, err, sweep.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	c := config(t)
	missing := c
	missing.Bucket = "no-such-bucket"
	if _, err := s3.Open(t.Context(), missing); !errors.Is(err, s3.ErrConfig) {
		t.Errorf("open of a bucket that does not exist: %v", err)
	}
	wrong := c
	wrong.SecretAccessKey = "not-the-secret"
	if _, err := s3.Open(t.Context(), wrong); err == nil || strings.Contains(err.Error(), wrong.SecretAccessKey) {
		t.Errorf("open with a wrong secret: %v", err)
	}
}
