package wire

import (
	"context"
	"io"
)

// capabilities that every v0 upload-pack advertisement has.
const uploadCapabilities = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not " +
	"deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want " +
	"allow-reachable-sha1-in-want no-done"

const receiveCapabilities = "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options"

// AdvertiseUpload writes what upload-pack says first: the refs in versions 0
// and 1, the server's abilities in version 2.
func (s *Server) AdvertiseUpload(ctx context.Context, w io.Writer, u Uploader, version int) error {
	out := newOutput(w)
	if version == 2 {
		lines := []string{
			"version 2",
			"agent=" + s.agent(),
			"ls-refs=unborn",
			"fetch=shallow wait-for-done filter ref-in-want",
			"server-option",
			"object-format=sha1",
		}
		for _, line := range lines {
			if err := out.pkt.WriteString(line); err != nil {
				return err
			}
		}
		return out.finish()
	}
	list := refList{out: out, tail: " object-format=sha1 agent=" + s.agent()}
	if err := list.start(version); err != nil {
		return err
	}
	err := u.Refs(ctx, nil, func(r Ref) error {
		if r.ID.IsZero() {
			return nil // an unborn HEAD has no line in these versions
		}
		if list.caps == "" {
			list.caps = uploadCapabilities
			if r.Name == "HEAD" && r.Symref != "" {
				list.caps += " symref=HEAD:" + r.Symref
			}
			list.caps += " filter"
		}
		if err := list.add(r.ID.String(), r.Name); err != nil {
			return err
		}
		if r.Peeled.IsZero() {
			return nil
		}
		return list.add(r.Peeled.String(), r.Name+"^{}")
	})
	if err != nil {
		return err
	}
	if list.caps == "" {
		list.caps = uploadCapabilities + " filter"
	}
	return list.end()
}

// AdvertiseReceive writes what receive-pack says first. A client that asks for
// version 2 is answered in version 0: Git has no version 2 of it.
func (s *Server) AdvertiseReceive(ctx context.Context, w io.Writer, rc Receiver, version int) error {
	out := newOutput(w)
	adv, err := rc.Advertise(ctx)
	if err != nil {
		return out.fail(err)
	}
	list := refList{out: out, caps: receiveCapabilities, tail: " object-format=sha1 agent=" + s.agent()}
	if err := list.start(version); err != nil {
		return err
	}
	for _, r := range adv.Refs {
		if r.ID.IsZero() {
			continue
		}
		if err := list.add(r.ID.String(), r.Name); err != nil {
			return err
		}
	}
	for _, id := range adv.Haves {
		if err := list.add(id.String(), ".have"); err != nil {
			return err
		}
	}
	return list.end()
}

// refList writes a v0 or v1 ref advertisement, whose first line carries the
// capabilities.
type refList struct {
	out        *output
	caps, tail string
	begun      bool
	line       []byte
}

// start writes what precedes the refs.
func (l *refList) start(version int) error {
	if version == 1 {
		return l.out.pkt.WriteString("version 1")
	}
	return nil
}

// add writes one ref.
func (l *refList) add(id, name string) error {
	l.line = append(append(append(l.line[:0], id...), ' '), name...)
	if !l.begun {
		l.begun = true
		l.line = append(append(append(l.line, 0), l.caps...), l.tail...)
	}
	l.line = append(l.line, '\n')
	return l.out.pkt.WriteData(l.line)
}

// end completes the advertisement.
func (l *refList) end() error {
	if !l.begun {
		if err := l.add("0000000000000000000000000000000000000000", "capabilities^{}"); err != nil {
			return err
		}
	}
	return l.out.finish()
}
