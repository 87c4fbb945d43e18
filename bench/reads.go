package main

import (
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// requests makes the same upload-pack request for both servers.
func (b *bench) requests(s *harness.Server, name string, body []byte) (cairn, peer []byte) {
	authorization := basic(s.Token(harness.Grant{Repo: name}))
	return uploadPack(s.URL+"/"+name+".git", authorization, body), uploadPack(b.peer.URL+"/"+name+".git", "", body)
}

// rates compares how many answers a second both give over 8 connections.
func (b *bench) rates(r *row, body func(history) []byte) error {
	h, err := b.tiny()
	if err != nil {
		return err
	}
	ours, theirs := b.requests(b.shared, h.name, body(h))
	return b.beside(r,
		func() (float64, error) { return b.rate(b.shared.URL, 8, always(ours)) },
		func() (float64, error) { return b.rate(b.peer.URL, 8, always(theirs)) })
}

func always(request []byte) func(int) func() []byte {
	return func(int) func() []byte { return func() []byte { return request } }
}

// answers compares the time and the bytes of one large answer to a client that
// throws it away.
func (b *bench) answers(rows []row, depth int) error {
	h, err := b.large()
	if err != nil {
		return err
	}
	ours, theirs := b.requests(b.shared, h.name, fetch(depth, h.tip))
	return b.answer(rows, b.shared.URL, ours, b.peer.URL, theirs)
}

// answer compares the time of the answers to two requests, and the bytes where
// there is a second row.
func (b *bench) answer(rows []row, base string, request []byte, peerBase string, peerRequest []byte) error {
	var sizes [2]float64
	one := func(base string, request []byte, size *float64) func() (float64, error) {
		return func() (float64, error) {
			c, err := dial(base)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			start := time.Now()
			n, err := c.do(request)
			elapsed := since(start)
			if err == nil {
				_, err = packed(c.head)
			}
			*size = float64(n) / 1e6
			return elapsed, err
		}
	}
	err := b.beside(&rows[0], one(base, request, &sizes[0]), one(peerBase, peerRequest, &sizes[1]))
	if err == nil && len(rows) > 1 {
		rows[1].compare(sizes[0], sizes[1])
	}
	return err
}
