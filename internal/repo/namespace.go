package repo

import (
	"strings"

	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
)

// Namespace is one of the two sets of refs of a repository: clients of each see
// their own names.
type Namespace uint8

// The namespaces.
const (
	Normal Namespace = iota
	EphemeralNS
)

// hidden begins the stored names that the normal namespace does not show, and
// pastHidden is the least name after all of them.
const (
	hidden     = "refs/namespaces/"
	pastHidden = "refs/namespaces0"
)

// Stored returns the name under which a client's ref is stored. It is false for
// names that reach into another namespace.
func (ns Namespace) Stored(client string) (string, bool) {
	if ns == EphemeralNS {
		return refname.Ephemeral(client), !strings.HasPrefix(client, hidden)
	}
	return client, !strings.HasPrefix(client, hidden)
}

// Client returns the name that clients know a stored ref by, and whether they
// see it.
func (ns Namespace) Client(stored string) (string, bool) {
	if ns == EphemeralNS {
		return refname.SplitEphemeral(stored)
	}
	return stored, !strings.HasPrefix(stored, hidden)
}

// each calls yield for the refs that clients of ns see under names with the
// prefix, in order, until it returns false. Names are the clients'.
func (v *View) each(ns Namespace, prefix string, yield func(meta.Ref) bool) {
	if ns == EphemeralNS {
		v.refs.each(refname.EphemeralPrefix+prefix, "", func(r meta.Ref) bool {
			r.Name = r.Name[len(refname.EphemeralPrefix):]
			return yield(r)
		})
		return
	}
	more := true
	v.refs.each(prefix, "", func(r meta.Ref) bool {
		if r.Name >= hidden {
			return false
		}
		more = yield(r)
		return more
	})
	if more {
		v.refs.each(prefix, pastHidden, yield)
	}
}
