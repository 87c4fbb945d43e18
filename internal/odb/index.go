package odb

import (
	"bytes"
	"context"

	"github.com/cairnstate/cairn/internal/git/pack"
)

// indexBytes computes the index of a small pack, which is complete.
func indexBytes(ctx context.Context, data []byte) (*pack.Index, error) {
	var copied pack.Buffer
	res, err := pack.Receive(ctx, bytes.NewReader(data), &copied, pack.Options{RefuseTrailing: true})
	if err != nil {
		return nil, err
	}
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		return nil, err
	}
	return pack.ParseIndex(idx.Bytes())
}
