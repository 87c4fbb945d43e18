package wire

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/cairnstate/cairn/internal/git/pktline"
)

// ReceivePack answers one receive-pack request, of any version. A refused push
// may leave some of r unread.
func (s *Server) ReceivePack(ctx context.Context, r io.Reader, w io.Writer, rc Receiver) error {
	body, out := bufio.NewReader(r), newOutput(w)
	req, err := parsePush(newLines(body, s.Limits))
	if err != nil {
		return out.fail(err)
	}
	if len(req.Commands) == 0 {
		return nil
	}
	var side *pktline.Sideband
	if req.sideband {
		side = pktline.NewSideband(out, pktline.Sideband64k, out.push)
	}
	result, err := s.receive(ctx, req, body, rc, side)
	if _, broken := err.(*inputError); broken {
		return err
	}
	if err != nil {
		reason, known := refusal(err)
		if !known {
			reason = "the server failed, try again"
		}
		result = PushResult{Unpack: reason}
	}
	if fault := report(req, result, out, side); fault != nil {
		return fault
	}
	if err != nil {
		return &ReportedError{err}
	}
	return nil
}

// inputError is a request body that could not be read to its end.
type inputError struct{ err error }

func (e *inputError) Error() string { return "read the pack: " + e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// receive hands the push to rc and keeps the client awake once it has sent all.
func (s *Server) receive(ctx context.Context, req *pushRequest, body io.Reader, rc Receiver, side *pktline.Sideband) (PushResult, error) {
	if ref, ok := req.repeated(); ok {
		return PushResult{}, refuse("multiple updates for ref '%s' not allowed", clip(ref))
	}
	stop := func() {}
	start := func() {
		if side != nil {
			stop = s.startKeepalive(ctx, side)
		}
	}
	if !req.needsPack() {
		start()
		defer func() { stop() }()
		return rc.Receive(ctx, &req.Push, nil)
	}
	pack := &packReader{in: body, done: start}
	result, err := rc.Receive(ctx, &req.Push, pack)
	stop()
	if pack.err != nil {
		return result, &inputError{pack.err}
	}
	return result, err
}

// report writes the outcome in the form that the client asked for.
func report(req *pushRequest, result PushResult, out *output, side *pktline.Sideband) error {
	var status bytes.Buffer
	if req.report {
		if err := writeStatus(&status, req, result); err != nil {
			return err
		}
	}
	if side == nil {
		if _, err := out.Write(status.Bytes()); err != nil {
			return err
		}
		return out.Flush()
	}
	out.closing = true
	for _, message := range result.Messages {
		if err := side.Progress(strings.TrimSuffix(message, "\n") + "\n"); err != nil {
			return err
		}
	}
	if _, err := side.Write(status.Bytes()); err != nil {
		return err
	}
	if err := side.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// writeStatus writes report-status, one line for every command. Its version 2
// differs only in optional lines that Cairn has no use for.
func writeStatus(w io.Writer, req *pushRequest, result PushResult) error {
	pkt := pktline.NewWriter(w)
	unpack := "ok"
	missing := "no outcome was reported"
	if result.Unpack != "" {
		unpack = oneLine(result.Unpack)
		missing = "unpacker error"
	}
	if err := pkt.WriteString("unpack " + unpack); err != nil {
		return err
	}
	outcome := make(map[string]string, len(result.Refs))
	for _, r := range result.Refs {
		outcome[r.Ref] = r.Error
	}
	for _, c := range req.Commands {
		reason, ok := outcome[c.Ref]
		if !ok {
			reason = missing
		}
		line := "ok " + c.Ref
		if reason != "" {
			line = "ng " + c.Ref + " " + oneLine(reason)
		}
		if err := pkt.WriteString(line); err != nil {
			return err
		}
	}
	return pkt.Flush()
}

// oneLine makes a reason fit into one line of a report.
func oneLine(reason string) string {
	return clip(strings.Join(strings.Fields(reason), " "))
}
