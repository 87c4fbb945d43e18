// Package ignore chooses the paths of a checkpoint: a policy of gitignore rules
// and of patterns to include and exclude, which is stored with the checkpoint.
package ignore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bases of a policy.
const (
	Default = "default" // DefaultRules
	Full    = "full"    // no rules: everything is taken
	Rules   = "rules"   // the policy's own rules
)

// DefaultRules leave out what is fetched again or holds secrets.
const DefaultRules = ".git\nnode_modules\n.env*\n"

// Limits of a policy that Compile enforces.
const (
	maxRules    = 512 << 10 // bytes of all rules and patterns
	maxPatterns = 10_000
)

// Policy says which paths are taken. Paths are relative to the root they lie in.
type Policy struct {
	Base    string   `json:"base"`
	Rules   string   `json:"rules,omitempty"`   // of base "rules": the text of a gitignore file
	Include []string `json:"include,omitempty"` // if there are any, only what one of them matches, and what lies beneath it
	Exclude []string `json:"exclude,omitempty"` // besides the rules; no pattern takes back what one of them matches
}

// ErrInvalid is matched by errors about policies.
var ErrInvalid = errors.New("invalid policy")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// stored is the form in which a policy is kept.
type stored struct {
	Version int `json:"version"`
	Policy
}

// Encode returns p as it is stored: JSON with a version.
func (p Policy) Encode() ([]byte, error) {
	if _, err := Compile(p); err != nil {
		return nil, err
	}
	return json.Marshal(stored{Version: 1, Policy: p})
}

// Decode reads what Encode wrote.
func Decode(b []byte) (Policy, error) {
	var s stored
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil || dec.InputOffset() != int64(len(b)) {
		return Policy{}, invalid("it is not what a version of this program stores")
	}
	if s.Version != 1 {
		return Policy{}, invalid("version %d is not known to this program", s.Version)
	}
	_, err := Compile(s.Policy)
	return s.Policy, err
}

// Verdict says what becomes of a path.
type Verdict int

// Verdicts.
const (
	Skip    Verdict = iota // the path and what lies beneath it are left out
	Descend                // a directory that is taken only if something beneath it is
	Take                   // the path is taken; of a directory also what lies beneath, unless excluded
)

// Matcher is a compiled policy. It may be used at the same time.
type Matcher struct {
	rules, include, exclude []pattern
}

// Compile checks p and prepares it for matching.
func Compile(p Policy) (*Matcher, error) {
	size := len(p.Rules)
	for _, s := range append(append([]string{}, p.Include...), p.Exclude...) {
		size += len(s)
		if !utf8.ValidString(s) {
			return nil, invalid("the pattern %q is not UTF-8; write ? for other bytes", s)
		}
		if strings.HasPrefix(s, "!") {
			return nil, invalid("the pattern %q begins with !, which only rules may", s)
		}
	}
	switch {
	case size > maxRules || len(p.Include)+len(p.Exclude)+strings.Count(p.Rules, "\n") > maxPatterns:
		return nil, invalid("more than %d patterns or %d bytes of them", maxPatterns, maxRules)
	case !utf8.ValidString(p.Rules):
		return nil, invalid("the rules are not UTF-8; write ? for other bytes")
	case p.Rules != "" && p.Base != Rules:
		return nil, invalid("it has rules and the base %q", p.Base)
	}
	m := &Matcher{}
	switch p.Base {
	case Default:
		m.rules = parseRules(DefaultRules)
	case Rules:
		m.rules = parseRules(p.Rules)
	case Full:
	default:
		return nil, invalid("the base is %q, want default, full or rules", p.Base)
	}
	var err error
	if m.include, err = parseAll(p.Include); err != nil {
		return nil, err
	}
	m.exclude, err = parseAll(p.Exclude)
	return m, err
}

func parseAll(texts []string) (all []pattern, err error) {
	for _, s := range texts {
		p, ok := parse(s)
		if !ok {
			return nil, invalid("the pattern %q matches nothing", s)
		}
		all = append(all, p)
	}
	return all, nil
}

// Match returns the verdict on path, none of whose parents is skipped. within
// says that one of them was taken. The root of a tree is the path "".
func (m *Matcher) Match(path string, dir, within bool) Verdict {
	if path == "" {
		return Descend
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	if last(m.rules, path, base, dir) || last(m.exclude, path, base, dir) {
		return Skip
	}
	switch {
	case within || len(m.include) == 0 || last(m.include, path, base, dir):
		return Take
	case dir:
		return Descend
	}
	return Skip
}

// Verdict is Match for a path whose parents are not skipped, without knowing
// whether one of them was taken.
func (m *Matcher) Verdict(path string, dir bool) Verdict {
	within := len(m.include) == 0
	for i := 0; !within && i < len(path); i++ {
		within = path[i] == '/' && m.Match(path[:i], true, false) == Take
	}
	return m.Match(path, dir, within)
}

// last reports whether the last of ps that matches is not negated.
func last(ps []pattern, path, base string, dir bool) bool {
	for i := len(ps) - 1; i >= 0; i-- {
		if ps[i].match(path, base, dir) {
			return !ps[i].negated
		}
	}
	return false
}

// Quote returns a pattern that matches path and nothing else, but for bytes that
// are not UTF-8: any byte is matched there.
func Quote(path string) string {
	var b strings.Builder
	b.WriteByte('/')
	for i, r := range path {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(path[i:], string(utf8.RuneError)):
			b.WriteByte('?')
		case strings.ContainsRune(`*?[\`, r) || r == ' ' && i == len(path)-1:
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
