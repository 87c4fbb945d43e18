package sqlstore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/metatest"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/testkit"
)

func openSQLite(tb testing.TB, clock func() time.Time) meta.Store {
	tb.Helper()
	s, err := sqlstore.OpenSQLite(tb.Context(), filepath.Join(tb.TempDir(), "meta.db"), sqlstore.SQLiteOptions{Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func openPostgres(tb testing.TB, clock func() time.Time) meta.Store {
	tb.Helper()
	s, err := sqlstore.OpenPostgres(tb.Context(), testkit.Postgres(tb), sqlstore.PostgresOptions{Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func TestSQLite(t *testing.T)   { metatest.Test(t, openSQLite) }
func TestPostgres(t *testing.T) { metatest.Test(t, openPostgres) }

func BenchmarkSQLite(b *testing.B)   { metatest.Benchmark(b, openSQLite) }
func BenchmarkPostgres(b *testing.B) { metatest.Benchmark(b, openPostgres) }
