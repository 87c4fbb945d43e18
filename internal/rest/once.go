package rest

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
	maxKey         = 255 // bytes
)

// once makes a request with an Idempotency-Key happen once: its answer is kept
// in the very Change that makes its effect, and whoever sends it again gets that
// answer. Refusals are not kept.
type once struct {
	name   string    // under which the answer is kept, "" without a key
	sum    hash.Hash // of the request as far as it has been read
	data   []byte    // the answer, once it was handed to a Change
	status int       // of it, where that is not the route's
}

// takeKey reads the key of a request that changes something.
func (c *call) takeKey() error {
	values := c.r.Header.Values(keyHeader)
	if len(values) == 0 || !c.route.once {
		return nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > maxKey
	for i := range len(key) {
		bad = bad || key[i] <= ' ' || key[i] > '~'
	}
	if bad {
		return invalid("%s has to be one value of 1 to %d visible ASCII characters", keyHeader, maxKey)
	}
	c.once.name = c.access.IdempotencyKey(key)
	c.once.sum = sha256.New()
	// The key itself is kept nowhere: with it in the digest, nobody who reads the
	// database can guess what was sent.
	for _, part := range []string{key, c.r.Method, c.r.URL.EscapedPath(), c.r.URL.RawQuery} {
		fmt.Fprintf(c.once.sum, "%d:%s", len(part), part)
	}
	c.body.copy = c.once.sum
	return nil
}

// replay ends a request that was answered before with a *repo.ReplayError. The
// body has been read.
func (c *call) replay() error {
	if c.once.name == "" {
		return nil
	}
	row, err := c.Service.Recorded(c.ctx, c.access, c.once.name)
	if err != nil || row == nil {
		return err
	}
	return &repo.ReplayError{Recorded: *row}
}

// claim makes the request the one of those with its key that does what no Change
// takes back; the others end with the *repo.ReplayError of its answer.
func (c *call) claim() error {
	if c.once.name == "" {
		return nil
	}
	return c.Service.Claim(c.ctx, c.access, c.once.name, c.request())
}

// settle gives the recorded answer in place of a refusal: the request may have
// come too late because it was there before.
func (c *call) settle(refused error) error {
	if c.once.name == "" || c.begun || c.body.err != io.EOF {
		return refused
	}
	replay, ok := errors.AsType[*repo.ReplayError](refused)
	if !ok {
		if err := c.replay(); !errors.As(err, &replay) {
			return refused
		}
	}
	row := replay.Recorded
	if row.Request != c.request() {
		return service.Refuse(service.KeyReused, "the %s was used for another request: take a new key for each", keyHeader)
	}
	if c.route.sealed {
		var err error
		if row.Body, err = c.Service.OpenAnswer(c.once.name, row.Body); err != nil {
			return err
		}
	}
	c.header().Set(replayedHeader, "true")
	c.sendJSON(row.Status, row.Body)
	return nil
}

// request is the digest of the request. The body has been read.
func (c *call) request() (sum [32]byte) {
	c.once.sum.Sum(sum[:0])
	return sum
}

// row makes the row that keeps an answer, nil without a key.
func (c *call) row(answer any) *meta.Idempotency {
	if c.once.name == "" {
		return nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // answers are structs of texts and numbers
	}
	c.once.data = data
	if c.route.sealed {
		if data, err = c.Service.SealAnswer(c.once.name, data); err != nil {
			panic(err) // the secret in it was sealed with the same key
		}
	}
	return &meta.Idempotency{Key: c.once.name, Request: c.request(), Status: cmp.Or(c.once.status, c.route.op.status, http.StatusOK), Body: data}
}

// keep has an answer that is known beforehand recorded with the Change that the
// request makes.
func (c *call) keep(answer any) { c.access.Idempotency = c.row(answer) }

// record has the answer to what an operation results in recorded with the Change
// that it makes.
func record[R, A any](c *call, answer func(R) A) func(R) *meta.Idempotency {
	if c.once.name == "" {
		return nil
	}
	return func(r R) *meta.Idempotency { return c.row(answer(r)) }
}

// concludeAs is conclude where the operation decides the status.
func (c *call) concludeAs(status int, v any) error {
	c.once.status = status
	return c.conclude(status, v)
}

// conclude answers a request that succeeded. One that had nothing to change has
// its answer recorded now.
func (c *call) conclude(status int, v any) error {
	if c.once.name == "" {
		return c.answer(status, v)
	}
	if c.once.data == nil {
		if err := c.Service.Record(c.ctx, c.access, c.row(v)); err != nil {
			return err
		}
	}
	c.sendJSON(status, c.once.data)
	return nil
}
