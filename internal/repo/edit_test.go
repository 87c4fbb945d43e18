package repo

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// memoryTrees holds trees by ID.
type memoryTrees map[object.ID][]byte

func (m memoryTrees) apply(t testing.TB, base object.ID, e *edit) object.ID {
	t.Helper()
	maker := treeMaker{
		read: func(_ context.Context, id object.ID) ([]byte, error) { return m[id], nil },
		made: func(id object.ID, data []byte) error { m[id] = data; return nil },
		kept: func(object.ID) {},
	}
	id, n, err := maker.apply(context.Background(), base, e)
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		return object.Zero
	}
	return id
}

// list returns the files of a tree, and fails when Git would not accept it.
func (m memoryTrees) list(t testing.TB, id object.ID, prefix string, files map[string]string) {
	t.Helper()
	data, ok := m[id]
	if !ok {
		t.Fatalf("tree %s of %q was not written", id, prefix)
	}
	if err := object.Check(object.Tree, data); err != nil {
		t.Fatalf("tree of %q: %v", prefix, err)
	}
	for it := object.TreeEntries(data); ; {
		e, ok := it.Next()
		if !ok {
			return
		}
		if e.Mode.IsDir() {
			m.list(t, e.ID, prefix+string(e.Name)+"/", files)
		} else {
			files[prefix+string(e.Name)] = fmt.Sprint(e.Mode, e.ID)
		}
	}
}

// FuzzEdit applies edits in two steps to a tree and to a plain map of paths.
func FuzzEdit(f *testing.F) {
	f.Add("+a +a/b -a +a/c", "-a/c +a.b +a")
	f.Add("+a/b/c/d +a.b +a-b", "-a/b +a/b -x")
	f.Add("+a", "-a/b +a/b -a/b")
	f.Add("x+a l+b +c/d", "+a +b l+c")
	f.Fuzz(func(t *testing.T, first, second string) {
		trees := memoryTrees{}
		want := map[string]string{}
		root := object.Zero
		for step, script := range []string{first, second} {
			var e edit
			for i, word := range strings.Fields(script) {
				at := strings.IndexAny(word, "+-")
				if at < 0 || object.CheckPath(word[at+1:]) != nil {
					continue
				}
				p := word[at+1:]
				if word[at] == '-' {
					e.remove(p)
					removeFrom(want, p)
					continue
				}
				l := leaf{mode: map[string]object.Mode{"x": object.ModeExecutable, "l": object.ModeSymlink}[word[:at]], id: object.ID{1, byte(step), byte(i)}}
				e.put(p, l)
				if l.mode == 0 {
					l.mode = object.ModeRegular
					if old, ok := want[p]; ok {
						fmt.Sscanf(old, "%o", &l.mode)
					}
				}
				removeFrom(want, p)
				for dir := p; strings.Contains(dir, "/"); {
					dir = dir[:strings.LastIndexByte(dir, '/')]
					delete(want, dir)
				}
				want[p] = fmt.Sprint(l.mode, l.id)
			}
			root = trees.apply(t, root, &e)
			got := map[string]string{}
			if !root.IsZero() {
				trees.list(t, root, "", got)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("step %d of %q, %q:\ngot  %v\nwant %v", step, first, second, got, want)
			}
		}
	})
}

// removeFrom removes a file, or all files of a folder.
func removeFrom(files map[string]string, p string) {
	maps.DeleteFunc(files, func(name, _ string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}
