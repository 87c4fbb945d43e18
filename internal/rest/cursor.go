package rest

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

// Cursors are opaque to clients: a letter that says of what, then numbers and
// perhaps a name, in base64url, and a mark. They are positions, not snapshots: what is
// created meanwhile neither repeats nor hides an item.
const (
	auditCursor    = 'a'
	branchCursor   = 'b'
	commitCursor   = 'c'
	deliveryCursor = 'd'
	grepCursor     = 'g'
	notesCursor    = 'n'
	repoCursor     = 'r'
	tagCursor      = 't'
	pointCursor    = 'p'
	threadCursor   = 'h'
	keyCursor      = 'k'
	entryCursor    = 'e'
	changeCursor   = 'f'
	webhookCursor  = 'w'
)

var cursorEncoding = base64.RawURLEncoding.Strict()

// maxCursor bounds a cursor in bytes.
const maxCursor = 2*refname.MaxLen + 64

func badCursor() error {
	return invalid("the cursor is not one that this route returned: start again without it")
}

// markBytes is the length of the mark of a cursor that was given to a client.
const markBytes = 6

// mark is what a cursor ends in when it was given for what the request is about:
// it tells cursors of other repositories, and damaged ones.
func (c *call) mark(cursor string) string {
	data := binary.BigEndian.AppendUint64(nil, uint64(c.access.Org.ID))
	data = binary.BigEndian.AppendUint64(data, uint64(c.access.Repo.ID))
	return cursorEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(append(data, cursor...))))
}

// issue is a cursor as a client is given it.
func (c *call) issue(cursor string) string { return cursor + c.mark(cursor) }

// resume returns the cursor that was issued as the one that a client gives; "" is
// the start.
func (c *call) resume(given string) (string, error) {
	if given == "" {
		return "", nil
	}
	at := len(given) - markBytes
	if at < 0 || c.mark(given[:at]) != given[at:] {
		return "", badCursor()
	}
	return given[:at], nil
}

// resumed reads a cursor that a client gives.
func resumed[P any](c *call, given string, read func(string) (P, error)) (at P, err error) {
	cursor, err := c.resume(given)
	if err != nil {
		return at, err
	}
	return read(cursor)
}

// openCursor returns what follows the letter of a cursor.
func openCursor(cursor string, kind byte) ([]byte, error) {
	if len(cursor) > maxCursor {
		return nil, badCursor()
	}
	return decodeCursor(cursor, kind)
}

// decodeCursor is openCursor for a cursor whose length is checked.
func decodeCursor(cursor string, kind byte) ([]byte, error) {
	data, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(data) == 0 || data[0] != kind {
		return nil, badCursor()
	}
	return data[1:], nil
}

// afterAudit is the cursor that continues after an entry of the audit log.
func afterAudit(e meta.AuditEntry) string {
	data := []byte{auditCursor}
	for _, n := range []int64{e.At.UnixMicro(), int64(e.Repo), e.Seq} {
		data = binary.AppendUvarint(data, uint64(n))
	}
	return cursorEncoding.EncodeToString(append(data, e.Ref...))
}

// auditPosition reads a cursor of the audit log; "" is the newest entry.
func auditPosition(cursor string) (*meta.AuditEntry, error) {
	if cursor == "" {
		return nil, nil
	}
	data, err := openCursor(cursor, auditCursor)
	if err != nil {
		return nil, err
	}
	var numbers [3]int64
	for i := range numbers {
		v, n := binary.Uvarint(data)
		if n <= 0 || int64(v) < 0 {
			return nil, badCursor()
		}
		numbers[i], data = int64(v), data[n:]
	}
	return &meta.AuditEntry{At: time.UnixMicro(numbers[0]), Repo: meta.RepoID(numbers[1]), Seq: numbers[2], Ref: string(data)}, nil
}

// afterBranch is the cursor that continues after a branch.
func afterBranch(b service.Branch) string {
	data := binary.AppendUvarint([]byte{branchCursor}, uint64(b.Version))
	return cursorEncoding.EncodeToString(append(data, b.Name...))
}

// branchPosition reads a cursor of branches; "" is the start.
func branchPosition(cursor string) (service.BranchPosition, error) {
	if cursor == "" {
		return service.BranchPosition{}, nil
	}
	data, err := openCursor(cursor, branchCursor)
	if err != nil {
		return service.BranchPosition{}, err
	}
	version, n := binary.Uvarint(data)
	if n <= 0 || int64(version) < 0 {
		return service.BranchPosition{}, badCursor()
	}
	name := string(data[n:])
	if refname.Check(refname.Branch(name)) != nil {
		return service.BranchPosition{}, badCursor()
	}
	return service.BranchPosition{Version: int64(version), Name: name}, nil
}

// afterName is the cursor that continues after the ref with a full name.
func afterName(kind byte, full string) string {
	return cursorEncoding.EncodeToString(append([]byte{kind}, full...))
}

// namePosition reads a cursor of refs; "" is the start.
func namePosition(cursor string, kind byte) (full string, err error) {
	if cursor == "" {
		return "", nil
	}
	data, err := openCursor(cursor, kind)
	if err != nil {
		return "", err
	}
	if refname.Check(string(data)) != nil {
		return "", badCursor()
	}
	return string(data), nil
}

// historyPosition is a place in the list of a commit's history. Pages that follow
// one another are of the commit that the first one began at, whatever becomes of
// the ref.
type historyPosition struct {
	tip  object.ID
	skip int
}

// maxSkip bounds the place in a history that a cursor may name.
const maxSkip = 1 << 30

// afterCommit is the cursor that continues a history, of one path, at a place.
func afterCommit(p historyPosition, path string) string {
	data := append([]byte{commitCursor}, p.tip[:]...)
	data = binary.BigEndian.AppendUint32(data, pathMark(path))
	return cursorEncoding.EncodeToString(binary.AppendUvarint(data, uint64(p.skip)))
}

// pathMark tells whether a cursor was made for another path.
func pathMark(path string) uint32 { return crc32.ChecksumIEEE([]byte(path)) }

// commitPosition reads a cursor of commits, which must not be empty.
func commitPosition(cursor, path string) (historyPosition, error) {
	data, err := openCursor(cursor, commitCursor)
	if err != nil {
		return historyPosition{}, err
	}
	if len(data) <= object.Size+4 || binary.BigEndian.Uint32(data[object.Size:]) != pathMark(path) {
		return historyPosition{}, badCursor()
	}
	skip, n := binary.Uvarint(data[object.Size+4:])
	if n <= 0 || object.Size+4+n != len(data) || skip > maxSkip {
		return historyPosition{}, badCursor()
	}
	return historyPosition{object.ID(data[:object.Size]), int(skip)}, nil
}

// afterRepo is the cursor that continues after a repository.
func afterRepo(r meta.Repo) string {
	data := binary.BigEndian.AppendUint64([]byte{repoCursor}, uint64(r.CreatedAt.UnixMicro()))
	return cursorEncoding.EncodeToString(binary.BigEndian.AppendUint64(data, uint64(r.ID)))
}

// repoPosition reads a cursor of repositories, as the ID and CreatedAt of the last
// one; "" is the start.
func repoPosition(cursor string) (at meta.Repo, err error) {
	if cursor == "" {
		return at, nil
	}
	data, err := openCursor(cursor, repoCursor)
	if err != nil {
		return at, err
	}
	if len(data) != 16 {
		return at, badCursor()
	}
	created, id := int64(binary.BigEndian.Uint64(data)), int64(binary.BigEndian.Uint64(data[8:]))
	if created <= 0 || id <= 0 {
		return at, badCursor()
	}
	return meta.Repo{CreatedAt: time.UnixMicro(created), ID: meta.RepoID(id)}, nil
}

// maxPathCursor bounds a cursor of files in bytes; pushed trees may hold longer
// paths than can be committed here.
const maxPathCursor = 32 << 10

// rawPath begins a cursor of files whose path JSON cannot hold; no path has NUL.
const rawPath = "\x00"

// afterPath is the cursor that continues after a file: its path.
func afterPath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return rawPath + cursorEncoding.EncodeToString([]byte(path))
}

// pathPosition reads a cursor of files. Any path will do.
func pathPosition(cursor string) (string, error) {
	if len(cursor) > maxPathCursor {
		return "", badCursor()
	}
	encoded, raw := strings.CutPrefix(cursor, rawPath)
	if !raw {
		return cursor, nil
	}
	path, err := cursorEncoding.DecodeString(encoded)
	if err != nil {
		return "", badCursor()
	}
	return string(path), nil
}
