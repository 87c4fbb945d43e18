package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	maxPattern = 1024 // bytes
	maxOp      = 64   // bytes; ops are repeated in refusals, which are one line
)

// PatternError is a pattern of a form that is not documented. It cannot be ignored: its rule would protect nothing.
type PatternError struct {
	Pattern string
	Problem string
}

// Error names the pattern, shortened when it is long, and what is wrong with it.
func (e *PatternError) Error() string {
	shown := e.Pattern
	if len(shown) > 80 {
		shown = shown[:80] + "..."
	}
	return fmt.Sprintf("ref pattern %q %s", shown, e.Problem)
}

// OpError is an op that a rule cannot have.
type OpError struct {
	Op      Op
	Problem string
}

// Error names the op and what is wrong with it.
func (e *OpError) Error() string { return fmt.Sprintf("op %.64q %s", string(e.Op), e.Problem) }

// NormalizePattern returns pattern as it is compared with full ref names, or a *PatternError. The forms are: an exact
// name, "<prefix>/*" (which crosses slashes) and "*". A pattern that does not begin with "refs/" and is neither "*" nor
// "HEAD" is branch shorthand and gets the prefix "refs/heads/".
func NormalizePattern(pattern string) (string, error) {
	if pattern == "*" || pattern == "HEAD" {
		return pattern, nil
	}
	if len(pattern) > maxPattern {
		return "", &PatternError{pattern, fmt.Sprintf("is longer than %d bytes", maxPattern)}
	}
	full := pattern
	if !strings.HasPrefix(pattern, "refs/") {
		full = "refs/heads/" + pattern
	}
	name := strings.TrimSuffix(full, "/*")
	if strings.Contains(name, "*") {
		return "", &PatternError{pattern, "has a * that is not a last path segment on its own"}
	}
	if !validName(name) {
		return "", &PatternError{pattern, "cannot match a ref: it is not a valid ref name"}
	}
	return full, nil
}

// NewRule makes a rule of a token: pattern is normalised, ops may be empty, an unknown op is kept and refuses everything.
func NewRule(pattern string, ops []Op) (Rule, error) {
	full, err := NormalizePattern(pattern)
	if err != nil {
		return Rule{}, err
	}
	if err := checkOps(ops); err != nil {
		return Rule{}, err
	}
	return Rule{Pattern: full, Ops: slices.Clone(ops)}, nil
}

// ParseRule reads the command-line form "PATTERN=op,op"; "PATTERN=" allows every change. The last "=" separates.
func ParseRule(s string) (Rule, error) {
	i := strings.LastIndexByte(s, '=')
	if i < 0 {
		return Rule{}, &PatternError{s, "has no =: write PATTERN=op,op, or PATTERN= to allow"}
	}
	return NewRule(s[:i], splitOps(s[i+1:]))
}

// NewProtection makes a protection rule. Unlike in a token, an op that is not known is an error, and so is a rule without
// ops: it would protect nothing.
func NewProtection(pattern string, ops []Op) (Protection, error) {
	full, err := NormalizePattern(pattern)
	if err != nil {
		return Protection{}, err
	}
	if len(ops) == 0 {
		return Protection{}, &PatternError{pattern, "has no ops: a protection rule needs at least one"}
	}
	for _, op := range ops {
		if _, known := protectionOps[op]; !known {
			return Protection{}, &OpError{op, "is not known: use " + protectionVocabulary()}
		}
	}
	return Protection{Pattern: full, Ops: slices.Clone(ops)}, nil
}

// MarshalJSON writes the claim form ["pattern", ["op", ...]].
func (r Rule) MarshalJSON() ([]byte, error) {
	ops := r.Ops
	if ops == nil {
		ops = []Op{}
	}
	return json.Marshal([]any{r.Pattern, ops})
}

// UnmarshalJSON reads the claim forms ["pattern", ["op", ...]] and {"pattern": "...", "ops": [...]}, where the ops may be
// missing, and validates them as NewRule does. Anything else is an error.
func (r *Rule) UnmarshalJSON(data []byte) error {
	var fields struct {
		Pattern string `json:"pattern"`
		Ops     []Op   `json:"ops"`
	}
	data = bytes.TrimSpace(data)
	if bytes.HasPrefix(data, []byte("[")) {
		var pair []json.RawMessage
		if err := json.Unmarshal(data, &pair); err != nil {
			return fmt.Errorf("read ref policy: %w", err)
		}
		if len(pair) < 1 || len(pair) > 2 {
			return fmt.Errorf("read ref policy: want [pattern, ops], got %d elements", len(pair))
		}
		if err := json.Unmarshal(pair[0], &fields.Pattern); err != nil {
			return fmt.Errorf("read pattern of ref policy: %w", err)
		}
		if len(pair) == 2 {
			if err := json.Unmarshal(pair[1], &fields.Ops); err != nil {
				return fmt.Errorf("read ops of ref policy: %w", err)
			}
		}
	} else {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&fields); err != nil {
			return fmt.Errorf("read ref policy: %w", err)
		}
	}
	rule, err := NewRule(fields.Pattern, fields.Ops)
	if err != nil {
		return err
	}
	*r = rule
	return nil
}

func checkOps(ops []Op) error {
	for _, op := range ops {
		if len(op) > maxOp {
			return &OpError{op, fmt.Sprintf("is longer than %d bytes", maxOp)}
		}
	}
	return nil
}

func splitOps(s string) []Op {
	if s == "" {
		return nil
	}
	var ops []Op
	for op := range strings.SplitSeq(s, ",") {
		ops = append(ops, Op(strings.TrimSpace(op)))
	}
	return ops
}

func protectionVocabulary() string {
	names := make([]string, 0, len(protectionOps))
	for op := range protectionOps {
		names = append(names, string(op))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// validName follows git check-ref-format for a name with any number of segments.
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return false
		}
	}
	if strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment[0] == '.' || strings.HasSuffix(segment, ".lock") {
			return false
		}
	}
	return true
}
