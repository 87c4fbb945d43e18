package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/repo"
)

// maxListing bounds a list of refs, in bytes.
const maxListing = 32 << 20

// refList is the answer to ls-refs.
type refList struct {
	refs map[string]object.ID // branches and tags by their full names
	head string
	max  int
}

// read parses an answer to its end.
func (l *refList) read(body io.Reader) error {
	in := pktline.NewReader(bufio.NewReaderSize(body, 64<<10))
	total := 0
	for {
		p, err := in.Next()
		if err != nil {
			return garbled(err)
		}
		if p.Kind != pktline.Data {
			return nil
		}
		if total += len(p.Data); total > maxListing {
			return refused(nil, "the upstream lists more than %d bytes of refs", maxListing)
		}
		if err := l.line(string(p.Line())); err != nil {
			return err
		}
	}
}

func (l *refList) line(line string) error {
	if message, ok := strings.CutPrefix(line, "ERR "); ok {
		return refused(nil, "the upstream says: %s", printable(message))
	}
	value, rest, ok := strings.Cut(line, " ")
	name, attributes, _ := strings.Cut(rest, " ")
	if name == "HEAD" {
		for a := range strings.FieldsSeq(attributes) {
			if target, ok := strings.CutPrefix(a, "symref-target:"); ok && refname.IsBranch(target) && refname.Check(target) == nil {
				l.head = target
			}
		}
		return nil
	}
	id, err := object.ParseID(value)
	if err != nil || !ok || id.IsZero() {
		return garbled(fmt.Errorf("line %.80q of the list of refs", line))
	}
	if !strings.HasPrefix(name, refname.HeadsPrefix) && !strings.HasPrefix(name, refname.TagsPrefix) {
		return nil // the prefixes are a hint that a server may ignore
	}
	if refname.Check(name) != nil {
		return garbled(fmt.Errorf("ref name %.80q", name))
	}
	if l.refs[name] = id; len(l.refs) > l.max {
		return refused(nil, "the upstream has more than %d branches and tags", l.max)
	}
	return nil
}

// maxMessage bounds what is repeated of an upstream's message, in bytes.
const maxMessage = 200

// printable is an upstream's message as it may be repeated.
func printable(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(message, ""))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	return message
}

// Bounds of what an upstream is told that is here, in commits.
const (
	firstHaves = 32   // in the first round; each next has twice as many
	mostHaves  = 1024 // in one round
	maxHaves   = 8192 // in all
	maxInVain  = 512  // unknown to the upstream, once it knew one
)

// fetch asks for the objects of wants without those that it learns in rounds are
// here and there. The pack ends with io.EOF only when the upstream has sent it
// whole.
func (r *remote) fetch(ctx context.Context, wants []object.ID, here *repo.Common) (io.ReadCloser, error) {
	var known []object.ID
	told, vain := 0, 0
	for size := firstHaves; ; size = min(2*size, mostHaves) {
		next := here.Next(size)
		told += len(next)
		last := len(next) < size || told >= maxHaves || len(known) > 0 && vain >= maxInVain
		answer, err := r.round(ctx, wants, append(known, next...), last)
		if err != nil {
			return nil, err
		}
		both, ready, err := answer.acknowledged(last)
		if err == nil && ready {
			err = answer.begin()
		}
		if err == nil && ready {
			return answer, nil
		}
		answer.Close()
		if err != nil {
			return nil, err
		}
		vain += len(next)
		for _, id := range next {
			if both[id] {
				known, vain = append(known, id), 0
				here.Known(id)
			}
		}
	}
}

// round tells the upstream of commits that are here. The last one demands the
// pack.
func (r *remote) round(ctx context.Context, wants, haves []object.ID, last bool) (*packBody, error) {
	args := []string{"thin-pack", "no-progress", "ofs-delta"}
	for _, id := range wants {
		args = append(args, "want "+id.String())
	}
	for _, id := range haves {
		args = append(args, "have "+id.String())
	}
	if last {
		args = append(args, "done")
	}
	body, err := r.command(ctx, "fetch", args)
	if err != nil {
		return nil, err
	}
	return &packBody{body: body, in: pktline.NewReader(bufio.NewReaderSize(body, 64<<10))}, nil
}

// acknowledged reads which commits the upstream has too, and whether it sends
// the pack now. After the last round it does so without a word.
func (p *packBody) acknowledged(last bool) (both map[object.ID]bool, ready bool, err error) {
	if last {
		return nil, true, nil
	}
	both = make(map[object.ID]bool)
	for range maxSections {
		packet, err := p.in.Next()
		if err != nil {
			return nil, false, garbled(err)
		}
		line := string(packet.Line())
		switch {
		case packet.Kind != pktline.Data:
			return both, ready, nil
		case line == "ready":
			ready = true
		case strings.HasPrefix(line, "ERR "):
			return nil, false, refused(nil, "the upstream says: %s", printable(line[4:]))
		case strings.HasPrefix(line, "ACK "):
			id, err := object.ParseID(line[4:])
			if err != nil {
				return nil, false, garbled(fmt.Errorf("line %.80q of the acknowledgments", line))
			}
			both[id] = true
		case line != "acknowledgments" && line != "NAK":
			return nil, false, garbled(fmt.Errorf("line %.80q of the acknowledgments", line))
		}
	}
	return nil, false, refused(nil, "the upstream acknowledges too much")
}

// packBody reads the pack out of the answer to fetch.
type packBody struct {
	body io.Closer
	in   *pktline.Reader
	rest []byte
	err  error
}

// maxSections bounds the packets before the pack.
const maxSections = 100_000

// begin reads the sections before the pack.
func (p *packBody) begin() error {
	for range maxSections {
		packet, err := p.in.Next()
		if err != nil {
			return garbled(err)
		}
		line := string(packet.Line())
		switch {
		case packet.Kind == pktline.Delim:
		case packet.Kind != pktline.Data:
			return refused(nil, "the upstream sends no pack")
		case line == "packfile":
			return nil
		case strings.HasPrefix(line, "ERR "):
			return refused(nil, "the upstream says: %s", printable(line[4:]))
		}
	}
	return refused(nil, "the upstream sends no pack")
}

// Read implements io.Reader.
func (p *packBody) Read(b []byte) (int, error) {
	for len(p.rest) == 0 && p.err == nil {
		p.rest, p.err = p.next()
	}
	if len(p.rest) == 0 {
		return 0, p.err
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// next returns the payload of the next packet with data, perhaps none.
func (p *packBody) next() ([]byte, error) {
	packet, err := p.in.Next()
	switch {
	case err != nil:
		return nil, garbled(err)
	case packet.Kind != pktline.Data:
		return nil, io.EOF
	case len(packet.Data) == 0:
		return nil, garbled(fmt.Errorf("a packet without a band"))
	}
	switch band, data := packet.Data[0], packet.Data[1:]; band {
	case 1:
		return data, nil
	case 2:
		return nil, nil
	default:
		return nil, &Error{Message: "the upstream says: " + printable(string(bytes.TrimSpace(data))), Transient: true}
	}
}

// Close ends the request.
func (p *packBody) Close() error { return p.body.Close() }
