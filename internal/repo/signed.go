package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/signature"
)

// maxSigned bounds how many commits one update may bring to a ref that takes
// signed ones only.
const maxSigned = 10_000

// ringBytes bounds the parsed signing keys that are kept, by their text.
const ringBytes = 8 << 20

// rings keeps the parsed signing keys of orgs. Rows are read each time, so that
// a key counts, or ceases to, from the next update on.
type rings struct {
	cache *lru.Cache[meta.OrgID, knownRing]
}

type knownRing struct {
	rows []meta.SigningKey
	ring *signature.Ring
}

// of returns the signing keys of an org.
func (r *rings) of(ctx context.Context, store meta.Orgs, org meta.OrgID) (*signature.Ring, error) {
	rows, err := store.SigningKeys(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	if known, ok := r.cache.Get(org); ok && slices.Equal(known.rows, rows) {
		return known.ring, nil
	}
	keys := make([]signature.Trusted, len(rows))
	var size int64
	for i, row := range rows {
		key, err := signature.ParseKey([]byte(row.Text))
		if err != nil {
			return nil, fmt.Errorf("read signing key %s: %w", row.Fingerprint, err)
		}
		keys[i] = signature.Trusted{Key: key, NotBefore: row.NotBefore, NotAfter: row.NotAfter}
		size += 8 * int64(len(row.Text)) // parsed keys are larger than their text
	}
	ring := signature.NewRing(keys)
	r.cache.Put(org, knownRing{rows, ring}, size)
	return ring, nil
}

// checkSigned refuses what is not signed where only signed commits are taken:
// all commits that the new value reaches and the current one does not; on
// creation those that no ref under the same rule reaches.
func (d *decision) checkSigned(ctx context.Context, current object.ID) error {
	rules := policy.Signed(d.writer.Policies, d.rules, d.ref.Name)
	if d.ref.New.IsZero() || len(rules) == 0 {
		return nil
	}
	tips := []object.ID{d.ref.New}
	if d.made != nil && d.made.id == d.ref.New {
		if err := d.engine.checkMade(ctx, d.view.Repo().Org, d.ref.Name, d.made); err != nil {
			return err
		}
		tips = d.made.parents
	}
	s, err := d.engine.newSignedCheck(ctx, d.view.Repo().Org, d.objects)
	if err != nil {
		return err
	}
	s.ref = d.ref.Name
	if !current.IsZero() {
		return s.check(ctx, tips, []object.ID{current})
	}
	for _, under := range rules {
		var known []object.ID
		d.view.refs.each("", "", func(r meta.Ref) bool {
			if under(r.Name) {
				known = append(known, r.ID)
			}
			return true
		})
		if err := s.check(ctx, tips, known); err != nil {
			return err
		}
	}
	return nil
}

// signedCheck verifies what a ref would newly reach.
type signedCheck struct {
	ref     string
	objects *objects
	commits *graph.Graph
	ring    *signature.Ring
	now     time.Time
	seen    map[object.ID]struct{} // that have passed
}

func (e *Engine) newSignedCheck(ctx context.Context, org meta.OrgID, objects *objects) (*signedCheck, error) {
	ring, err := e.rings.of(ctx, e.cfg.Meta, org)
	if err != nil {
		return nil, err
	}
	commits, err := objects.graph(ctx)
	if err != nil {
		return nil, err
	}
	return &signedCheck{objects: objects, commits: commits, ring: ring, now: e.cfg.Clock(), seen: make(map[object.ID]struct{})}, nil
}

// checkFork refuses a fork by a token that may bring signed commits only, when
// what the fork begins with is not signed: all of it is new there.
func (e *Engine) checkFork(ctx context.Context, w Writer, source *View, refs []meta.RefWrite) error {
	var s *signedCheck
	for _, ref := range refs {
		if len(policy.Signed(w.Policies, nil, ref.Name)) == 0 {
			continue
		}
		if s == nil {
			objects, err := source.objects(ctx, nil)
			if err != nil {
				return err
			}
			if s, err = e.newSignedCheck(ctx, w.Org, objects); err != nil {
				return err
			}
		}
		s.ref = ref.Name
		if err := s.check(ctx, []object.ID{ref.New}, nil); err != nil {
			return err
		}
	}
	return nil
}

// check verifies those of tips that are tags, and the commits that they reach and
// that none of known does.
func (s *signedCheck) check(ctx context.Context, tips, known []object.ID) error {
	for _, tip := range tips {
		if slices.Contains(known, tip) {
			continue
		}
		if err := s.checkTip(ctx, tip, known); err != nil {
			return err
		}
	}
	return nil
}

func (s *signedCheck) checkTip(ctx context.Context, tip object.ID, known []object.ID) error {
	id := tip
	for range maxTagDepth {
		t, data, err := s.objects.db.Get(ctx, id)
		switch {
		case err != nil:
			return err
		case t == object.Commit:
			return s.checkCommits(ctx, id, known)
		case t != object.Tag:
			return s.deny(fmt.Errorf("%s %s cannot be signed", t, id))
		}
		if id, err = s.checkTag(id, data); err != nil {
			return err
		}
	}
	return s.deny(fmt.Errorf("tag %s leads through more than %d tags", tip, maxTagDepth))
}

func (s *signedCheck) checkCommits(ctx context.Context, tip object.ID, known []object.ID) error {
	var old []object.ID
	for _, id := range known {
		commit, t, err := s.objects.peel(ctx, id)
		if err != nil {
			return err
		}
		if t == object.Commit {
			old = append(old, commit)
		}
	}
	fresh, err := s.commits.Lacking(ctx, []object.ID{tip}, old)
	if err != nil {
		return err
	}
	if n := fresh.Len(); n > maxSigned {
		return s.deny(fmt.Errorf("%d new commits are more than are verified at once: push up to %d at a time", n, maxSigned))
	}
	fresh.Each(func(n graph.Node) bool {
		err = s.checkCommit(ctx, s.commits.ID(n))
		return err == nil
	})
	return err
}

func (s *signedCheck) checkCommit(ctx context.Context, id object.ID) error {
	if _, ok := s.seen[id]; ok {
		return nil
	}
	_, data, err := s.objects.db.Get(ctx, id)
	if err != nil {
		return err
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", id, err)
	}
	s.seen[id] = struct{}{}
	return s.verify("commit", id, c.Payload, c.Signature, c.Committer.When)
}

// checkTag returns what a tag names.
func (s *signedCheck) checkTag(id object.ID, data []byte) (object.ID, error) {
	tag, err := object.ParseTag(data)
	if err != nil {
		return id, fmt.Errorf("read tag %s: %w", id, err)
	}
	if _, ok := s.seen[id]; ok {
		return tag.Object, nil
	}
	s.seen[id] = struct{}{}
	var made int64
	if tag.Tagger != nil {
		made = tag.Tagger.When
	}
	return tag.Object, s.verify("tag", id, tag.Payload, tag.Signature, made)
}

func (s *signedCheck) verify(what string, id object.ID, payload []byte, sig string, made int64) error {
	if s.ring.Empty() {
		return s.deny(errors.New("only signed commits are taken here and no signing keys are registered"))
	}
	_, err := s.ring.Verify(payload, sig, time.Unix(made, 0), s.now)
	if err == nil {
		return nil
	}
	return s.deny(fmt.Errorf("only signed commits are taken here, and %s %s %w", what, id, err))
}

func (s *signedCheck) deny(why error) error {
	return &policy.DeniedError{Ref: s.ref, Reason: "push denied by policy: " + why.Error()}
}
