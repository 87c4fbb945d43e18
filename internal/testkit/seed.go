package testkit

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Soaking reports whether tests run their long forms: CAIRN_SOAK is set.
func Soaking() bool { return os.Getenv("CAIRN_SOAK") != "" }

// Seed returns CAIRN_SEED, or another number each time, and prints it: a test
// that does random things does the same ones again with the same seed.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CAIRN_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("CAIRN_SEED: %v", err)
		}
	}
	tb.Logf("CAIRN_SEED=%d", seed)
	return seed
}
