package ignore

import "strings"

// pattern is one line of a gitignore file.
type pattern struct {
	text    string
	negated bool // it began with !
	dirs    bool // it ended with /: directories only
	base    bool // it has no /: it is matched with the last name of a path
	literal bool // it has no wildcards
}

// parseRules reads the text of a gitignore file as git does.
func parseRules(text string) (ps []pattern) {
	text = strings.TrimPrefix(text, "\ufeff")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if p, ok := parse(strings.TrimSuffix(line, "\r")); ok {
			ps = append(ps, p)
		}
	}
	return ps
}

// parse reads one pattern. It is not ok if it is empty.
func parse(line string) (p pattern, ok bool) {
	s := trimSpaces(line)
	if s == "" {
		return p, false
	}
	s, p.negated = strings.CutPrefix(s, "!")
	s, p.dirs = strings.CutSuffix(s, "/")
	p.base = !strings.Contains(s, "/")
	s = strings.TrimPrefix(s, "/")
	p.text = s
	p.literal = !strings.ContainsAny(s, `*?[\`)
	return p, s != ""
}

// trimSpaces drops spaces at the end that no backslash precedes.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			end = min(i+1, len(s))
		} else if s[i] != ' ' {
			end = i + 1
		}
	}
	return s[:end]
}

func (p *pattern) match(path, base string, dir bool) bool {
	if p.dirs && !dir {
		return false
	}
	subject := path
	if p.base {
		subject = base
	}
	if p.literal {
		return subject == p.text
	}
	w := wild{pattern: p.text, pathname: !p.base, steps: maxSteps}
	return w.match(0, subject) == matched
}

// maxSteps bounds the work of one match: a pattern that needs more, which only a
// hostile one does, does not match.
const maxSteps = 1 << 20

// outcome is what a match of a part of a pattern comes to. Those below matched
// say how far it is of use to try again with a star taking more.
type outcome int

const (
	matched outcome = iota
	noMatch
	abortAll
	abortToStars
)

// wild matches as git's wildmatch does, with its WM_PATHNAME if pathname is set.
type wild struct {
	pattern  string
	pathname bool
	steps    int
}

// at is the i-th byte of the pattern, NUL at its end.
func (w *wild) at(i int) byte {
	if i < 0 || i >= len(w.pattern) {
		return 0
	}
	return w.pattern[i]
}

func first(text string) byte {
	if text == "" {
		return 0
	}
	return text[0]
}

func (w *wild) match(p int, text string) outcome {
	for ; p < len(w.pattern); p++ {
		if w.steps--; w.steps < 0 {
			return abortAll
		}
		c, t := w.at(p), first(text)
		if t == 0 && c != '*' {
			return abortAll
		}
		switch c {
		case '*':
			next, rest, out, done := w.star(p, text)
			if done {
				return out
			}
			p, text = next, rest
		case '?':
			if w.pathname && t == '/' {
				return noMatch
			}
		case '[':
			end, in, ok := w.set(p, t)
			if !ok {
				return abortAll
			}
			if !in || w.pathname && t == '/' {
				return noMatch
			}
			p = end
		default:
			if c == '\\' {
				p++
				c = w.at(p)
			}
			if t != c {
				return noMatch
			}
		}
		text = text[1:]
	}
	if text != "" {
		return noMatch
	}
	return matched
}

// star matches from the star at p. Unless it is done, matching goes on after
// next, which is a slash, with rest, which begins with one.
func (w *wild) star(p int, text string) (next int, rest string, out outcome, done bool) {
	before := p - 1
	slashes := !w.pathname
	p++
	if w.at(p) == '*' {
		for w.at(p) == '*' {
			p++
		}
		alone := (before < 0 || w.at(before) == '/') && (p == len(w.pattern) || w.at(p) == '/' || w.at(p) == '\\' && w.at(p+1) == '/')
		if w.pathname && alone {
			if w.at(p) == '/' && w.match(p+1, text) == matched {
				return 0, "", matched, true
			}
			slashes = true
		}
	}
	if p == len(w.pattern) {
		if !slashes && strings.Contains(text, "/") {
			return 0, "", abortToStars, true
		}
		return 0, "", matched, true
	}
	if !slashes && w.at(p) == '/' {
		i := strings.IndexByte(text, '/')
		if i < 0 {
			return 0, "", abortAll, true
		}
		return p, text[i:], 0, false
	}
	for ; text != ""; text = text[1:] {
		out := w.match(p, text)
		if out != noMatch {
			if !slashes || out != abortToStars {
				return 0, "", out, true
			}
		} else if !slashes && text[0] == '/' {
			return 0, "", abortToStars, true
		}
		if w.steps < 0 {
			break
		}
	}
	return 0, "", abortAll, true
}

// set matches t with the set that begins at p, and returns where it ends. It is
// not ok if it does not end or names a class that is not known.
func (w *wild) set(p int, t byte) (end int, in, ok bool) {
	p++
	negated := w.at(p) == '!' || w.at(p) == '^'
	if negated {
		p++
	}
	prev := byte(0)
	for start := p; p == start || w.at(p) != ']'; p++ {
		c := w.at(p)
		switch {
		case c == 0:
			return 0, false, false
		case c == '\\':
			p++
			if c = w.at(p); c == 0 {
				return 0, false, false
			}
			in = in || t == c
		case c == '-' && prev != 0 && w.at(p+1) != 0 && w.at(p+1) != ']':
			p++
			if c = w.at(p); c == '\\' {
				p++
				if c = w.at(p); c == 0 {
					return 0, false, false
				}
			}
			in = in || prev <= t && t <= c
			c = 0
		case c == '[' && w.at(p+1) == ':':
			i := strings.IndexByte(w.pattern[p+2:], ']')
			if i < 0 {
				return 0, false, false
			}
			name := w.pattern[p+2 : p+2+i]
			if !strings.HasSuffix(name, ":") {
				in = in || t == '['
				break
			}
			is, known := classes[name[:len(name)-1]]
			if !known {
				return 0, false, false
			}
			in = in || is(t)
			p += 2 + i
			c = 0
		default:
			in = in || t == c
		}
		prev = c
	}
	return p, in != negated, true
}

func between(a, b byte) func(byte) bool { return func(c byte) bool { return a <= c && c <= b } }

func lower(c byte) bool { return between('a', 'z')(c) }
func upper(c byte) bool { return between('A', 'Z')(c) }
func digit(c byte) bool { return between('0', '9')(c) }
func alpha(c byte) bool { return lower(c) || upper(c) }
func graph(c byte) bool { return between('!', '~')(c) }

// classes are those of POSIX, for ASCII.
var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return alpha(c) || digit(c) },
	"alpha":  alpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  digit,
	"graph":  graph,
	"lower":  lower,
	"print":  func(c byte) bool { return graph(c) || c == ' ' },
	"punct":  func(c byte) bool { return graph(c) && !alpha(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"upper":  upper,
	"xdigit": func(c byte) bool { return digit(c) || between('a', 'f')(c) || between('A', 'F')(c) },
}
