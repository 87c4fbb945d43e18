package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// item is an entry of a manifest.
type item struct {
	path   string
	kind   tree.Type
	target string
	sum    tree.Digest
	size   uint64
}

// itemBytes is about what an item takes in memory beside its path and target.
const itemBytes = 88

// entry is the item as an entry of a tree.
func (i *item) entry() *tree.Entry {
	e := &tree.Entry{Name: i.path[strings.LastIndexByte(i.path, '/')+1:], Type: i.kind}
	switch i.kind {
	case tree.Directory:
		e.Mode = 0o755
	case tree.Symlink:
		e.Mode, e.Target = 0o777, i.target
	default:
		e.Mode, e.Content = 0o644, tree.Content{Size: i.size, Digest: i.sum, Sum: i.sum}
	}
	return e
}

// items returns the entries of a manifest, in order of their paths. They must not be
// changed.
func (e *Engine) items(ctx context.Context, org meta.OrgID, c *Checkpoint) ([]item, error) {
	key := tree.Digest(c.Files.content().Digest)
	if list, ok := e.manifests.Get(key); ok {
		return list, nil
	}
	b, err := e.read(ctx, org, c.Files)
	if err != nil {
		return nil, err
	}
	list, err := decodeItems(b)
	if err != nil {
		return nil, fmt.Errorf("files of checkpoint %q: %w: %w", c.ID, err, meta.ErrCorrupt)
	}
	size := len(list) * itemBytes
	for i := range list {
		size += len(list[i].path) + len(list[i].target)
	}
	e.manifests.Put(key, list, int64(size))
	return list, nil
}

// decodeItems reads the files of a manifest, which were checked when they came in,
// one by one.
func decodeItems(b []byte) ([]item, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var list []item
	fields := make(map[string]json.RawMessage)
	for d.More() {
		clear(fields)
		if err := d.Decode(&fields); err != nil {
			return nil, err
		}
		var i item
		i.path, _ = jsonString(fields["path"])
		switch kind, _ := jsonString(fields["kind"]); kind {
		case "dir":
			i.kind = tree.Directory
		case "symlink":
			i.kind = tree.Symlink
			i.target, _ = jsonString(fields["target"])
		default:
			i.kind = tree.File
			k, size, _ := blobOf(fields, Files)
			i.sum, i.size = k.Sum, size
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b item) int { return comparePaths(a.path, b.path) })
	return list, nil
}

// itemsAfter returns the rest of a list after a path, "" for all.
func itemsAfter(list []item, after string) []item {
	if after == "" {
		return list
	}
	n, found := slices.BinarySearchFunc(list, after, func(i item, path string) int { return comparePaths(i.path, path) })
	if found {
		n++
	}
	return list[n:]
}

func (e *Engine) walkManifest(ctx context.Context, org meta.OrgID, c *Checkpoint, beneath, after string, fn func(path string, entry *tree.Entry) error) error {
	list, err := e.items(ctx, org, c)
	if err != nil {
		return err
	}
	if beneath != "" {
		// What lies beneath a path follows it.
		rest := itemsAfter(list, beneath)
		n := len(rest)
		if i := slices.IndexFunc(rest, func(i item) bool { return !strings.HasPrefix(i.path, beneath+"/") }); i >= 0 {
			n = i
		}
		if at := len(list) - len(rest) - 1; n == 0 && (at < 0 || list[at].path != beneath || list[at].kind != tree.Directory) {
			return &PathError{beneath}
		}
		list = rest[:n]
	}
	list = itemsAfter(list, after)
	for i := range list {
		if err := fn(list[i].path, list[i].entry()); err != nil && err != tree.ErrSkip {
			return err
		}
	}
	return nil
}
