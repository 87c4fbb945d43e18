package tree

import (
	"bytes"
	"context"
	"sync"
)

// Memory keeps objects in memory. It may be used at the same time; the zero value
// is ready.
type Memory struct {
	mu      sync.Mutex
	objects map[Digest][]byte
}

// Put keeps a copy of o.
func (m *Memory) Put(_ context.Context, o Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[Digest][]byte{}
	}
	if _, ok := m.objects[o.Digest]; !ok {
		m.objects[o.Digest] = bytes.Clone(o.Bytes)
	}
	return nil
}

// Get gives the objects that digests name. See Source.
func (m *Memory) Get(_ context.Context, digests []Digest, fn func(d Digest, b []byte) error) error {
	var missing []Digest
	for _, d := range digests {
		m.mu.Lock()
		b, ok := m.objects[d]
		m.mu.Unlock()
		if !ok {
			missing = append(missing, d)
			continue
		}
		if err := fn(d, b); err != nil {
			return err
		}
	}
	if missing != nil {
		return &MissingError{Digests: missing}
	}
	return nil
}

// Has reports whether there is an object.
func (m *Memory) Has(d Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.objects[d]
	return ok
}

// Each calls fn for every object, in no order.
func (m *Memory) Each(fn func(d Digest, b []byte)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d, b := range m.objects {
		fn(d, b)
	}
}

// Delete forgets an object.
func (m *Memory) Delete(d Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, d)
}

var _ Source = (*Memory)(nil)
