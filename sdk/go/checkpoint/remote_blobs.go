package checkpoint

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
)

// maxDigests is how many digests one request names.
const maxDigests = 100_000

func parseDigest(s string) (Digest, error) { return tree.ParseDigest(s) }

func hexes(digests []Digest) []string {
	list := make([]string, len(digests))
	for i, d := range digests {
		list[i] = d.String()
	}
	return list
}

// Missing asks the server. See Blobs.
func (r *Remote) Missing(ctx context.Context, at Scope, digests []Digest) ([]Digest, error) {
	var missing []Digest
	for len(digests) > 0 {
		n := min(len(digests), maxDigests)
		var answer api.MissingList
		err := r.call(ctx, request{
			method: http.MethodPost, path: threadPath(at.Thread, "/blobs/missing"), thread: at.Thread, scopes: []string{writeScope, readScope}, again: true,
			in: map[string]any{"digests": hexes(digests[:n]), "upload": at.Upload},
		}, &answer)
		if err != nil {
			return nil, err
		}
		digests = digests[n:]
		for _, s := range answer.Missing {
			d, err := parseDigest(s)
			if err != nil {
				return nil, errorf(ErrUnavailable, "the answer of the server names what is no digest")
			}
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// Put sends objects in one stream. See Blobs.
func (r *Remote) Put(ctx context.Context, at Scope, objects []Object) error {
	if len(objects) == 0 {
		return nil
	}
	w := writers.Get().(*frame.Writer)
	w.Reset()
	for _, o := range objects {
		w.Add(o)
	}
	err := r.call(ctx, request{
		method: http.MethodPost, path: threadPath(at.Thread, "/blobs"), query: url.Values{"upload": {at.Upload}}, thread: at.Thread,
		scopes: []string{writeScope}, again: true, body: w.Finish(), kind: api.ObjectsType,
	}, nil)
	if err == nil { // else something may still send it
		writers.Put(w)
	}
	return err
}

// writers hold the bodies of requests.
var writers = sync.Pool{New: func() any { return frame.NewWriter(nil, false) }}

// Fetch asks for objects, and again for those that a stream that broke off did not give. See Blobs.
func (r *Remote) Fetch(ctx context.Context, at Scope, digests []Digest, fn func(Digest, []byte) error) error {
	for len(digests) > 0 {
		n := min(len(digests), maxDigests)
		if err := r.fetch(ctx, at, digests[:n], fn); err != nil {
			return err
		}
		digests = digests[n:]
	}
	return nil
}

func (r *Remote) fetch(ctx context.Context, at Scope, digests []Digest, fn func(Digest, []byte) error) error {
	left := make(map[Digest]bool, len(digests))
	for _, d := range digests {
		left[d] = true
	}
	check := false // an object came damaged: the server shall look for another copy
	for try := 1; len(left) > 0; try++ {
		want := make([]Digest, 0, len(left))
		for _, d := range digests {
			if left[d] {
				want = append(want, d)
			}
		}
		before := len(left)
		var given error // by fn
		err := r.open(ctx, request{
			method: http.MethodPost, path: threadPath(at.Thread, "/blobs/get"), thread: at.Thread, scopes: []string{readScope}, again: true,
			in: map[string]any{"digests": hexes(want), "upload": at.Upload, "check": check, "compress": !r.near()},
		}, func(resp *http.Response) error {
			frames := frame.NewReader(resp.Body)
			for {
				o, err := frames.Next()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if corrupt, ok := errors.AsType[*tree.CorruptError](err); ok {
					if check {
						given = &Error{Code: ErrInvalidBlob, Message: corrupt.Error(), Err: err}
						return nil
					}
					check = true
					continue
				}
				if err != nil {
					check = check || errors.Is(err, frame.ErrInvalid)
					return nil // what is left is asked for again
				}
				if !left[o.Digest] {
					continue
				}
				delete(left, o.Digest)
				if given = fn(o.Digest, o.Bytes); given != nil {
					return nil
				}
			}
		})
		switch {
		case err != nil:
			return err
		case given != nil:
			return given
		case len(left) > 0 && (len(left) == before && try >= attempts || ctx.Err() != nil):
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return errorf(ErrUnavailable, "the server broke off before it had sent %d objects", len(left))
		}
	}
	return nil
}

// near reports whether the server is on this machine, where bytes cost less than to compress them.
func (r *Remote) near() bool {
	host := r.client.BaseURL().Hostname()
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// whole writes the bytes of a key to w. An answer that breaks off is an error, and what was written is part of them.
func (r *Remote) whole(ctx context.Context, at Scope, d Digest, w io.Writer) error {
	return r.open(ctx, request{
		method: http.MethodGet, path: "/api/blobs/" + keyPrefix + d.String(), query: url.Values{"thread": {at.Thread}}, thread: at.Thread, scopes: []string{readScope},
	}, func(resp *http.Response) error {
		if _, err := io.Copy(w, resp.Body); err != nil {
			return r.unreachable(err)
		}
		return nil
	})
}
