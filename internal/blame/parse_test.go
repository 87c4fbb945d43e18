package blame

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

const told = `0123456789012345678901234567890123456789 3 1 2
author A
author-mail <a@example.com>
summary previous filename 1
previous 1111111111111111111111111111111111111111 old name
filename "a\303\251\"b"
2222222222222222222222222222222222222222 1 4 1
boundary
filename f
`

func TestParse(t *testing.T) {
	lines, err := parse([]byte(told), 5)
	if err != nil {
		t.Fatal(err)
	}
	var one, two, before object.ID
	for id, text := range map[*object.ID]string{&one: "0123456789012345678901234567890123456789", &two: "2222222222222222222222222222222222222222", &before: "1111111111111111111111111111111111111111"} {
		if *id, err = object.ParseID(text); err != nil {
			t.Fatal(err)
		}
	}
	want := []Line{{1, 3, one, `aé"b`, before}, {2, 4, one, `aé"b`, before}, {4, 1, two, "f", object.Zero}}
	if !slices.Equal(lines, want) {
		t.Errorf("read %+v", lines)
	}
	if _, err := parse([]byte(told), 3); err == nil {
		t.Error("a line beyond the file was taken")
	}
}

// FuzzParse reads what git does not write: every line that comes of it is in the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(told), 5)
	f.Add([]byte("0123456789012345678901234567890123456789 1 2 9223372036854775807\nfilename f\n"), 3)
	f.Fuzz(func(t *testing.T, out []byte, total int) {
		if total < 0 || total > 1000 {
			return
		}
		lines, err := parse(out, total)
		if err != nil {
			return
		}
		last := 0
		for _, l := range lines {
			if l.Number <= last || l.Number > total {
				t.Fatalf("line %d of %d after %d", l.Number, total, last)
			}
			last = l.Number
		}
		if len(lines) > 0 && !bytes.Contains(out, []byte("filename ")) {
			t.Error("lines come from nothing")
		}
	})
}

// FuzzRanges checks ranges, which must not be taken for options of git.
func FuzzRanges(f *testing.F) {
	for _, r := range []string{"10,20", "/a/,+3", ":f", `/\(a\{3,\}\)\{2\}/`, `\1`, "-h", ""} {
		f.Add(r)
	}
	f.Fuzz(func(t *testing.T, r string) {
		if checkRanges([]string{r}) == nil && (r == "" || r[0] == '-' || len(r) > maxRange) {
			t.Errorf("%q was taken", r)
		}
	})
}
