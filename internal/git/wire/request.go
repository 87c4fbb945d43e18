package wire

import (
	"io"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/pktline"
)

// ackMode is how haves are acknowledged in protocol v0.
type ackMode int

const (
	ackOnce     ackMode = iota // the first common commit only
	ackContinue                // multi_ack
	ackDetailed                // multi_ack_detailed
)

// fetchRequest is a request for objects as it stands on the wire.
type fetchRequest struct {
	Fetch
	wants, haves, shallow idSet
	wantRefs              []string
	hasFilter             bool
	done, waitForDone     bool
	// Of v0 only:
	acks         ackMode
	noDone       bool
	sidebandSize int  // 0: the pack comes bare
	ended        bool // the request stops after its wants
}

// argument takes one line that v0 and v2 share.
func (r *fetchRequest) argument(line string) (known bool, err error) {
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "want":
		id, err := parseID(line, value)
		r.wants.add(id)
		return true, err
	case "have":
		id, err := parseID(line, value)
		r.haves.add(id)
		return true, err
	case "shallow":
		id, err := parseID(line, value)
		r.shallow.add(id)
		return true, err
	case "deepen":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n <= 0 {
			return true, malformed("invalid deepen %q, want a number of commits", clip(value))
		}
		r.Depth = int(n)
	case "deepen-since":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return true, malformed("invalid deepen-since %q, want seconds since 1970", clip(value))
		}
		r.DeepenSince = n
	case "deepen-not":
		r.DeepenNot = append(r.DeepenNot, value)
	case "filter":
		if r.hasFilter {
			return true, refuse("multiple filter-specs cannot be combined")
		}
		r.hasFilter = true
		r.Filter, err = ParseFilter(value)
		return true, err
	default:
		return r.option(line), nil
	}
	return true, nil
}

// option takes a word that is a capability in v0 and a line in v2.
func (r *fetchRequest) option(word string) (known bool) {
	switch word {
	case "thin-pack":
		r.ThinPack = true
	case "ofs-delta":
		r.OfsDelta = true
	case "include-tag":
		r.IncludeTag = true
	case "no-progress":
		r.NoProgress = true
	case "deepen-relative":
		r.DeepenRelative = true
	default:
		return false
	}
	return true
}

// capability takes a word that follows the first want in v0. Unknown words are
// passed over, as Git does.
func (r *fetchRequest) capability(word string) error {
	switch word {
	case "multi_ack":
		r.acks = max(r.acks, ackContinue)
	case "multi_ack_detailed":
		r.acks = ackDetailed
	case "no-done":
		r.noDone = true
	case "side-band":
		r.sidebandSize = max(r.sidebandSize, pktline.SidebandSmall)
	case "side-band-64k":
		r.sidebandSize = pktline.Sideband64k
	default:
		r.option(word)
	}
	return checkObjectFormat(word)
}

// checkObjectFormat refuses a capability that asks for another hash than ours.
func checkObjectFormat(word string) error {
	if format, ok := strings.CutPrefix(word, "object-format="); ok && format != "sha1" {
		return refuse("object format %q is not supported, repositories here are sha1", clip(format))
	}
	return nil
}

// finish checks the request as a whole.
func (r *fetchRequest) finish() error {
	if r.Depth > 0 && (r.DeepenSince != 0 || len(r.DeepenNot) > 0) {
		return refuse("deepen and deepen-since (or deepen-not) cannot be used together")
	}
	r.Wants, r.ClientShallow = r.wants.ids, r.shallow.ids
	return nil
}

// parseFetchV0 reads a whole v0 or v1 request: wants and what goes with them up
// to a flush packet, then haves up to a flush packet or "done". Without wants
// the request asks for nothing.
func parseFetchV0(in *lines) (*fetchRequest, error) {
	r := &fetchRequest{}
	for {
		p, err := in.must()
		if err != nil {
			return nil, err
		}
		if p.Kind == pktline.Flush {
			break
		}
		if err := r.needLine(p); err != nil {
			return nil, err
		}
	}
	if err := r.finish(); err != nil || len(r.Wants) == 0 {
		return r, err
	}
	return r, r.readHaves(in)
}

// needLine takes one line of the first part of a v0 request.
func (r *fetchRequest) needLine(p pktline.Packet) error {
	line := string(p.Line())
	if rest, ok := strings.CutPrefix(line, "want "); ok {
		id, words, _ := strings.Cut(rest, " ")
		if _, err := r.argument("want " + id); err != nil {
			return err
		}
		for word := range strings.FieldsSeq(words) {
			if err := r.capability(word); err != nil {
				return err
			}
		}
		return nil
	}
	switch key, _, _ := strings.Cut(line, " "); key {
	case "shallow", "deepen", "deepen-since", "deepen-not", "filter":
		_, err := r.argument(line)
		return err
	}
	return malformed("expected a want, got %q", clip(line))
}

// readHaves reads the second part of a v0 request. It may be missing when the
// client only asks for its new shallow boundary.
func (r *fetchRequest) readHaves(in *lines) error {
	p, err := in.next()
	if err == io.EOF {
		r.ended = true
		return nil
	}
	for ; ; p, err = in.must() {
		if err != nil {
			return err
		}
		if p.Kind == pktline.Flush {
			return nil
		}
		line := string(p.Line())
		switch {
		case line == "done":
			r.done = true
			return nil
		case p.Kind == pktline.Data && strings.HasPrefix(line, "have "):
			if _, err := r.argument(line); err != nil {
				return err
			}
		default:
			return malformed("expected a have, got %q", clip(line))
		}
	}
}

// v2Request is the frame of a v2 request; its arguments are still to be read.
type v2Request struct {
	command string
	args    bool // a delimiter came: arguments follow
}

// parseV2 reads the command and the capabilities of a v2 request. An empty
// command means that nothing is asked.
func parseV2(in *lines) (v2Request, error) {
	var r v2Request
	for first := true; ; first = false {
		p, err := in.must()
		if err != nil {
			return r, err
		}
		switch p.Kind {
		case pktline.Flush:
			if r.command == "" && !first {
				return r, malformed("no command requested")
			}
			return r, nil
		case pktline.Delim:
			if r.command == "" {
				return r, malformed("no command requested")
			}
			r.args = true
			return r, nil
		case pktline.ResponseEnd:
			return r, malformed("unexpected response end packet")
		}
		if err := r.capability(string(p.Line())); err != nil {
			return r, err
		}
	}
}

// capability takes one line before the arguments.
func (r *v2Request) capability(line string) error {
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "command":
		if r.command != "" {
			return malformed("more than one command: %q and %q", r.command, clip(value))
		}
		if value != "ls-refs" && value != "fetch" {
			return refuse("invalid command %q", clip(value))
		}
		r.command = value
		return nil
	case "agent", "server-option", "session-id":
		return nil
	case "object-format":
		return checkObjectFormat(line)
	}
	return refuse("unknown capability %q", clip(line))
}

// each calls take for every argument line up to the flush packet.
func (r *v2Request) each(in *lines, take func(line string) error) error {
	for r.args {
		p, err := in.must()
		if err != nil {
			return err
		}
		switch p.Kind {
		case pktline.Flush:
			return nil
		case pktline.Data:
			if err := take(string(p.Line())); err != nil {
				return err
			}
		default:
			return malformed("expected a flush packet after the arguments, got %s", p.Kind)
		}
	}
	return nil
}

// parseFetchV2 reads the arguments of a v2 fetch.
func parseFetchV2(frame v2Request, in *lines) (*fetchRequest, error) {
	r := &fetchRequest{sidebandSize: pktline.Sideband64k}
	err := frame.each(in, func(line string) error {
		if name, ok := strings.CutPrefix(line, "want-ref "); ok {
			r.wantRefs = append(r.wantRefs, name)
			return nil
		}
		switch line {
		case "done":
			r.done = true
			return nil
		case "wait-for-done":
			r.waitForDone = true
			return nil
		}
		known, err := r.argument(line)
		if err == nil && !known {
			return refuse("unexpected line %q", clip(line))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, r.finish()
}

// lsRefsRequest is a v2 ls-refs.
type lsRefsRequest struct {
	peel, symrefs, unborn bool
	prefixes              []string // none: all refs
}

// maxPrefixes is how many ref prefixes are honoured. They are a hint: with more
// of them all refs are listed.
const maxPrefixes = 65536

// parseLsRefs reads the arguments of a v2 ls-refs.
func parseLsRefs(frame v2Request, in *lines) (*lsRefsRequest, error) {
	r := &lsRefsRequest{}
	all := false
	err := frame.each(in, func(line string) error {
		switch line {
		case "peel":
			r.peel = true
			return nil
		case "symrefs":
			r.symrefs = true
			return nil
		case "unborn":
			r.unborn = true
			return nil
		}
		prefix, ok := strings.CutPrefix(line, "ref-prefix ")
		if !ok {
			return refuse("unexpected line %q", clip(line))
		}
		all = all || prefix == "" || len(r.prefixes) == maxPrefixes
		if !all {
			r.prefixes = append(r.prefixes, prefix)
		}
		return nil
	})
	if all {
		r.prefixes = nil
	}
	return r, err
}
