package wire

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
)

// uploadV2 answers one v2 request.
func (s *Server) uploadV2(ctx context.Context, in *lines, out *output, u Uploader) error {
	frame, err := parseV2(in)
	if err != nil {
		return out.fail(err)
	}
	switch frame.command {
	case "ls-refs":
		req, err := parseLsRefs(frame, in)
		if err != nil {
			return out.fail(err)
		}
		return lsRefs(ctx, req, out, u)
	case "fetch":
		req, err := parseFetchV2(frame, in)
		if err != nil {
			return out.fail(err)
		}
		return s.fetchV2(ctx, req, out, u)
	}
	return nil
}

// lsRefs answers ls-refs.
func lsRefs(ctx context.Context, req *lsRefsRequest, out *output, u Uploader) error {
	var line []byte
	err := u.Refs(ctx, req.prefixes, func(r Ref) error {
		line = line[:0]
		switch {
		case !r.ID.IsZero():
			line = append(line, r.ID.String()...)
		case req.unborn && req.symrefs && r.Symref != "":
			line = append(line, "unborn"...)
		default:
			return nil
		}
		line = append(append(line, ' '), r.Name...)
		if req.symrefs && r.Symref != "" {
			line = append(append(line, " symref-target:"...), r.Symref...)
		}
		if req.peel && !r.Peeled.IsZero() {
			line = append(append(line, " peeled:"...), r.Peeled.String()...)
		}
		line = append(line, '\n')
		return out.pkt.WriteData(line)
	})
	if err != nil {
		return err
	}
	return out.finish()
}

// fetchV2 answers fetch. All that can be refused is decided before the first
// byte of the answer.
func (s *Server) fetchV2(ctx context.Context, req *fetchRequest, out *output, u Uploader) error {
	wanted, err := wantRefs(ctx, req, u)
	if err != nil {
		return out.fail(err)
	}
	if len(req.Wants) == 0 && !req.waitForDone {
		return out.Flush()
	}
	if err := u.CheckWants(ctx, req.Wants); err != nil {
		return out.fail(err)
	}
	if err := commonHaves(ctx, req, u); err != nil {
		return out.fail(err)
	}
	acknowledge := len(req.haves.ids) > 0 && !req.done
	send := !acknowledge && len(req.Wants) > 0
	if acknowledge && !req.waitForDone && len(req.Haves) > 0 {
		if send, err = u.Ready(ctx, req.Wants, req.Haves); err != nil {
			return out.fail(err)
		}
	}
	var shallow ShallowUpdate
	if send {
		if shallow, err = boundary(ctx, req, u); err != nil {
			return out.fail(err)
		}
	}
	if acknowledge {
		if err := writeAcks(out, req.Haves, send); err != nil {
			return err
		}
	}
	if !send {
		return out.finish()
	}
	if err := writeSections(out, req, wanted, shallow); err != nil {
		return err
	}
	return s.sendPack(ctx, req, shallow, out, u)
}

// wantRefs resolves want-ref lines into wants.
func wantRefs(ctx context.Context, req *fetchRequest, u Uploader) ([]Ref, error) {
	if len(req.wantRefs) == 0 {
		return nil, nil
	}
	asked := make(map[string]object.ID, len(req.wantRefs))
	for _, name := range req.wantRefs {
		if _, twice := asked[name]; twice {
			return nil, refuse("duplicate want-ref %s", clip(fmt.Sprintf("%q", name)))
		}
		asked[name] = object.Zero
	}
	err := u.Refs(ctx, req.wantRefs, func(r Ref) error {
		if _, ok := asked[r.Name]; ok {
			asked[r.Name] = r.ID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []Ref
	for _, name := range req.wantRefs {
		id := asked[name]
		if id.IsZero() {
			return nil, refuse("unknown ref %s", clip(fmt.Sprintf("%q", name)))
		}
		found = append(found, Ref{Name: name, ID: id})
		req.wants.add(id)
	}
	req.Wants = req.wants.ids
	return found, nil
}

// writeAcks writes the acknowledgments section.
func writeAcks(out *output, common []object.ID, ready bool) error {
	if err := out.pkt.WriteString("acknowledgments"); err != nil {
		return err
	}
	if len(common) == 0 {
		if err := out.pkt.WriteString("NAK"); err != nil {
			return err
		}
	}
	for _, id := range common {
		if err := out.pkt.WriteString("ACK " + id.String()); err != nil {
			return err
		}
	}
	if !ready {
		return nil
	}
	if err := out.pkt.WriteString("ready"); err != nil {
		return err
	}
	return out.pkt.Delim()
}

// writeSections writes what stands between the acknowledgments and the pack, in
// the order that Git documents and its client insists on (the server of git
// 2.39 has it the other way round).
func writeSections(out *output, req *fetchRequest, wanted []Ref, shallow ShallowUpdate) error {
	if req.Deepens() || len(req.ClientShallow) > 0 {
		if err := out.pkt.WriteString("shallow-info"); err != nil {
			return err
		}
		if err := writeShallow(out, shallow); err != nil {
			return err
		}
		if err := out.pkt.Delim(); err != nil {
			return err
		}
	}
	if len(wanted) > 0 {
		if err := out.pkt.WriteString("wanted-refs"); err != nil {
			return err
		}
		for _, r := range wanted {
			if err := out.pkt.WriteString(r.ID.String() + " " + r.Name); err != nil {
				return err
			}
		}
		if err := out.pkt.Delim(); err != nil {
			return err
		}
	}
	return out.pkt.WriteString("packfile")
}
