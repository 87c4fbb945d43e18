package checkpoint

import (
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/tree"
)

func TestListingIsNotTrusted(t *testing.T) {
	head := "/real\x001700000000\x00"
	root := "d 755 4096 0 0 1 2 3 1700000000.0 1700000000.0\x00./\x00\x00"
	for name, text := range map[string]string{
		"nothing":        "",
		"no time":        "/real\x00soon\x00",
		"cut off":        head + root[:20],
		"other fields":   head + "d 755\x00./\x00\x00",
		"no number":      head + strings.Replace(root, "4096", "many", 1),
		"a lost parent":  head + root + strings.Replace(root, "./", "./a/b", 1),
		"a mode too big": head + strings.Replace(root, "755", "77777", 1),
		"a long field":   head + strings.Repeat("x", maxField+1),
	} {
		l := &listing{nodes: map[string]*node{}}
		if err := l.read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

func TestTimesOfListings(t *testing.T) {
	for text, want := range map[string]tree.Time{
		"1700000000.1234567890": {Sec: 1_700_000_000, Nsec: 123_456_789},
		"0.0000000000":          {},
		"-1.2500000000":         {Sec: -2, Nsec: 750_000_000},
	} {
		var got tree.Time
		if err := findTime(&got, text); err != nil || got != want {
			t.Errorf("find's %q is %v (%v), want %v", text, got, err, want)
		}
	}
	var got tree.Time
	if err := statTime(&got, "1700000000 2023-11-14 22:13:20.123456789 +0000"); err != nil || got.Nsec != 123_456_789 || got.Sec != 1_700_000_000 {
		t.Errorf("stat's time is %v (%v)", got, err)
	}
}

func FuzzListing(f *testing.F) {
	f.Add("/real\x001700000000\x00d 755 4096 0 0 1 2 3 1700000000.0 1700000000.0\x00./\x00\x00f 644 4 0 0 1 3 1 1700000000.5 1.0\x00./a\nb\x00\x00")
	f.Add("/real\x001\x00s 41ed 4096 0 0 1 2 3 1 1970-01-01 00:00:01.5 +0000 / 1 1970-01-01 00:00:01.5 +0000\x00.\x00\x00s a1ff 4 0 0 1 3 1 1 x.1 / 1 x.2\x00./l\x00to\x00")
	f.Fuzz(func(t *testing.T, text string) {
		l := &listing{nodes: map[string]*node{}}
		if l.read(strings.NewReader(text)) != nil {
			return
		}
		for at, n := range l.nodes {
			if n.path != at || n.Type == 0 && !n.special {
				t.Fatalf("a node %+v at %q", n, at)
			}
		}
	})
}
