package pktline

import (
	"fmt"
	"io"
	"sync"
)

// Payload sizes of side-band packets, in bytes: what follows the length and
// the band number. Git writes packets of at most 65520 and 1000 bytes.
const (
	Sideband64k   = MaxPacket - sidebandHead // for the capability side-band-64k, and protocol v2
	SidebandSmall = 1000 - sidebandHead      // for the capability side-band
)

const sidebandHead = 5 // the length and the band number

// The bands.
const (
	bandData     = 1
	bandProgress = 2
	bandError    = 3
)

// Sideband multiplexes a response: data on band 1, progress on band 2, a last
// error on band 3. Data is gathered into full packets; the other bands are sent
// at once and may overtake gathered data.
//
// One goroutine may write data (Write, ReadFrom, Flush, Close) while others
// call Progress, Fatal and Keepalive. The first error of the output stays.
type Sideband struct {
	data []byte // the gathered packet, behind a free head; the data goroutine's
	max  int    // largest payload

	mu    sync.Mutex // guards what follows
	out   io.Writer
	push  func() error
	text  []byte // packets of the other bands
	stuck error
}

var (
	_ io.Writer     = (*Sideband)(nil)
	_ io.ReaderFrom = (*Sideband)(nil)
)

// NewSideband returns a Sideband that writes to out packets with payloads of at
// most size bytes, Sideband64k or SidebandSmall. push, unless nil, is called to
// send on what out may hold back, after every Progress, Fatal, Keepalive, Flush
// and Close; it never runs at the same time as a Write of out.
func NewSideband(out io.Writer, size int, push func() error) *Sideband {
	return &Sideband{
		data: make([]byte, sidebandHead, min(firstData, sidebandHead+size)),
		max:  size,
		out:  out,
		push: push,
	}
}

// firstData is the size of the buffer for a packet's first bytes: many
// responses need no more.
const firstData = 4 << 10

// full reports whether the gathered packet has its largest size; else there is
// room in it afterwards.
func (s *Sideband) full() bool {
	if len(s.data) < cap(s.data) {
		return false
	}
	if cap(s.data) == sidebandHead+s.max {
		return true
	}
	s.data = append(make([]byte, 0, sidebandHead+s.max), s.data...)
	return false
}

// Write adds p to the data band.
func (s *Sideband) Write(p []byte) (int, error) {
	total := len(p)
	for {
		n := min(len(p), cap(s.data)-len(s.data))
		s.data = append(s.data, p[:n]...)
		p = p[n:]
		if s.full() {
			if err := s.sendData(false); err != nil {
				return total - len(p), err
			}
		}
		if len(p) == 0 {
			return total, nil
		}
	}
}

// ReadFrom adds all of r to the data band, reading straight into packets. No
// lock is held while it waits for r, so Keepalive works meanwhile.
func (s *Sideband) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	for empty := 0; ; {
		n, err := r.Read(s.data[len(s.data):cap(s.data)])
		s.data = s.data[:len(s.data)+n]
		total += int64(n)
		if s.full() {
			if err := s.sendData(false); err != nil {
				return total, err
			}
		}
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		case n > 0:
			empty = 0
		case empty == 100:
			return total, io.ErrNoProgress
		default:
			empty++
		}
	}
}

// Flush sends the data gathered so far.
func (s *Sideband) Flush() error { return s.sendData(true) }

// Close sends the data gathered so far and the flush packet that ends the
// response. It does not close the output.
func (s *Sideband) Close() error {
	if err := s.sendData(false); err != nil {
		return err
	}
	return s.send([]byte("0000"), true)
}

// Progress sends text that the client shows to its user as "remote: …". The
// caller ends lines with "\n", or with "\r" to write over them.
func (s *Sideband) Progress(text string) error { return s.sendText(bandProgress, text) }

// Fatal sends the error text that ends the client's command. It belongs at the
// end of a response, and fits in one packet: more is cut off.
func (s *Sideband) Fatal(text string) error {
	return s.sendText(bandError, text[:min(len(text), s.max)])
}

// Keepalive sends an empty data packet, which clients ignore.
func (s *Sideband) Keepalive() error { return s.send([]byte("0005\x01"), true) }

// sendData sends the gathered packet, if it holds anything.
func (s *Sideband) sendData(push bool) error {
	if len(s.data) == sidebandHead {
		return s.send(nil, push)
	}
	putLength(s.data, len(s.data))
	s.data[4] = bandData
	err := s.send(s.data, push)
	s.data = s.data[:sidebandHead]
	return err
}

// sendText sends text on a band, in as many packets as it needs.
func (s *Sideband) sendText(band byte, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(text) > 0 {
		n := min(len(text), s.max)
		s.text = append(append(s.text[:0], 0, 0, 0, 0, band), text[:n]...)
		putLength(s.text, len(s.text))
		text = text[n:]
		if err := s.sendLocked(s.text, len(text) == 0); err != nil {
			return err
		}
	}
	return nil
}

// send writes a whole packet.
func (s *Sideband) send(packet []byte, push bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(packet, push)
}

// sendLocked writes a whole packet. The caller holds the lock.
func (s *Sideband) sendLocked(packet []byte, push bool) error {
	if s.stuck == nil && len(packet) > 0 {
		_, s.stuck = s.out.Write(packet)
	}
	if s.stuck == nil && push && s.push != nil {
		s.stuck = s.push()
	}
	if s.stuck != nil {
		return fmt.Errorf("write side band: %w", s.stuck)
	}
	return nil
}
