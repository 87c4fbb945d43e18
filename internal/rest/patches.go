package rest

import (
	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/repo"
)

// commitPatch reads the description of a commit and a diff, and makes the commit.
func (c *call) commitPatch() (api.CommitAck, error) {
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
	p := c.Service.Engine.NewPatch()
	defer p.Close() // scratch that nobody reads again
	if err := readPatch(in, p); err != nil {
		return api.CommitAck{}, err
	}
	if err := c.replay(); err != nil {
		return api.CommitAck{}, err
	}
	req.Record = record(c, c.acknowledge)
	res, err := c.Service.CommitPatch(c.ctx, c.access, req, p)
	if err != nil {
		return api.CommitAck{}, err
	}
	return c.acknowledge(res), nil
}

// readPatch reads a diff to the end of the body.
func readPatch(in *lines, p *repo.Patch) error {
	ended := false
	for {
		ok, err := in.more()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if ended {
			return invalid("a chunk follows the one with eof")
		}
		chunk, err := in.diffChunk(p)
		if err != nil {
			return err
		}
		ended = chunk.eof
	}
	if !ended {
		return invalid("the diff has not ended: its last chunk has eof")
	}
	return nil
}
