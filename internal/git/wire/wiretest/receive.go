package wiretest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/git/wire"
)

// UploadPack runs git upload-pack on one stateless request: the oracle.
func (r *Repo) UploadPack(ctx context.Context, version int, request io.Reader, args ...string) ([]byte, error) {
	args = append([]string{
		"-c", "uploadpack.allowFilter=true", "-c", "uploadpack.allowRefInWant=true",
		"-c", "uploadpack.allowReachableSHA1InWant=true", "-c", "uploadpack.allowTipSHA1InWant=true",
		"-c", fmt.Sprintf("protocol.version=%d", version),
		"upload-pack", "--stateless-rpc"}, append(args, ".")...)
	var out bytes.Buffer
	err := r.pipe(ctx, request, &out, fmt.Sprintf("GIT_PROTOCOL=version=%d", version), args...)
	return out.Bytes(), err
}

// askShallow lets git upload-pack compute a shallow update.
func (r *Repo) askShallow(ctx context.Context, f *wire.Fetch) (wire.ShallowUpdate, error) {
	var request bytes.Buffer
	pkt := pktline.NewWriter(&request)
	args := []string{"command=fetch", "", "done"}
	for _, id := range f.Wants {
		args = append(args, "want "+id.String())
	}
	for _, id := range f.ClientShallow {
		args = append(args, "shallow "+id.String())
	}
	if f.Depth > 0 {
		args = append(args, fmt.Sprintf("deepen %d", f.Depth))
	}
	if f.DeepenRelative {
		args = append(args, "deepen-relative")
	}
	if f.DeepenSince > 0 {
		args = append(args, fmt.Sprintf("deepen-since %d", f.DeepenSince))
	}
	for _, name := range f.DeepenNot {
		args = append(args, "deepen-not "+name)
	}
	for _, arg := range args {
		if arg == "" {
			_ = pkt.Delim() // a buffer takes every write
			continue
		}
		_ = pkt.WriteString(arg)
	}
	_ = pkt.Flush()
	answer, err := r.UploadPack(ctx, 2, &request)
	if err != nil {
		return wire.ShallowUpdate{}, &wire.RefusalError{Reason: err.Error()}
	}
	return parseShallow(answer)
}

func parseShallow(answer []byte) (up wire.ShallowUpdate, err error) {
	in := pktline.NewReader(bytes.NewReader(answer))
	for {
		p, err := in.Next()
		if err != nil {
			return up, err
		}
		key, value, _ := strings.Cut(string(p.Line()), " ")
		switch key {
		case "packfile":
			return up, nil
		case "shallow", "unshallow":
			id, err := object.ParseID(value)
			if err != nil {
				return up, err
			}
			if key == "shallow" {
				up.Shallow = append(up.Shallow, id)
			} else {
				up.Unshallow = append(up.Unshallow, id)
			}
		}
	}
}

// Advertise lists all refs but HEAD.
func (r *Repo) Advertise(ctx context.Context) (wire.Advertisement, error) {
	adv := wire.Advertisement{Haves: r.Haves}
	err := r.Refs(ctx, []string{"refs/"}, func(ref wire.Ref) error {
		adv.Refs = append(adv.Refs, ref)
		return nil
	})
	return adv, err
}

// Receive indexes the pack and moves the refs, all or none when the push is
// atomic.
func (r *Repo) Receive(ctx context.Context, p *wire.Push, pack io.Reader) (wire.PushResult, error) {
	r.mu.Lock()
	r.pushes = append(r.pushes, *p)
	r.mu.Unlock()
	result := wire.PushResult{Messages: []string{"hello from the server"}}
	if r.Early != "" {
		result.Unpack = r.Early
		return result, nil
	}
	if pack != nil {
		if _, err := r.run(ctx, pack, "index-pack", "--stdin", "--fix-thin"); err != nil {
			result.Unpack = "index-pack failed"
			return result, nil
		}
		// git may leave the end of the input to its parent.
		if _, err := io.Copy(io.Discard, pack); err != nil {
			return result, err
		}
	}
	if r.Hold != nil {
		r.Hold(ctx)
	}
	failed := false
	for _, c := range p.Commands {
		status := wire.RefStatus{Ref: c.Ref}
		if r.Deny != nil {
			status.Error = r.Deny(c)
		}
		failed = failed || status.Error != ""
		result.Refs = append(result.Refs, status)
	}
	for i, c := range p.Commands {
		status := &result.Refs[i]
		if failed && p.Atomic && status.Error == "" {
			status.Error = "atomic push failure"
		}
		if status.Error != "" {
			continue
		}
		if _, err := r.run(ctx, nil, "update-ref", c.Ref, c.New.String(), c.Old.String()); err != nil {
			status.Error = "fetch first"
		}
	}
	return result, nil
}
