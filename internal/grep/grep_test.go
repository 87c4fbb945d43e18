package grep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func find(t *testing.T, s Search, text string) []Group {
	t.Helper()
	groups, reached, err := s.Find(context.Background(), []byte(text))
	if err != nil || reached != 0 {
		t.Fatalf("reached %d, %v", reached, err)
	}
	return groups
}

func compile(t testing.TB, expr string, sensitive bool) *Pattern {
	t.Helper()
	p, err := Compile(expr, sensitive)
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	return p
}

func show(groups []Group) string {
	var out strings.Builder
	for i, g := range groups {
		if i > 0 {
			out.WriteString("|")
		}
		for _, l := range g.Lines {
			mark := '-'
			if l.Match {
				mark = ':'
			}
			fmt.Fprintf(&out, "%d%c%s ", l.Number, mark, l.Text)
		}
	}
	return out.String()
}

func TestFind(t *testing.T) {
	all := Search{Matches: 100, Lines: 100, Bytes: 1000}
	for _, c := range []struct {
		expr   string
		text   string
		change func(*Search)
		want   string
	}{
		{"b", "a\nb\nc\n", nil, "2:b "},
		{"b", "", nil, ""},
		{"^$", "\n", nil, "1: "},
		{"^$", "a\n", nil, ""},
		{"^$", "a\n\n\nb", nil, "2: |3: "},
		{`\Ab\z`, "a\nb\nab", nil, "2:b "},
		{"a.b", "a\nb\na\r\nb", nil, ""},
		{`(?s)a.b`, "a\nb\naxb", nil, "3:axb "},
		{"[^x]b", "a\nb\nab", nil, "3:ab "},
		{`a\sb|a\nb`, "a\nb\na b", nil, "3:a b "},
		{`a\D?b|a\Wb`, "a\nb\n", nil, ""},
		{"\xff\xfe"[:0] + "\ufffd", "a\xffb\n", nil, "1:a\ufffdb "},
		{"e", "e\r\nf", nil, "1:e\r "},
		{"m", "1\n2\n3\nm\n5\n6\nm\n8\n", func(s *Search) { s.Before, s.Behind = 2, 2 }, "2-2 3-3 4:m 5-5 6-6 |7:m 8-8 "},
		{"m", "1\n2\n3\nm\n5\n6\nm\n8\n", func(s *Search) { s.Before = 5 }, "1-1 2-2 3-3 4:m |5-5 6-6 7:m "},
		{"m", "m\nm\nm\n4\nm", func(s *Search) { s.Behind = 1; s.Matches = 2 }, "1:m |2:m 3-m "},
		{"m", "m\nm\nm\n4\nm", func(s *Search) { s.Behind = 1; s.Before = 1; s.After = 2 }, "3:m 4-4 |5:m "},
		{"m", "m\nm\nm\nm\nm", func(s *Search) { s.Lines = 2 }, "1:m |2:m |3:m "},
		{"m", "m", func(s *Search) { s.After = 1 }, ""},
		{"m", "m\n", func(s *Search) { s.After = 9 }, ""},
		{"m", "m\n", func(s *Search) { s.Matches = 0 }, ""},
	} {
		s := all
		s.Pattern = compile(t, c.expr, true)
		if c.change != nil {
			c.change(&s)
		}
		if got := show(find(t, s, c.text)); got != c.want {
			t.Errorf("%q in %q: %s, want %s", c.expr, c.text, got, c.want)
		}
	}
	s := all
	s.Pattern = compile(t, "STRASSE|k", false)
	if got := show(find(t, s, "Strasse\n\u212a\nstra\u017fse\nx")); got != "1:Strasse |2:\u212a |3:stra\u017fse " {
		t.Errorf("without case: %s", got)
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("é", MaxText) + "needle"
	s := Search{Pattern: compile(t, "needle", true), Matches: 1, Lines: 1, Bytes: 1}
	groups := find(t, s, long)
	if len(groups) != 1 || groups[0].Bytes != MaxText || strings.Trim(groups[0].Lines[0].Text, "é") != "" {
		t.Errorf("a long line is told as %d groups", len(groups))
	}
	// An expression is looked for at the beginning of a line alone.
	s.Pattern = compile(t, "needle[0-9]?", true)
	s.Pattern.piece = 100
	if groups := find(t, s, long+"\nneedle5"); len(groups) != 1 || groups[0].Lines[0].Number != 2 {
		t.Errorf("found %+v", groups)
	}
}

// TestTime ends searches whose time is up: each gets on, and together they find all.
func TestTime(t *testing.T) {
	p := compile(t, "[0-9]x|y", true)
	p.piece = 32
	text := []byte(strings.Repeat("line 1x\nline\n", 50))
	var lines []int
	after, rounds := 0, 0
	for {
		s := Search{Pattern: p, After: after, Behind: 1, Matches: 1000, Lines: 1000, Bytes: 1 << 20, Until: time.Now().Add(-time.Hour)}
		groups, reached, err := s.Find(context.Background(), text)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			for _, l := range g.Lines {
				lines = append(lines, l.Number)
			}
			after = g.Last()
		}
		if reached == 0 {
			break
		}
		after = max(after, reached)
		rounds++
	}
	if len(lines) != 100 || rounds < 10 {
		t.Errorf("%d lines in %d rounds", len(lines), rounds)
	}
	for i, n := range lines {
		if n != i+1 {
			t.Fatalf("line %d came as number %d", n, i+1)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := Search{Pattern: p, Matches: 1, Lines: 1, Bytes: 1}
	if _, _, err := s.Find(ctx, text); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPatternRefusals(t *testing.T) {
	for _, expr := range []string{
		"", "(", "a**", "[z-a]", `\1`, "(?=a)", "a{1001}", "(a{1000}){1000}", "((a{100}){100}){100}", "((((a{9}){9}){9}){9}){9}",
		strings.Repeat("(", 2000) + strings.Repeat(")", 2000), strings.Repeat("a", MaxPattern+1), "\xff", "(?:a|b|[c-z]{900}){5}",
	} {
		var bad *PatternError
		if _, err := Compile(expr, true); !errors.As(err, &bad) {
			t.Errorf("%.40q: %v", expr, err)
		}
	}
	// What is slow elsewhere is linear here.
	for _, expr := range []string{"(a+)+$", "(a|aa)+$", "(.*)*x", "(x+x+)+y", "(a?){50}a{50}", "(?:.*,){20}P"} {
		s := Search{Pattern: compile(t, expr, true), Matches: 1, Lines: 1, Bytes: 1}
		find(t, s, strings.Repeat("a", 5000)+"!")
	}
}

// FuzzFind holds what is found to package regexp on each line alone.
func FuzzFind(f *testing.F) {
	for _, expr := range []string{"a", "a+b", "^a", "b$", "^$", `\bk`, "(?i)sK|x", "[^a]b", `\s+`, `\Aa|b\z`, "(?s).b", "(?-m:^)a", "a|\nb", `\W`, "é", "\\x{fffd}"} {
		f.Add(expr, []byte("a\nab\n\nbk \nS\u212a\xff\r\nb"), true)
		f.Add(expr, []byte("A\nAB\n\nBK \nS\u017fk"), false)
	}
	f.Fuzz(func(t *testing.T, expr string, text []byte, sensitive bool) {
		if len(expr) > 100 || len(text) > 2000 {
			return
		}
		p, err := Compile(expr, sensitive)
		if err != nil {
			return
		}
		flags := "(?m)"
		if !sensitive {
			flags = "(?mi)"
		}
		oracle, err := regexp.Compile(flags + "(?:" + expr + ")")
		if err != nil {
			return
		}
		p.piece = max(p.piece%97, 64) // pieces of few lines
		var want []int
		if len(text) > 0 {
			for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
				if len(line) > p.piece {
					return
				}
				if oracle.Match(line) {
					want = append(want, i+1)
				}
			}
		}
		s := Search{Pattern: p, Matches: 1 << 20, Lines: 1 << 20, Bytes: 1 << 20}
		groups, _, err := s.Find(context.Background(), text)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, g := range groups {
			got = append(got, g.Last())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q in %q: lines %v, package regexp finds %v", expr, text, got, want)
		}
	})
}
