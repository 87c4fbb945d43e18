package events

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
)

// ID is the public identifier of an event in the stream of its org (repo 0) or
// of one repository: text that no other event, of any stream, has. That of an
// org's stream is the decimal position; that of a repository's is made of the
// repository's id, the version of the Change and the number of the event in it,
// and so tells nothing of what happens elsewhere.
func ID(e meta.Event, repo meta.RepoID) string {
	if repo == 0 {
		return At(0, e.Position)
	}
	return At(repo, e.Place)
}

// At is the identifier that an event at a position, or of a repository at a
// place, has; "0" is before all.
func At(repo meta.RepoID, n int64) string {
	if repo == 0 || n == 0 {
		return strconv.FormatInt(n, 10)
	}
	version, i := meta.SplitPlace(n)
	return fmt.Sprintf("%x-%d-%d", uint64(repo), version, i)
}

// ParseID reads an identifier of a stream as the position or place; false says
// that it is none of this stream.
func ParseID(repo meta.RepoID, text string) (int64, bool) {
	if repo == 0 || text == "0" {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && At(0, n) == text && n >= 0
	}
	_, rest, _ := strings.Cut(text, "-")
	first, second, _ := strings.Cut(rest, "-")
	version, err := strconv.ParseUint(first, 10, 39)
	i, err2 := strconv.ParseUint(second, 10, 24)
	if err != nil || err2 != nil {
		return 0, false
	}
	place := meta.PlaceOf(int64(version), int(i))
	return place, At(repo, place) == text
}
