package wire

import (
	"bufio"
	"context"
	"io"
	"sort"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
)

// UploadPack answers one upload-pack request.
func (s *Server) UploadPack(ctx context.Context, r io.Reader, w io.Writer, u Uploader, version int) error {
	in, out := newLines(bufio.NewReader(r), s.Limits), newOutput(w)
	if version == 2 {
		return s.uploadV2(ctx, in, out, u)
	}
	req, err := parseFetchV0(in)
	if err != nil {
		return out.fail(err)
	}
	return s.fetchV0(ctx, req, out, u)
}

// fetchV0 answers a v0 or v1 request as git does in stateless mode.
func (s *Server) fetchV0(ctx context.Context, req *fetchRequest, out *output, u Uploader) error {
	if len(req.Wants) == 0 {
		return nil
	}
	if err := u.CheckWants(ctx, req.Wants); err != nil {
		return out.fail(err)
	}
	shallow, err := boundary(ctx, req, u)
	if err != nil {
		return out.fail(err)
	}
	acks := negotiation{req: req, u: u}
	if !req.ended {
		if err := acks.run(ctx); err != nil {
			return out.fail(err)
		}
	}
	if req.Deepens() {
		if err := writeShallow(out, shallow); err != nil {
			return err
		}
		if err := out.pkt.Flush(); err != nil {
			return err
		}
	}
	for _, line := range acks.lines {
		if err := out.pkt.WriteString(line); err != nil {
			return err
		}
	}
	if req.ended || !acks.send {
		return out.Flush()
	}
	return s.sendPack(ctx, req, shallow, out, u)
}

// boundary computes the shallow update of a request that deepens.
func boundary(ctx context.Context, req *fetchRequest, u Uploader) (ShallowUpdate, error) {
	if !req.Deepens() {
		return ShallowUpdate{}, nil
	}
	return u.Shallow(ctx, &req.Fetch)
}

// writeShallow writes a shallow update. Git ends these lines without newline.
func writeShallow(out *output, up ShallowUpdate) error {
	for _, id := range up.Shallow {
		if err := out.pkt.WriteData([]byte("shallow " + id.String())); err != nil {
			return err
		}
	}
	for _, id := range up.Unshallow {
		if err := out.pkt.WriteData([]byte("unshallow " + id.String())); err != nil {
			return err
		}
	}
	return nil
}

// negotiation decides what a v0 client is told about its haves.
type negotiation struct {
	req   *fetchRequest
	u     Uploader
	lines []string
	send  bool // the pack follows
}

// commonHaves sets the request's Haves, in the order of the client's.
func commonHaves(ctx context.Context, req *fetchRequest, u Uploader) error {
	if len(req.haves.ids) == 0 {
		return nil
	}
	known, err := u.Common(ctx, req.haves.ids)
	if err != nil {
		return err
	}
	var set idSet
	for _, id := range known {
		set.add(id)
	}
	for _, id := range req.haves.ids {
		if set.has(id) {
			req.Haves = append(req.Haves, id)
		}
	}
	return nil
}

// run computes lines and send.
func (n *negotiation) run(ctx context.Context) error {
	if err := commonHaves(ctx, n.req, n.u); err != nil {
		return err
	}
	enough, err := n.enough(ctx)
	if err != nil {
		return err
	}
	common := n.req.Haves
	next, unknown, ready := 0, false, false
	for _, id := range n.req.haves.ids {
		if next < len(common) && common[next] == id {
			next++
			n.ackCommon(id, next == 1)
			continue
		}
		unknown = true
		if next >= enough && n.req.acks != ackOnce {
			ready = n.req.acks == ackDetailed
			n.ackReady(id)
		}
	}
	n.conclude(ready, !unknown && next >= enough)
	return nil
}

// enough is the number of common commits from which on no more haves are
// needed; it is beyond their number when they do not suffice.
func (n *negotiation) enough(ctx context.Context) (int, error) {
	common := n.req.Haves
	never := len(common) + 1
	if n.req.acks == ackOnce || len(common) == 0 {
		return never, nil
	}
	var failed error
	ready := func(count int) bool {
		if failed != nil {
			return true
		}
		ok, err := n.u.Ready(ctx, n.req.Wants, common[:count])
		failed = err
		return ok
	}
	if !ready(len(common)) {
		return never, failed
	}
	return 1 + sort.Search(len(common)-1, func(i int) bool { return ready(i + 1) }), failed
}

// ackCommon acknowledges a commit that both sides have.
func (n *negotiation) ackCommon(id object.ID, first bool) {
	switch {
	case n.req.acks == ackDetailed:
		n.lines = append(n.lines, "ACK "+id.String()+" common")
	case n.req.acks == ackContinue:
		n.lines = append(n.lines, "ACK "+id.String()+" continue")
	case first:
		n.lines = append(n.lines, "ACK "+id.String())
	}
}

// ackReady answers a commit that only the client has, once enough is known.
func (n *negotiation) ackReady(id object.ID) {
	word := " continue"
	if n.req.acks == ackDetailed {
		word = " ready"
	}
	n.lines = append(n.lines, "ACK "+id.String()+word)
}

// conclude adds the final lines. ready: the client was told that enough is
// known; nowReady: it can be told so at the flush packet.
func (n *negotiation) conclude(ready, nowReady bool) {
	req := n.req
	last := ""
	if k := len(req.Haves); k > 0 {
		last = "ACK " + req.Haves[k-1].String()
	}
	if req.done {
		n.send = true
		if last == "" {
			n.lines = append(n.lines, "NAK")
		} else if req.acks != ackOnce {
			n.lines = append(n.lines, last)
		}
		return
	}
	if req.acks == ackDetailed && last != "" && nowReady {
		ready = true
		n.lines = append(n.lines, last+" ready")
	}
	if last == "" || req.acks != ackOnce {
		n.lines = append(n.lines, "NAK")
	}
	if req.noDone && ready {
		n.send = true
		n.lines = append(n.lines, last)
	}
}

// sendPack ends the response with the pack.
func (s *Server) sendPack(ctx context.Context, req *fetchRequest, shallow ShallowUpdate, out *output, u Uploader) error {
	f := &req.Fetch
	if req.sidebandSize == 0 {
		f.NoProgress = true
		if err := u.Send(ctx, out, f, shallow, nil); err != nil {
			return err
		}
		return out.Flush()
	}
	side := pktline.NewSideband(out, req.sidebandSize, out.push)
	stop := s.startKeepalive(ctx, side)
	var progress func(string)
	if !f.NoProgress {
		progress = func(text string) { _ = side.Progress(text) } // an error stays and meets the next write
	}
	err := u.Send(ctx, side, f, shallow, progress)
	stop()
	if err != nil {
		text, known := refusal(err)
		if !known {
			text = "upload-pack: the server failed while it made the pack"
		}
		if side.Fatal(clip(text)+"\n") != nil {
			return err
		}
		return &ReportedError{err}
	}
	out.closing = true
	if err := side.Close(); err != nil {
		return err
	}
	return out.Flush()
}
