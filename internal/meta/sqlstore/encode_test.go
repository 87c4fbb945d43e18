package sqlstore

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

// FuzzStoredLists: what is stored reads back, and nothing else is accepted.
func FuzzStoredLists(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Add(storedIDs([]object.ID{{1}, {2}}))
	f.Add(storedPacks([]meta.PackID{1, -1, 1 << 62}))
	f.Add(append([]byte{32}, make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ids, err := idsOf(b); err == nil {
			if again := storedIDs(ids); len(ids) > 0 && !bytes.Equal(again, b) {
				t.Errorf("ids %x read and stored again are %x", b, again)
			}
		} else if !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("ids %x: %v", b, err)
		}
		if packs, err := packsOf(b); err == nil {
			if again := storedPacks(packs); !bytes.Equal(again, b) {
				t.Errorf("packs %x read and stored again are %x", b, again)
			}
		} else if !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("packs %x: %v", b, err)
		}
		if id, err := idOf(b); err == nil {
			if again := storedID(id); len(again) > 0 && !bytes.Equal(again, b) {
				t.Errorf("id %x read and stored again is %x", b, again)
			}
		} else if !errors.Is(err, meta.ErrCorrupt) {
			t.Errorf("id %x: %v", b, err)
		}
	})
}

// FuzzPrefixEnd: the end of a prefix splits what begins with it from what sorts
// after it.
func FuzzPrefixEnd(f *testing.F) {
	f.Add("refs/heads/", "refs/heads/x")
	f.Add("a\xff", "b")
	f.Add("\xff\xff", "\xff\xff\xff")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, prefix, s string) {
		end, ok := prefixEnd(prefix)
		inside := s >= prefix && (!ok || s < end)
		if inside != strings.HasPrefix(s, prefix) {
			t.Errorf("%q with prefix %q, end %q, %v", s, prefix, end, ok)
		}
	})
}

func TestSpaceOf(t *testing.T) {
	heads, ok := spaceOf("refs/heads/a")
	again, _ := spaceOf("refs/heads/b/c")
	tags, _ := spaceOf("refs/tags/a")
	if !ok || heads != again || heads == tags {
		t.Errorf("spaces %d, %d, %d", heads, again, tags)
	}
	for _, prefix := range []string{"", "refs", "refs/", "refs/heads", "/"} {
		if _, ok := spaceOf(prefix); ok {
			t.Errorf("%q fixes a space", prefix)
		}
	}
}
