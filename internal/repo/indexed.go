package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

const (
	// spooledIndex is the number of objects from which the index of a received
	// pack goes through a scratch file: before it is read, the larger tables that
	// it is made from are given up.
	spooledIndex = 1 << 16

	// manyObjects is the number of objects from which the memory for a received
	// pack is given up at once. Left to itself the collector lets the heap grow to
	// twice what it found in use while the tables were.
	manyObjects = 1 << 20
)

// Sizes in bytes of a pack index, but for packs over 2 GiB.
const (
	indexOverhead  = 8 + 4*256 + 2*object.Size
	indexPerObject = object.Size + 4 + 4
)

// receiveIndexed is pack.Receive; it returns the index, and the types by index
// position.
func (e *Engine) receiveIndexed(ctx context.Context, src io.Reader, dst pack.Storage, opts pack.Options) (*pack.Index, []object.Type, error) {
	made := madeIndex{scratch: e.cfg.Scratch}
	types, err := made.receive(ctx, src, dst, opts)
	var index *pack.Index
	if err == nil {
		giveUpMemory(len(types))
		index, err = made.open()
	}
	return index, types, errors.Join(err, made.Close())
}

// giveUpMemory frees what was held for a pack of so many objects.
func giveUpMemory(objects int) {
	if objects >= manyObjects {
		debug.FreeOSMemory()
	}
}

// madeIndex is the index of a received pack before it is opened. Close must be
// called.
type madeIndex struct {
	scratch string // directory
	mem     bytes.Buffer
	file    *scratch // instead of mem, for many objects
}

// receive receives the pack and writes its index. What pack.Receive held is free
// when it returns.
func (m *madeIndex) receive(ctx context.Context, src io.Reader, dst pack.Storage, opts pack.Options) ([]object.Type, error) {
	res, err := pack.Receive(ctx, src, dst, opts)
	if err != nil {
		return nil, err
	}
	var w io.Writer = &m.mem
	if res.Count() >= spooledIndex {
		if m.file, err = newScratch(m.scratch); err != nil {
			return nil, err
		}
		w = m.file
	} else {
		m.mem.Grow(indexOverhead + indexPerObject*res.Count())
	}
	if err := res.WriteIndex(w); err != nil {
		return nil, fmt.Errorf("index pack: %w", err)
	}
	return res.Types(), nil
}

// open reads the index.
func (m *madeIndex) open() (index *pack.Index, err error) {
	if m.file != nil {
		index, err = pack.ReadIndex(m.file, m.file.size)
	} else {
		index, err = pack.ParseIndex(m.mem.Bytes())
	}
	if err != nil {
		return nil, fmt.Errorf("index pack: %w", err)
	}
	return index, nil
}

// Close removes the scratch file.
func (m *madeIndex) Close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
