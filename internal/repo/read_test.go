package repo_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

func TestResolveEqualsGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 21, 60)
	s, e, v := serve(t, origin, layouts[1])
	main := origin.ID("main").String()
	revs := []string{
		"main", "refs/heads/main", "topic/1", "light-1", "annotated", "of-tag", "refs/tags/of-tag", "HEAD", "@", main,
		"main~1", "main~", "main^", "main^1", "main^2", "main^0", "main~3^2~1", "HEAD~2", "annotated^{commit}", "of-tag^{}", "annotated~1",
		main + "~2", main[:9], main[:9] + "^", "refs/notes/commits", "main^{}~1",
		"heads/main", "tags/annotated", "heads/topic/1~1", "notes/commits", "heads/absent", "tags/main",
		"absent", "main~100000", "main^9", "main^{tree}", "main^x", "of-tree", "of-blob^{commit}", "main^{", strings.Repeat("ab", 20), "main@{1}", ":/m", "",
	}
	for _, rev := range revs {
		asked := cmp.Or(rev, "main")
		want, gitErr := origin.Try(nil, "rev-parse", "--verify", "-q", "--end-of-options", asked+"^{commit}")
		// Git peels to a commit what Cairn refuses as the wrong kind, and reads
		// the reflog, which Cairn has not.
		if strings.Contains(rev, "{tree}") || strings.Contains(rev, "@{") || strings.HasPrefix(rev, ":/") {
			gitErr = errors.New("not offered")
		}
		got, err := v.Resolve(ctx, rev, false)
		if (gitErr == nil) != (err == nil) {
			t.Errorf("%q: git says %v, Cairn %v", rev, gitErr, err)
			continue
		}
		var missing *repo.NotFoundError
		if err != nil {
			if !errors.As(err, &missing) {
				t.Errorf("%q: error is %v", rev, err)
			}
			continue
		}
		if got.ID.String() != strings.TrimSpace(string(want)) {
			t.Errorf("%q is %s, git says %s", rev, got.ID, want)
		}
		if got.Echo != asked {
			t.Errorf("%q is echoed as %q", rev, got.Echo)
		}
	}

	eph := "refs/namespaces/ephemeral/refs/heads/main"
	s.Apply(meta.Change{Org: s.Org, Repo: v.Repo().ID, Refs: []meta.RefWrite{{Name: eph, New: origin.ID("topic/2")}}})
	v, err := e.View(ctx, s.Row(v.Repo().ID))
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []string{"main", "heads/main", "refs/heads/main", eph, ""} {
		got, err := v.Resolve(ctx, rev, true)
		if err != nil || got.ID != origin.ID("topic/2") || got.Echo != eph || got.Ref != eph {
			t.Errorf("ephemeral %q is %+v, %v", rev, got, err)
		}
	}
	if got, err := v.Resolve(ctx, eph, false); err != nil || got.Ref != eph {
		t.Errorf("%q without the flag is %+v, %v", eph, got, err)
	}
	if _, err := v.Resolve(ctx, "topic/1", true); err == nil {
		t.Error("an ephemeral lookup found a normal branch")
	}
}

func TestFilesEqualGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 22, 70)
	_, _, v := serve(t, origin, layouts[1])
	commit := origin.ID("main")
	for _, dir := range []string{"", "d0", "d1/d2"} {
		for _, recursive := range []bool{true, false} {
			args := []string{"ls-tree", "-z", "-t"}
			if recursive {
				args = append(args, "-r")
			}
			rev := commit.String()
			if dir != "" {
				rev += ":" + dir
			}
			text, err := origin.Try(nil, append(args, rev)...)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
				info, name, _ := strings.Cut(line, "\t")
				part := strings.Fields(info)
				if dir != "" {
					name = dir + "/" + name
				}
				want = append(want, part[0]+" "+part[2]+" "+name)
			}
			for _, limit := range []int{0, 1, 7} {
				var got []string
				q := repo.FilesQuery{Commit: commit, Path: dir, Recursive: recursive, Trees: true, Limit: limit}
				for more := true; more; more = q.After != "" {
					page, err := v.Files(ctx, q)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range page.Entries {
						got = append(got, fmt.Sprintf("%s %s %s", e.Mode, e.ID, e.Path))
					}
					q.After = page.Next
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q, recursive %v, pages of %d: %d entries, git has %d", dir, recursive, limit, len(got), len(want))
				}
			}
		}
	}
	var missing *repo.NotFoundError
	for _, path := range []string{"absent", "d0/absent/x", "d0/", "/d0"} {
		if _, err := v.Files(ctx, repo.FilesQuery{Commit: commit, Path: path}); !errors.As(err, &missing) {
			t.Errorf("listing %q gives %v", path, err)
		}
	}
	paths := files(t, origin, commit)
	page, err := v.Files(ctx, repo.FilesQuery{Commit: commit, Recursive: true, After: paths[len(paths)/2] + "!"})
	if err != nil || len(page.Entries) == 0 || page.Entries[0].Path != paths[len(paths)/2+1] {
		t.Errorf("from a path that does not exist on: %v, %v", page, err)
	}
}

// files returns the paths of all files, links and submodules of a commit.
func files(t *testing.T, g *repotest.Git, commit object.ID) []string {
	t.Helper()
	text, err := g.Try(nil, "ls-tree", "-r", "-z", "--name-only", commit.String())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func TestBlobsEqualGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 23, 50)
	_, _, v := serve(t, origin, layouts[2])
	commit := origin.ID("main")
	for _, path := range files(t, origin, commit) {
		e, err := v.Entry(ctx, commit, path)
		if err != nil {
			t.Fatal(err)
		}
		if e.Mode == object.ModeSubmodule {
			continue
		}
		want, err := origin.Try(nil, "cat-file", "blob", e.ID.String())
		if err != nil {
			t.Fatal(err)
		}
		if size, err := v.BlobSize(ctx, e.ID); err != nil || size != int64(len(want)) {
			t.Errorf("%q has %d bytes, git says %d: %v", path, size, len(want), err)
		}
		from, n := int64(len(want)/3), int64(len(want)/2)
		r, err := v.BlobRange(ctx, e.ID, from, n)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want[from:min(from+n, int64(len(want)))]) {
			t.Errorf("%q: bytes %d+%d differ: %v", path, from, n, err)
		}
		r.Close()
	}
}

func TestLastCommitEqualsGit(t *testing.T) {
	ctx := context.Background()
	for seed := uint64(31); seed < 34; seed++ {
		origin := repotest.History(t, seed, 80)
		_, _, v := serve(t, origin, layouts[1])
		commit := origin.ID("main")
		paths := files(t, origin, commit)
		paths = append(paths, strings.Split(origin.Run("ls-tree", "-r", "-d", "--name-only", commit.String()), "\n")[:3]...)
		all, err := v.LastCommits(ctx, commit, paths)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			if i%3 != 0 {
				continue
			}
			want := origin.Run("--literal-pathspecs", "log", "-1", "--format=%H", commit.String(), "--", path)
			if all[path].String() != want {
				t.Errorf("seed %d: %q was last touched by %s, git says %s", seed, path, all[path], want)
			}
			if one, err := v.LastCommit(ctx, commit, path); err != nil || one != all[path] {
				t.Errorf("%q alone: %s, %v", path, one, err)
			}
		}
		var missing *repo.NotFoundError
		if _, err := v.LastCommit(ctx, commit, "never/was"); !errors.As(err, &missing) {
			t.Errorf("a path that never was: %v", err)
		}
	}
}

// untar returns what an archive holds: mode, link and content by path.
func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink {
			continue
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = fmt.Sprintf("%c %v %s %s %d", h.Typeflag, h.Mode&0o100 != 0, h.Linkname, data, h.ModTime.Unix())
	}
}

func TestArchiveEqualsGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 41, 60)
	_, e, v := serve(t, origin, layouts[1])
	commit := origin.ID("main")
	archive := func(v *repo.View, q repo.ArchiveQuery) []byte {
		t.Helper()
		q.Commit = commit
		var out bytes.Buffer
		if err := v.Archive(ctx, &out, q); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	list := func(data []byte) map[string]string {
		t.Helper()
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return untar(t, z)
	}
	tarball, err := origin.Try(nil, "archive", "--format=tar", "--prefix=x/y/", commit.String())
	if err != nil {
		t.Fatal(err)
	}
	first := archive(v, repo.ArchiveQuery{Prefix: "x/y"})
	got, want := list(first), untar(t, bytes.NewReader(tarball))
	if len(got) != len(want) || len(got) == 0 {
		t.Errorf("archive has %d files, git's %d", len(got), len(want))
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%q is %.60q, git has %.60q", name, got[name], want[name])
		}
	}
	again, err := e.View(ctx, v.Repo())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive(again, repo.ArchiveQuery{Prefix: "x/y/"}), first) {
		t.Error("the same archive has other bytes")
	}

	limit := int64(100)
	some := list(archive(v, repo.ArchiveQuery{Include: []string{"d0/**", "f1"}, Exclude: []string{"d0/d1/**"}, MaxBlob: &limit}))
	for name, entry := range want {
		name = strings.TrimPrefix(name, "x/y/")
		base := name[strings.LastIndexByte(name, '/')+1:]
		size, _ := v.Entry(ctx, commit, name)
		bytes, err := v.BlobSize(ctx, size.ID)
		if err != nil {
			t.Fatal(err)
		}
		expect := (strings.HasPrefix(name, "d0/") || base == "f1") && !strings.HasPrefix(name, "d0/d1/") && bytes <= limit
		if _, ok := some[name]; ok != expect {
			t.Errorf("%q (%.20q) archived: %v, want %v", name, entry, ok, expect)
		}
	}
	if len(list(archive(v, repo.ArchiveQuery{Include: []string{"nothing/here"}}))) != 0 {
		t.Error("globs that match nothing give files")
	}
	var invalid *repo.InvalidError
	for _, q := range []repo.ArchiveQuery{{Prefix: "/a"}, {Prefix: "a/../b"}, {Prefix: "a\\b"}, {Prefix: "."}, {Prefix: "a//b"}, {Include: []string{"[a"}}, {Exclude: []string{""}}, {Include: []string{strings.Repeat("{a,b}", 12)}}} {
		q.Commit = commit
		var out bytes.Buffer
		if err := v.Archive(ctx, &out, q); !errors.As(err, &invalid) || out.Len() > 0 {
			t.Errorf("%+v gives %v and %d bytes", q, err, out.Len())
		}
	}
}

func FuzzResolve(f *testing.F) {
	origin := repotest.History(f, 24, 12)
	_, _, v := serve(f, origin, layouts[1])
	for _, rev := range []string{"main~2^2", "of-tag^{commit}", "HEAD^{}~1", "refs/heads/main", origin.ID("main").String()[:7], "main~99999999999999999999", "^", "@{1}", "main^{", "\xff~\x00"} {
		f.Add(rev, false)
		f.Add(rev, true)
	}
	f.Fuzz(func(t *testing.T, rev string, ephemeral bool) {
		got, err := v.Resolve(context.Background(), rev, ephemeral)
		var missing *repo.NotFoundError
		if err != nil && !errors.As(err, &missing) {
			t.Fatalf("%q: %v", rev, err)
		}
		if err == nil && got.ID.IsZero() {
			t.Fatalf("%q resolves to nothing", rev)
		}
	})
}
