package content

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/blob/s3"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/testkit"
)

// bucketStore is a store on a real S3 server.
func bucketStore(tb testing.TB) blob.Store {
	tb.Helper()
	server := testkit.S3(tb)
	c, err := s3.ParseURL(fmt.Sprintf("s3://%s/some/prefix?endpoint=%s&path_style=true", server.Bucket, server.Endpoint), s3.Env{
		AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey, Region: server.Region,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := s3.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func sqliteMeta(tb testing.TB) meta.Store {
	tb.Helper()
	m, err := sqlstore.OpenSQLite(tb.Context(), filepath.Join(tb.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

func postgresMeta(tb testing.TB) meta.Store {
	tb.Helper()
	m, err := sqlstore.OpenPostgres(tb.Context(), testkit.Postgres(tb), sqlstore.PostgresOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

// TestSweepSoak appends, forks, deletes, sweeps, folds and reads at the same time
// with no grace anywhere, on stores of every kind.
func TestSweepSoak(t *testing.T) {
	d := 3 * time.Second
	if testkit.Soaking() {
		d = 20 * time.Minute
	}
	for _, c := range []struct {
		name  string
		meta  func(testing.TB) meta.Store
		blobs func(testing.TB) blob.Store
	}{
		{"sqlite-mem", sqliteMeta, func(testing.TB) blob.Store { return mem.New() }},
		{"sqlite-dir", sqliteMeta, dirStore},
		{"postgres-mem", postgresMeta, func(testing.TB) blob.Store { return mem.New() }},
		{"postgres-s3", postgresMeta, bucketStore},
	} {
		t.Run(c.name, func(t *testing.T) {
			blobs := &deletions{Store: c.blobs(t)}
			w := newWorldWith(t, c.meta(t), blobs, Config{InlineLimit: 4000})
			soak(t, w, &heads{roots: map[string]*checkpoint{}}, blobs, d)
		})
	}
}
