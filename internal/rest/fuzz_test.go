package rest

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
)

func FuzzRange(f *testing.F) {
	for _, header := range []string{"bytes=0-0", "bytes=5-", "bytes=-3", "bytes=9-2", "bytes=0-99999999999999999999", "Bytes = 1 - 2", "bytes=1-2,4-5", "bytes=", "lines=1-2"} {
		f.Add(header, int64(10))
	}
	f.Add("bytes=0-", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		from, length, ok, use := parseRange(header, size)
		if ok && !use {
			t.Errorf("%q of %d counts and is ignored", header, size)
		}
		if ok && (from < 0 || length < 1 || from > size-length) {
			t.Errorf("%q of %d is %d bytes at %d", header, size, length, from)
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("path=a&ref=main&ephemeral=true&recursive=false&cursor=x&limit=7")
	f.Add("limit=0&ephemeral=maybe&max_blob_size=-1&include_globs=a&include_globs=b")
	f.Add("%zz;=&&limit=99999999999999999999")
	f.Fuzz(func(t *testing.T, raw string) {
		var list api.ListFiles
		values, malformed := url.ParseQuery(raw)
		err := decodeQuery(raw, &list)
		switch {
		case malformed != nil && err == nil:
			t.Errorf("%q is malformed and was read as %+v", raw, list)
		case err != nil:
			return
		case list.Limit < 0 || values.Get("limit") != "" && list.Limit == 0:
			t.Errorf("%q gives the limit %d", raw, list.Limit)
		case list.Path != values.Get("path") || list.Ref != values.Get("ref"):
			t.Errorf("%q gives %+v", raw, list)
		}
		var archive api.Archive
		if err := decodeQuery(raw, &archive); err == nil && !slices.Equal(archive.IncludeGlobs, values["include_globs"]) {
			t.Errorf("%q gives the globs %q", raw, archive.IncludeGlobs)
		}
	})
}

// FuzzDescription reads the first line of a commit and its files.
func FuzzDescription(f *testing.F) {
	f.Add(`{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"n","email":"e"},"files":[{"path":"a","content_id":"1","mode":"100644"}]}}` + "\n{}")
	f.Add(`{"metadata":{"files":{}}}`)
	f.Add(`{"metadata":null}`)
	f.Add(`{"metadata":{"files":[1,{"path":3}]}} x`)
	f.Fuzz(func(t *testing.T, body string) {
		in := newLines(strings.NewReader(body))
		defer in.close()
		d, err := readDescription(in)
		if (d == nil) == (err == nil) {
			t.Fatalf("%q gives %v and %v", body, d, err)
		}
		if err != nil {
			return
		}
		count := 0
		for file, err := range elements[api.FileChange](d.Files) {
			if err != nil {
				break
			}
			if count++; len(file.Path) > len(body) {
				t.Errorf("%q gives the path %q", body, file.Path)
			}
		}
		if count > len(d.Files) {
			t.Errorf("%d files in %d bytes", count, len(d.Files))
		}
	})
}
