package wire

import (
	"bytes"
	"io"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/git/refname"
)

// pushRequest is the head of a receive-pack request; a pack follows it when a
// command needs one.
type pushRequest struct {
	Push
	report, sideband, options bool
}

// parsePush reads commands up to a flush packet, then push options if the
// client said that it sends some. No commands at all are a push of nothing.
func parsePush(in *lines) (*pushRequest, error) {
	r := &pushRequest{}
	first := true
	for {
		p, err := in.must()
		if err != nil {
			return nil, err
		}
		if p.Kind == pktline.Flush {
			break
		}
		if p.Kind != pktline.Data {
			return nil, malformed("expected a command, got a %s packet", p.Kind)
		}
		if len(r.Commands) == in.limits.Commands {
			return nil, refuse("a push changes at most %d refs, push fewer at a time", in.limits.Commands)
		}
		if err := r.line(p, &first); err != nil {
			return nil, err
		}
	}
	if r.options {
		return r, r.readOptions(in)
	}
	return r, nil
}

// line takes one line of the head. The first command carries capabilities.
func (r *pushRequest) line(p pktline.Packet, first *bool) error {
	body, caps, _ := bytes.Cut(p.Data, []byte{0})
	line := strings.TrimSuffix(string(body), "\n")
	if rest, ok := strings.CutPrefix(line, "shallow "); ok {
		id, err := parseID(line, rest)
		r.Shallow = append(r.Shallow, id)
		return err
	}
	if *first {
		*first = false
		for word := range strings.FieldsSeq(string(caps)) {
			if err := r.capability(word); err != nil {
				return err
			}
		}
	}
	if line == "push-cert" {
		return refuse("signed pushes are not supported, push without --signed")
	}
	return r.command(line)
}

// command takes "<old> <new> <ref>".
func (r *pushRequest) command(line string) error {
	const width = 2 * object.Size
	if len(line) < 2*width+3 || line[width] != ' ' || line[2*width+1] != ' ' {
		return malformed("expected old and new object id and a ref, got %q", clip(line))
	}
	before, err := parseID(line, line[:width])
	if err != nil {
		return err
	}
	after, err := parseID(line, line[width+1:2*width+1])
	if err != nil {
		return err
	}
	name := line[2*width+2:]
	if len(name) > refname.MaxLen {
		return malformed("the ref name %q is longer than %d bytes", clip(name), refname.MaxLen)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return malformed("the ref name %q has control characters", clip(name))
	}
	r.Commands = append(r.Commands, Command{Ref: name, Old: before, New: after})
	return nil
}

// capability takes one word; unknown ones are passed over, as Git does.
func (r *pushRequest) capability(word string) error {
	switch word {
	case "report-status", "report-status-v2":
		r.report = true
	case "side-band-64k":
		r.sideband = true
	case "atomic":
		r.Atomic = true
	case "push-options":
		r.options = true
	}
	return checkObjectFormat(word)
}

// readOptions reads push options up to a flush packet.
func (r *pushRequest) readOptions(in *lines) error {
	for {
		p, err := in.must()
		if err != nil {
			return err
		}
		switch p.Kind {
		case pktline.Flush:
			return nil
		case pktline.Data:
			r.Options = append(r.Options, string(p.Line()))
		default:
			return malformed("expected a push option, got a %s packet", p.Kind)
		}
	}
}

// needsPack reports whether a pack follows the head.
func (r *pushRequest) needsPack() bool {
	for _, c := range r.Commands {
		if !c.New.IsZero() {
			return true
		}
	}
	return false
}

// repeated returns a ref that more than one command names.
func (r *pushRequest) repeated() (string, bool) {
	seen := make(map[string]bool, len(r.Commands))
	for _, c := range r.Commands {
		if seen[c.Ref] {
			return c.Ref, true
		}
		seen[c.Ref] = true
	}
	return "", false
}

// packReader is the rest of the request as a Receiver reads it.
type packReader struct {
	in   io.Reader
	done func()
	err  error // what reading met, if not the end
}

// Read calls done once when the input has ended.
func (p *packReader) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	if err == io.EOF {
		if p.done != nil {
			p.done()
			p.done = nil
		}
	} else if err != nil && p.err == nil {
		p.err = err
	}
	return n, err
}
