package blob_test

import (
	"errors"
	"path"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
)

// FuzzParseKey checks that no accepted key can leave a directory or hide in one.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"a", "packs/0af3.pack", "", "/", "a/../b", "a//b", "a/.b", "a\x00", "A", "a~b", "-a", "a/-b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := blob.ParseKey(s)
		if err != nil {
			if !errors.Is(err, blob.ErrInvalidKey) {
				t.Errorf("error %v is not %v", err, blob.ErrInvalidKey)
			}
			return
		}
		if string(key) != s || len(s) > blob.MaxKeyLen || path.Clean("/"+s) != "/"+s {
			t.Errorf("key %q was accepted", s)
		}
	})
}
