package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

// prepared is a pack in a file that holds one commit with all it names.
type prepared struct {
	path    string
	size    int64 // in bytes
	tip     object.ID
	blobs   []object.ID
	objects int
}

// leafEntries is how many files a prepared pack's directories have.
const leafEntries = 1000

// prepare writes a pack of so many blobs of so many random bytes: as they are, or,
// when small, as text.
func prepare(path string, blobs, size int, text bool) (prepared, error) {
	leaves := (blobs + leafEntries - 1) / leafEntries
	p := prepared{path: path, objects: blobs + leaves + 2}
	f, err := os.Create(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	w := pack.NewWriter(f, uint32(p.objects))
	random := rand.NewChaCha8([32]byte{byte(size), byte(blobs)})
	raw, content := make([]byte, size), []byte(nil)
	var leaf, root []object.Entry
	for i := range blobs {
		random.Read(raw)
		if content = raw; text {
			content = hex.AppendEncode(content[:0:0], raw)
		}
		id := object.Hash(object.Blob, content)
		if _, err := w.Add(object.Blob, content); err != nil {
			return p, err
		}
		p.blobs = append(p.blobs, id)
		leaf = append(leaf, object.Entry{Mode: object.ModeRegular, Name: fmt.Appendf(nil, "f%07d", i), ID: id})
		if len(leaf) < leafEntries && i < blobs-1 {
			continue
		}
		tree := object.EncodeTree(leaf)
		if _, err := w.Add(object.Tree, tree); err != nil {
			return p, err
		}
		root = append(root, object.Entry{Mode: object.ModeDir, Name: fmt.Appendf(nil, "d%05d", len(root)), ID: object.Hash(object.Tree, tree)})
		leaf = leaf[:0]
	}
	if p.tip, err = addCommit(w, root, nil, 0); err != nil {
		return p, err
	}
	if _, err := w.Close(); err != nil {
		return p, err
	}
	info, err := f.Stat()
	if err != nil {
		return p, err
	}
	p.size = info.Size()
	return p, f.Close()
}

// addCommit adds a root tree and a commit of it to a pack.
func addCommit(w *pack.Writer, root []object.Entry, parents []object.ID, n int) (object.ID, error) {
	tree := object.EncodeTree(root)
	if _, err := w.Add(object.Tree, tree); err != nil {
		return object.Zero, err
	}
	agent := object.Signature{Name: "Agent", Email: "agent@example.com", When: 1700000000 + int64(n), Zone: "+0000"}
	commit, err := object.EncodeCommit(&object.CommitData{
		Tree: object.Hash(object.Tree, tree), Parents: parents, Author: agent, Committer: agent, Message: fmt.Sprintf("Save %d\n", n),
	})
	if err != nil {
		return object.Zero, err
	}
	_, err = w.Add(object.Commit, commit)
	return object.Hash(object.Commit, commit), err
}
