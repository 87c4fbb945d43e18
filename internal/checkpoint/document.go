package checkpoint

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// document names bytes that are kept among the objects of the org as the content
// of a file is.
type document struct {
	Size    uint64  `json:"size"`
	Digest  digest  `json:"digest"`
	Chunked bool    `json:"chunked,omitempty"`
	Sum     *digest `json:"sum,omitempty"` // of all bytes, where Digest names a recipe
}

func documentOf(c tree.Content) *document {
	d := &document{Size: c.Size, Digest: digest(c.Digest), Chunked: c.Chunked}
	if c.Chunked {
		sum := digest(c.Sum)
		d.Sum = &sum
	}
	return d
}

// content returns what d names.
func (d *document) content() tree.Content {
	c := tree.Content{Size: d.Size, Digest: tree.Digest(d.Digest), Chunked: d.Chunked, Sum: tree.Digest(d.Digest)}
	if d.Sum != nil {
		c.Sum = tree.Digest(*d.Sum)
	}
	return c
}

// object is a document that is to be stored, with the objects that it is made of.
type object struct {
	document
	data  []byte
	parts []tree.Part // where it has a recipe
}

// newDocument cuts data, which is not empty, into objects.
func newDocument(data []byte) (*object, error) {
	o := &object{data: data}
	err := chunk.Split(bytes.NewReader(data), func(b []byte) error {
		o.parts = append(o.parts, tree.Part{Length: uint64(len(b)), Digest: tree.Sum(b)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := tree.Content{Size: uint64(len(data)), Digest: tree.Sum(data), Sum: tree.Sum(data)}
	if len(o.parts) > 1 {
		recipe, err := tree.EncodeRecipe(o.parts)
		if err != nil {
			return nil, err
		}
		c.Digest, c.Chunked = tree.Sum(recipe), true
	}
	o.document = *documentOf(c)
	return o, nil
}

// write sends the objects of o to an upload.
func (o *object) write(ctx context.Context, up *content.Upload) error {
	if !o.Chunked {
		return up.Write(ctx, tree.Object{Kind: tree.Chunk, Digest: tree.Digest(o.Digest), Bytes: o.data})
	}
	rest := o.data
	for _, p := range o.parts {
		if err := up.Write(ctx, tree.Object{Kind: tree.Chunk, Digest: p.Digest, Bytes: rest[:p.Length]}); err != nil {
			return err
		}
		rest = rest[p.Length:]
	}
	recipe, err := tree.EncodeRecipe(o.parts)
	if err != nil {
		return err
	}
	return up.Write(ctx, tree.Object{Kind: tree.Recipe, Digest: tree.Digest(o.Digest), Bytes: recipe})
}

// put makes documents durable in an upload of the thread.
func (e *Engine) put(ctx context.Context, org meta.OrgID, thread, upload string, documents ...*object) error {
	up, err := e.begin(ctx, org, thread, upload)
	if err != nil {
		return fmt.Errorf("store documents: %w", err)
	}
	defer up.Close()
	for _, o := range documents {
		if o == nil {
			continue
		}
		if err := o.write(ctx, up); err != nil {
			return fmt.Errorf("store a document: %w", err)
		}
	}
	if _, err := up.Flush(ctx); err != nil {
		return fmt.Errorf("store documents: %w", full(err))
	}
	return nil
}

// read returns the bytes of a document; nil for none.
func (e *Engine) read(ctx context.Context, org meta.OrgID, d *document) ([]byte, error) {
	if d == nil {
		return nil, nil
	}
	var b bytes.Buffer
	if err := tree.Copy(ctx, e.cfg.Content.Source(org), d.content(), &b); err != nil {
		return nil, fmt.Errorf("read a document of a checkpoint: %w", err)
	}
	return b.Bytes(), nil
}
