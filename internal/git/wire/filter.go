package wire

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// ParseFilter reads a filter as git-rev-list describes it: blob:none,
// blob:limit=N[kmg], tree:DEPTH, object:type=TYPE and combine:…+…, which keeps
// what all its parts keep. Errors are *RefusalError.
func ParseFilter(spec string) (Filter, error) {
	var f Filter
	if err := f.add(spec, 0); err != nil {
		return Filter{}, err
	}
	return f, nil
}

// maxFilterNesting bounds combine inside combine.
const maxFilterNesting = 8

// add narrows f by spec.
func (f *Filter) add(spec string, nesting int) error {
	kind, value, _ := strings.Cut(spec, ":")
	if kind == "blob" {
		if number, ok := strings.CutPrefix(value, "limit="); ok {
			kind, value = "blob:limit", number
		}
	}
	switch {
	case spec == "blob:none":
		f.limitBlobs(0)
		return nil
	case kind == "blob:limit":
		if n, ok := parseSize(value); ok {
			f.limitBlobs(n)
			return nil
		}
	case kind == "tree":
		if n, ok := parseSize(value); ok {
			f.limitTrees(int(min(n, 1<<31-1)))
			return nil
		}
	case kind == "object":
		return f.addType(spec, strings.TrimPrefix(value, "type="))
	case kind == "combine" && nesting < maxFilterNesting:
		for part := range strings.SplitSeq(value, "+") {
			plain, err := url.PathUnescape(part)
			if err != nil {
				return refuse("invalid filter %q: bad percent-encoding", clip(spec))
			}
			if err := f.add(plain, nesting+1); err != nil {
				return err
			}
		}
		return nil
	case kind == "sparse":
		return refuse("filter %q is not supported, use blob:none, blob:limit or tree", clip(spec))
	}
	return refuse("invalid filter %q", clip(spec))
}

func (f *Filter) limitBlobs(n int64) {
	if !f.HasBlobLimit || n < f.BlobLimit {
		f.HasBlobLimit, f.BlobLimit = true, n
	}
}

func (f *Filter) limitTrees(depth int) {
	if !f.HasTreeDepth || depth < f.TreeDepth {
		f.HasTreeDepth, f.TreeDepth = true, depth
	}
}

func (f *Filter) addType(spec, name string) error {
	var t object.Type
	for _, known := range []object.Type{object.Commit, object.Tree, object.Blob, object.Tag} {
		if "object:type="+known.String() == spec {
			t = known
		}
	}
	if t == object.Invalid {
		return refuse("invalid filter %q: no object type %q", clip(spec), clip(name))
	}
	if f.Type != object.Invalid && f.Type != t {
		return refuse("invalid filter: it asks for objects that are both %s and %s", f.Type, t)
	}
	f.Type = t
	return nil
}

// parseSize reads a number with an optional unit k, m or g of 1024 each.
func parseSize(s string) (int64, bool) {
	shift := 0
	if n := len(s) - 1; n >= 0 {
		switch s[n] | 0x20 {
		case 'k':
			shift = 10
		case 'm':
			shift = 20
		case 'g':
			shift = 30
		}
		if shift > 0 {
			s = s[:n]
		}
	}
	n, err := strconv.ParseUint(s, 10, 63-shift)
	return int64(n) << shift, err == nil
}
