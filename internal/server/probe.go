package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/blob"
)

// ProbeBlobs writes, reads, tries to overwrite and deletes one object, and says
// which promise of the store did not hold.
func ProbeBlobs(ctx context.Context, store blob.Store, name string) error {
	key, err := blob.ParseKey(name)
	if err != nil {
		return err
	}
	const text = "probe"
	if err := store.Put(ctx, key, strings.NewReader(text), int64(len(text))); err != nil {
		return fmt.Errorf("write an object: %w", err)
	}
	defer store.Delete(ctx, key)
	if err := store.Put(ctx, key, strings.NewReader("other"), 5); !errors.Is(err, blob.ErrExists) {
		return fmt.Errorf("the store let an object be overwritten (got %v); it must support conditional writes", err)
	}
	obj, err := store.Open(ctx, key)
	if err != nil {
		return fmt.Errorf("read the object back: %w", err)
	}
	got := make([]byte, len(text))
	_, err = obj.ReadAt(got, 0)
	obj.Close()
	if err != nil || !bytes.Equal(got, []byte(text)) {
		return fmt.Errorf("the object read back differs from what was written (%v)", err)
	}
	if err := store.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete the object: %w", err)
	}
	if _, err := store.Stat(ctx, key); !errors.Is(err, blob.ErrNotFound) {
		return fmt.Errorf("the object is still there after its deletion")
	}
	return nil
}
