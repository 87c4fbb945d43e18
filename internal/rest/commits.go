package rest

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

// commitPack reads the description of a commit and the contents of its files,
// and writes it.
func (c *call) commitPack() (api.CommitAck, error) {
	in := newLines(c.body)
	defer in.close()
	m, err := readDescription(in)
	if err != nil {
		return api.CommitAck{}, err
	}
	c.branch = shortBranch(m.TargetBranch)
	req, err := c.commitRequest(&m.CommitMetadata)
	if err != nil {
		return api.CommitAck{}, err
	}
	contents := c.Service.NewContents(c.ctx, c.access)
	defer contents.Close() // scratch that nobody reads again
	p := parcel{contents: contents, open: map[string]*repo.Content{}}
	if req.Files, err = p.declare(m.Files); err != nil {
		return api.CommitAck{}, err
	}
	if err := p.fill(in); err != nil {
		return api.CommitAck{}, err
	}
	req.Contents = contents
	if err := c.replay(); err != nil {
		return api.CommitAck{}, err
	}
	req.Record = record(c, c.acknowledge)
	res, err := c.Service.Commit(c.ctx, c.access, req)
	if err != nil {
		return api.CommitAck{}, err
	}
	return c.acknowledge(res), nil
}

// acknowledge describes a commit that was made.
func (c *call) acknowledge(res repo.CommitResult) api.CommitAck {
	return api.CommitAck{
		Commit: api.CommitInfo{
			CommitSHA: res.Commit.String(), TreeSHA: res.Tree.String(), TargetBranch: c.branch,
			PackBytes: res.PackBytes, BlobCount: res.Blobs,
		},
		Result: api.UpdateResult{
			Branch: c.branch, TargetBranch: c.branch, OldSHA: res.Old.String(), NewSHA: res.Commit.String(),
			Success: true, Status: "ok",
		},
	}
}

// description is the metadata of a commit with the files as they were sent:
// decoding multiplies them.
type description struct {
	api.CommitMetadata
	Files json.RawMessage `json:"files"`
}

// readDescription reads the first line.
func readDescription(in *lines) (*description, error) {
	ok, err := in.more()
	if err != nil {
		return nil, err
	}
	var line []byte
	if ok {
		if line, err = in.whole(); err != nil {
			return nil, err
		}
	}
	var first struct {
		Metadata *description `json:"metadata"`
	}
	if len(line) > 0 {
		if err := decodeJSON(line, &first, false); err != nil {
			return nil, err
		}
	}
	if first.Metadata == nil {
		return nil, invalid("first payload must be metadata")
	}
	return first.Metadata, nil
}

// commitRequest translates the description, all but the files.
func (c *call) commitRequest(m *api.CommitMetadata) (repo.CommitRequest, error) {
	req := repo.CommitRequest{
		TargetBranch:    c.branch,
		TargetEphemeral: firstFlag(m.TargetIsEphemeral, m.Ephemeral),
		BaseBranch:      shortBranch(m.BaseBranch),
		BaseEphemeral:   firstFlag(m.BaseIsEphemeral, m.EphemeralBase),
		Message:         strings.TrimSpace(m.CommitMessage),
	}
	switch {
	case req.TargetBranch == "":
		return req, invalid("target_branch is missing: it names the branch to commit to")
	case req.Message == "":
		return req, invalid("commit_message is missing")
	case req.BaseEphemeral && req.BaseBranch == "":
		return req, invalid("base_is_ephemeral goes with base_branch only")
	}
	req.Message += "\n"
	var err error
	if req.Author, req.Committer, err = signatures(m.Author, m.Committer); err != nil {
		return req, err
	}
	req.Expected, err = expectedSHA(m.ExpectedTargetSHA, m.ExpectedHeadSHA)
	return req, err
}

// maxIdentity bounds a name and an email of an author, in bytes.
const maxIdentity = 1 << 10

// signature translates an identity. A date that cannot be read stands for now.
func signature(what string, who *api.Identity, now time.Time) (object.Signature, error) {
	if who == nil {
		return object.Signature{}, invalid("%s is missing: send its name and email", what)
	}
	name, email := strings.TrimSpace(who.Name), strings.TrimSpace(who.Email)
	if name == "" || email == "" {
		return object.Signature{}, invalid("%s needs a name and an email", what)
	}
	if len(name) > maxIdentity || len(email) > maxIdentity {
		return object.Signature{}, invalid("%s has a name or an email of more than %d bytes", what, maxIdentity)
	}
	if strings.ContainsAny(name+email, "<>\n\x00") {
		return object.Signature{}, invalid("%s has a name or an email with a line break, NUL, < or >", what)
	}
	s := object.Signature{Name: name, Email: email, When: now.Unix(), Zone: "+0000"}
	if t, err := time.Parse(time.RFC3339, who.Date); err == nil && t.Unix() >= 0 {
		s.When, s.Zone = t.Unix(), t.Format("-0700")
	}
	return s, nil
}

// parcel is the contents of a commit while they arrive.
type parcel struct {
	contents *repo.Contents
	open     map[string]*repo.Content // declared by upserts; nil once ended
	ended    int
}

// maxFiles is how many changes of files one commit may hold.
const maxFiles = 100_000

// declare notes which contents will come, and translates the changes.
func (p *parcel) declare(files json.RawMessage) ([]repo.FileEdit, error) {
	var edits []repo.FileEdit
	for f, err := range elements[api.FileChange](files) {
		if err != nil {
			return nil, err
		}
		if len(edits) == maxFiles {
			return nil, service.Refuse(service.TooLarge, "the commit changes more than %d files: split it", maxFiles)
		}
		e, err := p.change(f)
		if err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	return edits, nil
}

// change translates the change of one file.
func (p *parcel) change(f api.FileChange) (repo.FileEdit, error) {
	e := repo.FileEdit{Path: strings.TrimLeft(f.Path, "/")}
	if err := object.CheckPath(e.Path); err != nil {
		return e, err
	}
	switch f.Operation {
	case "", "upsert":
	case "delete":
		e.Delete = true
		return e, nil
	default:
		return e, invalid("operation %.40q of path %.200q is not known: use upsert or delete", f.Operation, e.Path)
	}
	switch f.EOL {
	case "":
	case "keep-existing":
		e.KeepEnds = true
	default:
		return e, invalid("eol %.40q of path %.200q is not known: use keep-existing or leave it out", f.EOL, e.Path)
	}
	var ok bool
	if e.Mode, ok = modes[f.Mode]; !ok {
		return e, invalid("mode %.40q of path %.200q is not one of 100644, 100755, 120000 and 160000", f.Mode, e.Path)
	}
	if f.ContentID == "" || len(f.ContentID) > maxMember {
		return e, invalid("path %.200q has no content_id of 1 to %d bytes", e.Path, maxMember)
	}
	e.Content = p.open[f.ContentID]
	if e.Content == nil {
		e.Content = p.contents.New()
		p.open[f.ContentID] = e.Content
	}
	return e, nil
}

var modes = map[string]object.Mode{
	"":       0,
	"100644": object.ModeRegular,
	"100755": object.ModeExecutable,
	"120000": object.ModeSymlink,
	"160000": object.ModeSubmodule,
}

// fill reads the contents to the end of the body.
func (p *parcel) fill(in *lines) error {
	for {
		ok, err := in.more()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		chunk, err := in.chunk(p.writer)
		if err != nil {
			return err
		}
		if chunk.eof {
			if err := p.open[chunk.id].Close(); err != nil {
				return err
			}
			p.open[chunk.id] = nil
			p.ended++
		}
	}
	if p.ended < len(p.open) {
		return invalid("%d of %d contents have not ended: the last chunk of each has eof", len(p.open)-p.ended, len(p.open))
	}
	return nil
}

// writer returns where the data of a content goes.
func (p *parcel) writer(id string) (io.Writer, error) {
	content, declared := p.open[id]
	switch {
	case !declared:
		return nil, invalid("unexpected content_id %.200q: no upsert names it", id)
	case content == nil:
		return nil, invalid("content_id %.200q got a chunk after its eof", id)
	}
	return content, nil
}
