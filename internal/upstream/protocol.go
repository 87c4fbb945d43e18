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

// fetch asks for the objects of wants without those that haves imply. The pack
// ends with io.EOF only when the upstream has sent it whole.
func (r *remote) fetch(ctx context.Context, wants, haves []object.ID) (io.ReadCloser, error) {
	args := []string{"thin-pack", "no-progress", "ofs-delta"}
	for _, id := range wants {
		args = append(args, "want "+id.String())
	}
	for _, id := range haves {
		args = append(args, "have "+id.String())
	}
	body, err := r.command(ctx, "fetch", append(args, "done"))
	if err != nil {
		return nil, err
	}
	p := &packBody{body: body, in: pktline.NewReader(bufio.NewReaderSize(body, 64<<10))}
	if err := p.begin(); err != nil {
		body.Close()
		return nil, err
	}
	return p, nil
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
