package workspace

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/tree"
)

// The stat cache is a file: a header, a record for each directory, an index of
// records by the hash of their paths. It is a cache: a file that is damaged, of
// another version or of other secrets counts as none.
//
//	header  "CSC2", key (32), fingerprint of the secrets under the key (32)
//	record  CRC-32C of the payload (4), length of the payload (4), payload
//	payload path; number of objects, their digests, the directory's own last;
//	        number of entries; for each inode (0: it is not trusted, or it is a
//	        directory), ctime in seconds and nanoseconds, length of the entry, the
//	        entry as a tree holds it
//	index   for each record hash (8), place (8), in order
//	footer  number of records (8), place of the index (8), CRC-32C of index (4), "CSC2"
const (
	cacheMagic  = "CSC2"
	cacheHeader = 4 + 32 + 32
	cacheFooter = 8 + 8 + 4 + 4
	maxRecord   = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type place struct{ hash, at uint64 }

func pathHash(path string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	return h.Sum64()
}

// cacheReader looks directories up in a stat cache.
type cacheReader struct {
	f     *os.File
	index []place
}

// record is what a cache knows of one directory. Where it has objects, they are
// those that its entries make.
type record struct {
	objects []byte // digests
	entries []byte
	left    uint64
}

// digest is that of the directory, and whether it has pages.
func (r *record) digest() (d tree.Digest, paged, ok bool) {
	if len(r.objects) < len(d) {
		return d, false, false
	}
	copy(d[:], r.objects[len(r.objects)-len(d):])
	return d, len(r.objects) > len(d), true
}

// cached is one entry of a record.
type cached struct {
	ino   uint64
	ctime tree.Time
	enc   []byte
	head  tree.Head
}

// openCache opens the cache at path. It returns nil if there is none of use.
func openCache(path string, s *searcher) *cacheReader {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	c := &cacheReader{f: f}
	if !c.load(s) {
		f.Close()
		return nil
	}
	return c
}

func (c *cacheReader) load(s *searcher) bool {
	var head [cacheHeader]byte
	st, err := c.f.Stat()
	if err != nil || st.Size() < cacheHeader+cacheFooter {
		return false
	}
	if _, err := c.f.ReadAt(head[:], 0); err != nil || string(head[:4]) != cacheMagic || !bytes.Equal(head[36:], s.fingerprint(head[4:36])) {
		return false
	}
	var foot [cacheFooter]byte
	end := st.Size() - cacheFooter
	if _, err := c.f.ReadAt(foot[:], end); err != nil || string(foot[20:]) != cacheMagic {
		return false
	}
	n, at := binary.BigEndian.Uint64(foot[:]), binary.BigEndian.Uint64(foot[8:])
	if at > uint64(end) || n != (uint64(end)-at)/16 || (uint64(end)-at)%16 != 0 {
		return false
	}
	b := make([]byte, uint64(end)-at)
	if _, err := c.f.ReadAt(b, int64(at)); err != nil || crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(foot[16:]) {
		return false
	}
	c.index = make([]place, n)
	for i := range c.index {
		c.index[i] = place{binary.BigEndian.Uint64(b[16*i:]), binary.BigEndian.Uint64(b[16*i+8:])}
	}
	return true
}

func (c *cacheReader) close() {
	if c != nil {
		c.f.Close()
	}
}

// find returns the record of the directory at path, empty if there is none.
func (c *cacheReader) find(path string) record {
	if c == nil {
		return record{}
	}
	h := pathHash(path)
	i, _ := slices.BinarySearchFunc(c.index, h, func(p place, h uint64) int { return cmp.Compare(p.hash, h) })
	for ; i < len(c.index) && c.index[i].hash == h; i++ {
		if r, ok := c.read(int64(c.index[i].at), path); ok {
			return r
		}
	}
	return record{}
}

func (c *cacheReader) read(at int64, path string) (r record, ok bool) {
	// Most records have a few kilobytes: one read gets them.
	first := make([]byte, 4096)
	n, _ := c.f.ReadAt(first, at)
	if n < 8 {
		return r, false
	}
	size := binary.BigEndian.Uint32(first[4:])
	if size > maxRecord {
		return r, false
	}
	b := first[8:n]
	if uint64(size) > uint64(len(b)) {
		b = make([]byte, size)
		if _, err := c.f.ReadAt(b, at+8); err != nil {
			return r, false
		}
	}
	b = b[:size]
	if crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(first) {
		return r, false
	}
	p, b, ok := cutBytes(b)
	if !ok || string(p) != path {
		return r, false
	}
	objects, k := binary.Uvarint(b)
	if k <= 0 || objects > uint64(len(b)-k)/32 {
		return r, false
	}
	r.objects, b = b[k:k+int(objects)*32], b[k+int(objects)*32:]
	r.left, k = binary.Uvarint(b)
	if k <= 0 {
		return record{}, false
	}
	r.entries = b[k:]
	return r, true
}

func cutBytes(b []byte) (head, rest []byte, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, nil, false
	}
	return b[k : k+int(n)], b[k+int(n):], true
}

// next returns the next entry of the record.
func (r *record) next() (c cached, ok bool) {
	if r.left == 0 {
		return c, false
	}
	r.left--
	ino, a := binary.Uvarint(r.entries)
	if a <= 0 {
		return c, false
	}
	sec, b := binary.Varint(r.entries[a:])
	if b <= 0 {
		return c, false
	}
	nsec, d := binary.Uvarint(r.entries[a+b:])
	if d <= 0 {
		return c, false
	}
	enc, rest, ok := cutBytes(r.entries[a+b+d:])
	if !ok {
		return c, false
	}
	head, ok := tree.DecodeHead(enc)
	if !ok {
		return c, false
	}
	r.entries = rest
	return cached{ino: ino, ctime: tree.Time{Sec: sec, Nsec: uint32(nsec)}, enc: enc, head: head}, true
}

// has reports whether the record's directory had the object d.
func (r *record) has(d tree.Digest) bool {
	for i := 0; i+32 <= len(r.objects); i += 32 {
		if string(r.objects[i:i+32]) == string(d[:]) {
			return true
		}
	}
	return false
}

// recordWriter gathers a record.
type recordWriter struct {
	objects []byte
	entries []byte
	n       uint64
}

func (r *recordWriter) object(d tree.Digest) { r.objects = append(r.objects, d[:]...) }

func (r *recordWriter) entry(ino uint64, ctime tree.Time, enc []byte) {
	r.n++
	r.entries = binary.AppendUvarint(r.entries, ino)
	r.entries = binary.AppendVarint(r.entries, ctime.Sec)
	r.entries = binary.AppendUvarint(r.entries, uint64(ctime.Nsec))
	r.entries = binary.AppendUvarint(r.entries, uint64(len(enc)))
	r.entries = append(r.entries, enc...)
}

// cacheWriter writes a new cache beside the old one. It may be used at the same
// time. It ends in commit or abort.
type cacheWriter struct {
	path  string
	mu    sync.Mutex
	f     *os.File
	w     *bufio.Writer
	at    uint64
	index []place
	err   error
}

// createCache begins a cache that is to be at path. Without a path it is nil,
// which takes records and keeps none.
func createCache(path string, s *searcher) (*cacheWriter, error) {
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the stat cache: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".scan-*")
	if err != nil {
		return nil, fmt.Errorf("create the stat cache: %w", err)
	}
	k := make([]byte, 32)
	_, _ = rand.Read(k)
	c := &cacheWriter{path: path, f: f, w: bufio.NewWriterSize(f, 256<<10)}
	c.write([]byte(cacheMagic))
	c.write(k)
	c.write(s.fingerprint(k))
	return c, nil
}

func (c *cacheWriter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
	c.at += uint64(len(b))
}

func (c *cacheWriter) add(path string, r *recordWriter) {
	if c == nil {
		return
	}
	head := binary.AppendUvarint(nil, uint64(len(path)))
	head = append(head, path...)
	head = binary.AppendUvarint(head, uint64(len(r.objects)/32))
	head = append(head, r.objects...)
	head = binary.AppendUvarint(head, r.n)
	size := len(head) + len(r.entries)
	if size > maxRecord {
		return
	}
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, r.entries)
	var frame [8]byte
	binary.BigEndian.PutUint32(frame[:], sum)
	binary.BigEndian.PutUint32(frame[4:], uint32(size))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index = append(c.index, place{pathHash(path), c.at})
	c.write(frame[:])
	c.write(head)
	c.write(r.entries)
}

// finish writes the index, so that the file can be read.
func (c *cacheWriter) finish() error {
	slices.SortFunc(c.index, func(a, b place) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.at, b.at)) })
	var b []byte
	for _, p := range c.index {
		b = binary.BigEndian.AppendUint64(b, p.hash)
		b = binary.BigEndian.AppendUint64(b, p.at)
	}
	foot := binary.BigEndian.AppendUint64(nil, uint64(len(c.index)))
	foot = binary.BigEndian.AppendUint64(foot, c.at)
	foot = binary.BigEndian.AppendUint32(foot, crc32.Checksum(b, castagnoli))
	c.write(b)
	c.write(append(foot, cacheMagic...))
	if c.err == nil {
		c.err = c.w.Flush()
	}
	if c.err != nil {
		return fmt.Errorf("write the stat cache: %w", c.err)
	}
	return nil
}

// commit puts a finished cache in place of the old one.
func (c *cacheWriter) commit() error {
	if c == nil || c.f == nil {
		return nil
	}
	err := errors.Join(c.err, c.f.Close())
	if err == nil {
		err = os.Rename(c.f.Name(), c.path)
	}
	if err != nil {
		os.Remove(c.f.Name())
		err = fmt.Errorf("write the stat cache: %w", err)
	}
	c.f = nil
	return err
}

// abort drops the cache; after commit it does nothing.
func (c *cacheWriter) abort() {
	if c != nil && c.f != nil {
		c.f.Close()
		os.Remove(c.f.Name())
		c.f = nil
	}
}
