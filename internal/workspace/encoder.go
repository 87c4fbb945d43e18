package workspace

import (
	"context"
	"io"

	"github.com/cairnstate/cairn/internal/tree"
)

// Encoder makes objects of what was read elsewhere, by the rules of Scan.
type Encoder struct{ scan *scan }

// NewEncoder returns an Encoder that puts objects to sink. allowShort takes secrets
// below 6 bytes.
func NewEncoder(ctx context.Context, secrets []Secret, allowShort bool, sink Sink) (*Encoder, error) {
	s, err := newSearcher(secrets, allowShort)
	return &Encoder{&scan{ctx: ctx, sink: sink, secrets: s}}, err
}

// Contents puts what r gives, with secrets zeroed, and says where they were.
func (e *Encoder) Contents(r io.Reader) (tree.Content, []tree.Redaction, error) {
	return e.scan.contents(r, true)
}

// Target returns the target of a link with secrets zeroed, and where they were.
func (e *Encoder) Target(text string) (string, []tree.Redaction, error) {
	return e.scan.secrets.redactString(text)
}

// Holds reports whether a name holds a secret.
func (e *Encoder) Holds(name string) bool { return e.scan.secrets.in(name) }

// Fingerprint says under a key which secrets are searched for.
func (e *Encoder) Fingerprint(key []byte) []byte { return e.scan.secrets.fingerprint(key) }

// Put puts one object.
func (e *Encoder) Put(o tree.Object) error { return e.scan.put(o.Kind, o.Digest, o.Bytes) }

// Finish puts the table of hard links, groups of paths that are one file, and the
// root of t.
func (e *Encoder) Finish(t *tree.Tree, groups [][]string) (tree.Digest, error) {
	return e.scan.finish(t, groups)
}

// FillIn puts secrets back where they were zeroed in the bytes that lie at an
// offset of what rs is about. It returns false, and changes nothing, if one is not
// given or has another length.
func FillIn(b []byte, at uint64, rs []tree.Redaction, secrets []Secret) bool {
	return fillIn(rs, secrets, func(off uint64, value string) {
		for i := range len(value) {
			if p := off + uint64(i); p >= at && p-at < uint64(len(b)) {
				b[p-at] = value[i]
			}
		}
	})
}
