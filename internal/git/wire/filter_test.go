package wire_test

import (
	"errors"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
)

func blobs(n int64) wire.Filter { return wire.Filter{HasBlobLimit: true, BlobLimit: n} }

func TestParseFilter(t *testing.T) {
	rows := map[string]wire.Filter{
		"blob:none":                              blobs(0),
		"blob:limit=0":                           blobs(0),
		"blob:limit=10":                          blobs(10),
		"blob:limit=2k":                          blobs(2 << 10),
		"blob:limit=3M":                          blobs(3 << 20),
		"blob:limit=1g":                          blobs(1 << 30),
		"tree:0":                                 {HasTreeDepth: true},
		"tree:3":                                 {HasTreeDepth: true, TreeDepth: 3},
		"object:type=tag":                        {Type: object.Tag},
		"object:type=commit":                     {Type: object.Commit},
		"combine:blob:limit=5+blob:none":         blobs(0),
		"combine:tree:4+tree:2+blob:limit=1":     {HasTreeDepth: true, TreeDepth: 2, HasBlobLimit: true, BlobLimit: 1},
		"combine:blob%3Anone+object:type=blob":   {HasBlobLimit: true, Type: object.Blob},
		"combine:combine:tree:1%2Btree:2+tree:5": {HasTreeDepth: true, TreeDepth: 1},
	}
	for spec, want := range rows {
		if got, err := wire.ParseFilter(spec); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{
		"", "blob", "blob:", "blob:limit=", "blob:limit=k", "blob:limit=-1", "blob:limit=99999999999999999999", "blob:limit=9999999999g",
		"blob:nonesuch", "tree:", "tree:x", "object:type=", "object:commit", "sparse:oid=main:x", "sparse:path=x", "combine:", "combine:blob:none+",
		"combine:blob%zznone", "combine:object:type=tag+object:type=blob", "whatever:1",
		"combine:combine:combine:combine:combine:combine:combine:combine:combine:combine:blob:none",
	} {
		got, err := wire.ParseFilter(spec)
		if _, ok := errors.AsType[*wire.RefusalError](err); !ok || got != (wire.Filter{}) {
			t.Errorf("%q: got %+v, %v; want a refusal", spec, got, err)
		}
	}
}

func TestVersion(t *testing.T) {
	for value, want := range map[string]int{
		"": 0, "version=0": 0, "version=1": 1, "version=2": 2, "version=3": 0, "version=1:version=2": 2,
		"version=2:version=1": 2, "side=1:version=1": 1, "version": 0, "version=22": 0,
	} {
		if got := wire.Version(value); got != want {
			t.Errorf("Version(%q) = %d, want %d", value, got, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{"blob:none", "blob:limit=1k", "tree:2", "object:type=blob", "combine:tree:1+blob%3Anone", "sparse:oid=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		got, err := wire.ParseFilter(spec)
		if _, ok := errors.AsType[*wire.RefusalError](err); err != nil && !ok {
			t.Fatalf("untyped error %v", err)
		}
		if got.BlobLimit < 0 || got.TreeDepth < 0 || err == nil && got == (wire.Filter{}) {
			t.Fatalf("%q became %+v", spec, got)
		}
	})
}
