package rest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
)

// gitStamp spells a time of Git, which may lie beyond what RFC 3339 can tell:
// the last time that it can tell stands for it.
func gitStamp(seconds int64) string {
	const last = 253402300799 // the end of the year 9999
	return stamp(time.Unix(min(max(seconds, 0), last), 0))
}

// utf8Text returns text that a commit has in some encoding. Bytes that are not
// text in it are replaced.
func utf8Text(text, encoding string) string {
	if utf8.ValidString(text) {
		return text
	}
	switch strings.ToLower(encoding) {
	case "iso-8859-1", "iso8859-1", "latin1", "latin-1":
		out := make([]rune, 0, len(text))
		for _, b := range []byte(text) {
			out = append(out, rune(b))
		}
		return string(out)
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

func describeCommit(id object.ID, d *object.CommitData) api.Commit {
	text := func(s string) string { return utf8Text(s, d.Encoding) }
	c := api.Commit{
		SHA: id.String(), ParentSHAs: make([]string, len(d.Parents)), Message: strings.TrimRight(text(d.Message), "\n"),
		AuthorName: text(d.Author.Name), AuthorEmail: text(d.Author.Email),
		CommitterName: text(d.Committer.Name), CommitterEmail: text(d.Committer.Email), Date: gitStamp(d.Committer.When),
	}
	for i, p := range d.Parents {
		c.ParentSHAs[i] = p.String()
	}
	return c
}

func (c *call) getCommit(q api.GetCommit) (api.CommitDetails, error) {
	rev := first(q.Ref, q.SHA)
	if strings.TrimSpace(rev) == "" {
		return api.CommitDetails{}, invalid("query parameter %q is missing: it names a commit", "ref")
	}
	v, at, err := c.at(rev, q.Ephemeral)
	if err != nil {
		return api.CommitDetails{}, err
	}
	d, err := v.Commit(c.ctx, at.ID)
	if err != nil {
		return api.CommitDetails{}, err
	}
	out := api.SignedCommit{Commit: describeCommit(at.ID, d)}
	if d.Signature != "" && utf8.Valid(d.Payload) && utf8.ValidString(d.Signature) {
		out.Signature, out.Payload = d.Signature, string(d.Payload)
	}
	return api.CommitDetails{Commit: out}, nil
}
