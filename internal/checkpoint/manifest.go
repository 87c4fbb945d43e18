package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/tree"
)

// The namespaces of the keys of blobs.
const (
	FilesPrefix     = "sandbox-files/sha256/"
	ArtifactsPrefix = "sandbox-artifacts/sha256/"
)

// Space is the namespace of a key, as it is stored.
type Space byte

// The namespaces.
const (
	Files     Space = 1
	Artifacts Space = 2
)

// Prefix begins the keys of a namespace.
func (s Space) Prefix() string {
	if s == Artifacts {
		return ArtifactsPrefix
	}
	return FilesPrefix
}

// Key names a blob by the SHA-256 of its bytes.
type Key struct {
	Space Space
	Sum   tree.Digest
}

// String returns the key as clients write it.
func (k Key) String() string { return k.Space.Prefix() + k.Sum.String() }

func (k Key) compare(o Key) int {
	// "sandbox-artifacts" sorts before "sandbox-files".
	if k.Space != o.Space {
		return int(o.Space) - int(k.Space)
	}
	return bytes.Compare(k.Sum[:], o.Sum[:])
}

// ParseKey reads a key.
func ParseKey(s string) (Key, bool) {
	for _, space := range []Space{Files, Artifacts} {
		if hex, ok := strings.CutPrefix(s, space.Prefix()); ok {
			d, err := tree.ParseDigest(hex)
			return Key{space, d}, err == nil
		}
	}
	return Key{}, false
}

const keyBytes = 1 + len(tree.Digest{})

// encodeKeys makes the document of sorted keys.
func encodeKeys(list []Key) []byte {
	b := make([]byte, 0, len(list)*keyBytes)
	for _, k := range list {
		b = append(append(b, byte(k.Space)), k.Sum[:]...)
	}
	return b
}

func decodeKeys(b []byte) []Key {
	list := make([]Key, len(b)/keyBytes)
	for i := range list {
		list[i] = Key{Space(b[i*keyBytes]), tree.Digest(b[i*keyBytes+1 : (i+1)*keyBytes])}
	}
	return list
}

// maxSafe is the largest integer that a JavaScript number holds.
const maxSafe = 1<<53 - 1

// manifest is a checkpoint in the form of TanStack AI.
type manifest struct {
	id, thread, parent string
	created            float64
	reason, label, run string
	// rest is all but files, conversation and artifacts.
	rest                           map[string]json.RawMessage
	files, conversation, artifacts json.RawMessage
	keys                           []Key // distinct, in order
	stats                          Stats
}

// parseManifest reads a manifest and the expected head, in the order of checks of
// the store: ids, the writer's thread, the time, files, artifacts.
func parseManifest(raw, expected json.RawMessage, writerThread string) (*manifest, Head, error) {
	fields, ok := members(raw)
	if !ok || !utf8.Valid(raw) {
		return nil, Head{}, refuse(InvalidEntry, "the checkpoint is no JSON object in UTF-8")
	}
	m := &manifest{rest: fields}
	if m.thread, ok = jsonString(fields["threadId"]); !ok || CheckThread(m.thread) != nil {
		return nil, Head{}, refuse(InvalidID, "threadId of the checkpoint has to be 1 to %d bytes of well-formed Unicode", MaxThread)
	}
	if CheckThread(writerThread) != nil {
		return nil, Head{}, refuse(InvalidID, "threadId of the writer has to be 1 to %d bytes of well-formed Unicode", MaxThread)
	}
	if m.id, ok = jsonID(fields["id"]); !ok {
		return nil, Head{}, refuse(InvalidID, "the id of the checkpoint has to be 1 to %d bytes of well-formed Unicode", MaxID)
	}
	head, err := ParseHead(expected)
	if err != nil {
		return nil, Head{}, err
	}
	if parent := fields["parentCheckpointId"]; !isNull(parent) {
		if m.parent, ok = jsonID(parent); !ok {
			return nil, Head{}, refuse(InvalidID, "parentCheckpointId has to be null or 1 to %d bytes of well-formed Unicode", MaxID)
		}
	}
	if writerThread != m.thread {
		return nil, Head{}, &Error{Code: WriterLost, What: "the writer holds the lease of another thread"}
	}
	if m.created, ok = jsonNumber(fields["createdAt"]); !ok {
		return nil, Head{}, refuse(InvalidEntry, "createdAt has to be a finite number")
	}
	return m, head, m.lists()
}

// lists reads files and artifacts.
func (m *manifest) lists() error {
	m.files, m.conversation, m.artifacts = m.rest["files"], m.rest["conversation"], m.rest["artifacts"]
	for _, name := range []string{"files", "conversation", "artifacts"} {
		delete(m.rest, name)
	}
	distinct := make(map[Key]bool)
	if err := m.readFiles(distinct); err != nil {
		return err
	}
	if err := m.readArtifacts(distinct); err != nil {
		return err
	}
	if !isNull(m.conversation) && bytes.TrimSpace(m.conversation)[0] != '[' {
		return refuse(InvalidEntry, "conversation has to be a list")
	}
	for k := range distinct {
		m.keys = append(m.keys, k)
	}
	slices.SortFunc(m.keys, Key.compare)
	// These are for people; whatever else they are is kept in the manifest.
	m.reason, _ = jsonString(m.rest["reason"])
	m.label, _ = jsonString(m.rest["label"])
	m.run, _ = jsonString(m.rest["sourceRunId"])
	for _, s := range []*string{&m.reason, &m.label, &m.run} {
		*s = clip(strings.ToValidUTF8(*s, "\ufffd"))
	}
	return nil
}

func clip(s string) string {
	const most = 1024
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// readFiles checks the entries.
func (m *manifest) readFiles(distinct map[Key]bool) error {
	paths := make(map[string]bool) // true for those that nothing may lie beneath
	isList, err := each(m.files, func(i int, raw json.RawMessage) error {
		fields, ok := members(raw)
		if !ok {
			return refuse(InvalidEntry, "entry %d of files is no object", i)
		}
		path, ok := jsonString(fields["path"])
		if !ok || !validPath(path) {
			return refuse(InvalidEntry, "entry %d of files has an invalid path", i)
		}
		if _, twice := paths[path]; twice {
			return refuse(InvalidEntry, "entry %d of files has the path of another one", i)
		}
		kind, _ := jsonString(fields["kind"])
		paths[path] = kind != "dir"
		return m.readEntry(i, kind, fields, distinct)
	})
	if err != nil {
		return err
	}
	if !isList {
		return refuse(InvalidEntry, "files has to be a list")
	}
	if beneathFile(paths) {
		return refuse(InvalidEntry, "files has an entry beneath one that is no directory")
	}
	return nil
}

// beneathFile reports whether a path lies beneath one that nothing may lie
// beneath. In an order where the slash comes first, what lies beneath a path
// follows it.
func beneathFile(paths map[string]bool) bool {
	order := slices.SortedFunc(maps.Keys(paths), comparePaths)
	for i := 1; i < len(order); i++ {
		if rest, ok := strings.CutPrefix(order[i], order[i-1]); ok && paths[order[i-1]] && rest[0] == '/' {
			return true
		}
	}
	return false
}

// comparePaths compares paths name by name.
func comparePaths(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	switch {
	case n == len(a) || n == len(b):
		return len(a) - len(b)
	case a[n] == '/':
		return -1
	case b[n] == '/':
		return 1
	}
	return int(a[n]) - int(b[n])
}

func (m *manifest) readEntry(i int, kind string, fields map[string]json.RawMessage, distinct map[Key]bool) error {
	_, hasKey := fields["blobKey"]
	_, hasSize := fields["size"]
	m.stats.Entries++
	switch kind {
	case "dir", "symlink":
		if hasKey || hasSize {
			return refuse(InvalidEntry, "entry %d of files is a %s with what a file has", i, kind)
		}
		if _, ok := jsonString(fields["target"]); kind == "symlink" && !ok {
			return refuse(InvalidEntry, "entry %d of files is a symlink without a target", i)
		}
		return nil
	case "file":
		k, size, ok := blobOf(fields, Files)
		if !ok {
			return refuse(InvalidEntry, "entry %d of files has an invalid blobKey or size", i)
		}
		distinct[k] = true
		m.stats.Files++
		m.stats.Bytes = min(m.stats.Bytes+size, math.MaxInt64)
		return nil
	}
	return refuse(InvalidEntry, "entry %d of files is of an unknown kind", i)
}

// blobOf reads blobKey and size.
func blobOf(fields map[string]json.RawMessage, space Space) (Key, uint64, bool) {
	text, isText := jsonString(fields["blobKey"])
	k, isKey := ParseKey(text)
	size, isNumber := jsonNumber(fields["size"])
	ok := isText && isKey && k.Space == space && isNumber && size >= 0 && size <= maxSafe && size == float64(uint64(size))
	if !ok {
		return Key{}, 0, false
	}
	return k, uint64(size), true
}

func (m *manifest) readArtifacts(distinct map[Key]bool) error {
	isList, err := each(m.artifacts, func(i int, raw json.RawMessage) error {
		fields, ok := members(raw)
		if !ok {
			return refuse(InvalidEntry, "entry %d of artifacts is no object", i)
		}
		for _, name := range []string{"artifactId", "name", "mimeType"} {
			text, ok := jsonString(fields[name])
			if !ok || text == "" || name == "artifactId" && !utf8.ValidString(text) {
				return refuse(InvalidEntry, "entry %d of artifacts has an invalid %s", i, name)
			}
		}
		if _, ok := jsonNumber(fields["createdAt"]); !ok {
			return refuse(InvalidEntry, "createdAt of entry %d of artifacts has to be a finite number", i)
		}
		k, _, ok := blobOf(fields, Artifacts)
		if !ok {
			return refuse(InvalidEntry, "entry %d of artifacts has an invalid blobKey or size", i)
		}
		distinct[k] = true
		return nil
	})
	if err == nil && !isList {
		err = refuse(InvalidEntry, "artifacts has to be a list")
	}
	return err
}

// validPath holds a path to the rules of the store.
func validPath(path string) bool {
	if path == "" || strings.ContainsAny(path, "\x00\\") {
		return false
	}
	if len(path) >= 2 && path[1] == ':' && (path[0]|0x20 >= 'a' && path[0]|0x20 <= 'z') && (len(path) == 2 || path[2] == '/') {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

// envelope is what is stored of a manifest beside its lists.
func (m *manifest) envelope() ([]byte, error) {
	b, err := json.Marshal(m.rest)
	if err != nil {
		return nil, fmt.Errorf("store a manifest: %w", err)
	}
	return b, nil
}
