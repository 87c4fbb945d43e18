package content

import (
	"github.com/cairnstate/cairn/internal/meta"
)

// wake tells the background that an org has new packs.
func (s *Store) wake(org meta.OrgID) {
	select {
	case s.due <- org:
	default: // it is looked at by and by anyway
	}
}

// suspect tells the background that a pack could not be read.
func (s *Store) suspect(org meta.OrgID, id meta.ContentID) {
	select {
	case s.suspects <- packKey{org, id}:
	default: // the scrubber comes by
	}
}

// packKey names a pack.
type packKey struct {
	org meta.OrgID
	id  meta.ContentID
}
