package mem_test

import (
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/blobtest"
	"github.com/cairnstate/cairn/internal/blob/mem"
)

func newStore(testing.TB) blob.Store { return mem.New() }

func TestStore(t *testing.T) { blobtest.Test(t, newStore) }

func BenchmarkStore(b *testing.B) { blobtest.Benchmark(b, newStore) }
