package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const ephemeral = "refs/namespaces/ephemeral/refs/heads/"

var allKinds = []Kind{Create, FastForward, Force, Delete}

// allowed names the kinds of update that are let through, as a string of c, u, f and d.
func allowed(t *testing.T, token List, protections []Protection, ref string) string {
	t.Helper()
	var out strings.Builder
	for _, kind := range allKinds {
		err := Decide(token, protections, Update{Ref: ref, Kind: kind})
		if err == nil {
			out.WriteByte("cufd"[kind])
			continue
		}
		var denied *DeniedError
		if !errors.As(err, &denied) || denied.Ref != ref || !strings.Contains(denied.Reason, "denied by policy") {
			t.Errorf("Decide(%q, %d) = %v, want a *DeniedError for the ref", ref, kind, err)
		}
		if strings.ContainsAny(denied.Reason, "\r\n\x00") {
			t.Errorf("reason %q is not one line", denied.Reason)
		}
	}
	return out.String()
}

func list(t *testing.T, claim string) List {
	t.Helper()
	var l List
	if err := json.Unmarshal([]byte(claim), &l); err != nil {
		t.Fatalf("unmarshal %s: %v", claim, err)
	}
	return l
}

func TestTokenPolicies(t *testing.T) {
	const session = `[["` + ephemeral + `s/1",["no-force-push"]],["*",["no-push"]]]`
	const explicitAllow = `[["` + ephemeral + `s/1",[]],["*",["no-push"]]]`
	const mainOnly = `[["refs/heads/main",["no-force-push"]],["*",["no-push"]]]`
	tests := []struct {
		name, claim, ref, want string
		write                  bool
	}{
		{"no policies", `[]`, "refs/heads/main", "cufd", true},
		{"session branch", session, ephemeral + "s/1", "cu", true},
		{"session: other ephemeral branch", session, ephemeral + "s/2", "", false},
		{"session: longer name", session, ephemeral + "s/1/x", "", false},
		{"session: normal branch of the name", session, "refs/heads/s/1", "", false},
		{"session: stray main", session, ephemeral + "main", "", false},
		{"session: tag", session, "refs/tags/v1", "", false},
		{"session: ephemeral tag", session, "refs/namespaces/ephemeral/refs/tags/v1", "", false},
		{"session: note", session, "refs/notes/commits", "", false},
		{"explicit allow", explicitAllow, ephemeral + "s/1", "cufd", true},
		{"explicit allow stops there", explicitAllow, ephemeral + "s/2", "", false},
		{"main guarded", mainOnly, "refs/heads/main", "cu", true},
		{"main guarded: others", mainOnly, "refs/heads/dev", "", false},
		{"shorthand does not cover ephemeral", `[["main",["no-push"]]]`, ephemeral + "main", "cufd", true},
		{"shorthand covers the branch", `[["main",["no-push"]]]`, "refs/heads/main", "", false},
		{"names differ by case", `[["main",["no-push"]]]`, "refs/heads/Main", "cufd", true},
		{"glob crosses slashes", `[["feature/*",["no-push"]]]`, "refs/heads/feature/a/b", "", false},
		{"glob needs the slash", `[["feature/*",["no-push"]]]`, "refs/heads/feature", "cufd", true},
		{"glob is no substring", `[["feature/*",["no-push"]]]`, "refs/heads/features/a", "cufd", true},
		{"first match decides", `[["a/*",[]],["a/b",["no-push"]]]`, "refs/heads/a/b", "cufd", true},
		{"first match decides, deny", `[["a/b",["no-push"]],["a/*",[]]]`, "refs/heads/a/b", "", false},
		{"ops of later rules are not added", `[["a",["no-force-push"]],["*",["no-push"]]]`, "refs/heads/a", "cu", true},
		{"missing ops allow", `[["a"],["*",["no-push"]]]`, "refs/heads/a", "cufd", true},
		{"star covers all", `[["*",["no-push"]]]`, "refs/notes/commits", "", false},
		{"unknown op is closed", `[["a",["no-fun"]]]`, "refs/heads/a", "", false},
		{"unknown op beside a known", `[["a",["no-force-push","no-fun"]]]`, "refs/heads/a", "", false},
		{"ops differ by case", `[["a",["NO-FORCE-PUSH"]]]`, "refs/heads/a", "", false},
		{"protection op in a token is closed", `[["a",["no-delete"]]]`, "refs/heads/a", "", false},
		{"verify-sig alone", `[["a",["verify-sig"]]]`, "refs/heads/a", "cufd", true},
		{"object form", `[{"pattern":"a","ops":["no-push"]}]`, "refs/heads/a", "", false},
		{"object form without ops", `[{"pattern":"a"},{"pattern":"*","ops":["no-push"]}]`, "refs/heads/a", "cufd", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := list(t, tt.claim)
			if got := allowed(t, l, nil, tt.ref); got != tt.want {
				t.Errorf("%s allows %q on %s, want %q", tt.claim, got, tt.ref, tt.want)
			}
			if got := l.MayWrite(tt.ref); got != tt.write {
				t.Errorf("MayWrite(%s) = %v, want %v", tt.ref, got, tt.write)
			}
		})
	}
}

func TestProtections(t *testing.T) {
	const ref = "refs/heads/main"
	rule := func(pattern string, ops ...Op) Protection {
		p, err := NewProtection(pattern, ops)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := []struct {
		name  string
		token string
		rules []Protection
		want  string
	}{
		{"none", `[]`, nil, "cufd"},
		{"no-create", `[]`, []Protection{rule("main", NoCreate)}, "ufd"},
		{"no-update", `[]`, []Protection{rule("main", NoUpdate)}, "c"},
		{"no-force-push", `[]`, []Protection{rule("main", NoForcePush)}, "cu"},
		{"no-delete", `[]`, []Protection{rule("main", NoDelete)}, "cuf"},
		{"no-push", `[]`, []Protection{rule("main", NoPush)}, ""},
		{"verify-sig", `[]`, []Protection{rule("main", VerifySig)}, "cufd"},
		{"other ref", `[]`, []Protection{rule("dev", NoPush)}, "cufd"},
		{"all matching rules apply", `[]`, []Protection{rule("main", NoDelete), rule("*", NoCreate)}, "uf"},
		{"order does not matter", `[]`, []Protection{rule("*", NoCreate), rule("main", NoDelete)}, "uf"},
		{"token stricter", `[["main",["no-push"]]]`, []Protection{rule("main", NoDelete)}, ""},
		{"rule stricter", `[["main",["no-force-push"]]]`, []Protection{rule("main", NoCreate)}, "u"},
		{"explicit allow does not lift a rule", `[["main",[]]]`, []Protection{rule("main", NoForcePush)}, "cu"},
		{"unknown op is closed", `[]`, []Protection{{Pattern: ref, Ops: []Op{"from-the-future"}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := allowed(t, list(t, tt.token), tt.rules, ref); got != tt.want {
				t.Errorf("allows %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	tests := []struct {
		token string
		rules []Protection
		kind  Kind
		want  string
	}{
		{`[["a",["no-push"]]]`, nil, Create, "push denied by policy"},
		{`[["a",["no-push"]]]`, nil, Force, "push denied by policy"},
		{`[["a",["no-force-push"]]]`, nil, Force, "force push denied by policy"},
		{`[["a",["no-force-push"]]]`, nil, Delete, "deletion denied by policy"},
		{`[["a",["no-force-push","no-push"]]]`, nil, Force, "push denied by policy"},
		{`[["a",["x\ny"]]]`, nil, Create, `push denied by policy (unknown op "x\ny" acts as no-push)`},
		{`[]`, []Protection{{"refs/heads/*", []Op{NoUpdate}}}, FastForward, `push denied by policy: no-update of protection rule "refs/heads/*"`},
		{`[]`, []Protection{{"refs/heads/*", []Op{NoCreate}}}, Create, `creation denied by policy: no-create of protection rule "refs/heads/*"`},
	}
	for _, tt := range tests {
		err := Decide(list(t, tt.token), tt.rules, Update{"refs/heads/a", tt.kind})
		var denied *DeniedError
		if !errors.As(err, &denied) || denied.Reason != tt.want {
			t.Errorf("%s %v: got %v, want reason %q", tt.token, tt.rules, err, tt.want)
		}
	}
}

func TestDeniesAll(t *testing.T) {
	tests := map[string]bool{
		`[]`: false,
		`[["` + ephemeral + `s",["no-force-push"]],["*",["no-push"]]]`: true,
		`[["*",["no-force-push"]]]`:                                    false,
		`[["*",["future"]]]`:                                           true,
		`[["refs/*",["no-push"]]]`:                                     true,
		`[["*",[]],["refs/*",["no-push"]]]`:                            false,
		`[["refs/heads/*",["no-push"]]]`:                               false,
	}
	for claim, want := range tests {
		if got := list(t, claim).DeniesAll(); got != want {
			t.Errorf("DeniesAll of %s = %v, want %v", claim, got, want)
		}
	}
}

func TestFoldOps(t *testing.T) {
	tests := []struct {
		claim string
		ops   []Op
		want  string
	}{
		{`[]`, nil, `[]`},
		{`[["main",[]]]`, nil, `[["refs/heads/main",[]]]`},
		{`[]`, []Op{NoPush}, `[["*",["no-push"]]]`},
		{`[["main",[]]]`, []Op{NoForcePush}, `[["refs/heads/main",[]],["*",["no-force-push"]]]`},
		{`[["*",["no-force-push"]]]`, []Op{NoPush, NoForcePush}, `[["*",["no-force-push","no-push"]]]`},
		{`[["*",[]],["main",[]]]`, []Op{NoPush}, `[["*",["no-push"]],["refs/heads/main",[]]]`},
	}
	for _, tt := range tests {
		l := list(t, tt.claim)
		before, _ := json.Marshal(l)
		folded, err := l.FoldOps(tt.ops)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(folded)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.want {
			t.Errorf("%s folded with %q = %s, want %s", tt.claim, tt.ops, got, tt.want)
		}
		if after, _ := json.Marshal(l); string(after) != string(before) {
			t.Errorf("FoldOps changed its receiver from %s to %s", before, after)
		}
	}
	var bad *OpError
	if _, err := (List{}).FoldOps([]Op{Op(strings.Repeat("x", 65))}); !errors.As(err, &bad) {
		t.Errorf("FoldOps of a long op = %v, want *OpError", err)
	}
}

func TestSigned(t *testing.T) {
	rules := []Protection{{"refs/heads/release/*", []Op{NoDelete, VerifySig}}}
	token := list(t, `[["main",["verify-sig"]],["dev",[]],["*",["verify-sig","no-force-push"]]]`)
	for ref, want := range map[string]bool{
		"refs/heads/main":      true,
		"refs/heads/dev":       false,
		"refs/heads/x":         true,
		"refs/heads/release/1": true,
	} {
		if got := len(Signed(token, rules, ref)) > 0; got != want {
			t.Errorf("Signed(%s) = %v, want %v", ref, got, want)
		}
	}
	if len(Signed(nil, rules, "refs/heads/main")) > 0 {
		t.Error("a ref without rules needs a signature")
	}
	if len(Signed(list(t, `[["*",[]]]`), rules, "refs/heads/release/1")) == 0 {
		t.Error("an explicit allow in a token lifts a protection rule")
	}
	// What an earlier rule of the token lets in is not under the later one.
	under := Signed(token, rules, "refs/heads/release/1")
	if len(under) != 2 {
		t.Fatalf("%d rules for a branch of a rule of each kind, want 2", len(under))
	}
	for ref, want := range map[string][2]bool{
		"refs/heads/main":      {false, false},
		"refs/heads/dev":       {false, false},
		"refs/heads/x":         {true, false},
		"refs/heads/release/2": {true, true},
	} {
		if got := [2]bool{under[0](ref), under[1](ref)}; got != want {
			t.Errorf("%s is under the rules: %v, want %v", ref, got, want)
		}
	}
}

func TestNormalizePattern(t *testing.T) {
	valid := map[string]string{
		"*":                           "*",
		"HEAD":                        "HEAD",
		"main":                        "refs/heads/main",
		"agents/*":                    "refs/heads/agents/*",
		"tags/v1":                     "refs/heads/tags/v1",
		"refs/heads/main":             "refs/heads/main",
		"refs/heads/*":                "refs/heads/*",
		"refs/*":                      "refs/*",
		"HEAD/*":                      "refs/heads/HEAD/*",
		ephemeral + "a/b":             ephemeral + "a/b",
		"refs/namespaces/ephemeral/*": "refs/namespaces/ephemeral/*",
		"münchen":                     "refs/heads/münchen",
	}
	for in, want := range valid {
		got, err := NormalizePattern(in)
		if err != nil || got != want {
			t.Errorf("NormalizePattern(%q) = %q, %v, want %q", in, got, err, want)
		}
		if again, err := NormalizePattern(got); err != nil || again != got {
			t.Errorf("NormalizePattern(%q) = %q, %v, want it unchanged", got, again, err)
		}
	}
	for _, in := range []string{
		"", "/", "/*", "**", "a*", "*a", "a*/b", "a/*/b", "*/a", "a/**", "refs/heads/ma*n", "refs/heads/", "refs/",
		"a b", "a\nb", "a\x00", "a?", "[a]", "a..b", "a//b", "a/", "/a", ".a", "a/.b", "a.lock", "a@{b", "a^", "a:b", `a\b`,
		strings.Repeat("a", maxPattern+1),
	} {
		var bad *PatternError
		if got, err := NormalizePattern(in); !errors.As(err, &bad) {
			t.Errorf("NormalizePattern(%q) = %q, %v, want *PatternError", in, got, err)
		}
	}
}

func TestRuleJSONRefusesWhatItCannotRead(t *testing.T) {
	for _, in := range []string{
		`null`, `"main"`, `1`, `[]`, `["main","no-push"]`, `["main",["no-push"],1]`, `[1,["no-push"]]`, `["main",[1]]`,
		`["ma*n",["no-push"]]`, `{}`, `{"ops":["no-push"]}`, `{"pattern":"main","op":["no-push"]}`,
		`{"pattern":"main","ops":"no-push"}`, `["main",["` + strings.Repeat("x", 65) + `"]]`,
	} {
		var r Rule
		if err := json.Unmarshal([]byte(in), &r); err == nil {
			t.Errorf("unmarshal %s = %+v, want an error", in, r)
		}
	}
}

func TestParseRule(t *testing.T) {
	tests := map[string]Rule{
		"main=no-push":                    {"refs/heads/main", []Op{NoPush}},
		"agents/*=no-force-push, no-push": {"refs/heads/agents/*", []Op{NoForcePush, NoPush}},
		"a=b=verify-sig":                  {"refs/heads/a=b", []Op{VerifySig}},
		"main=":                           {"refs/heads/main", nil},
	}
	for in, want := range tests {
		got, err := ParseRule(in)
		if err != nil || got.Pattern != want.Pattern || !slices.Equal(got.Ops, want.Ops) {
			t.Errorf("ParseRule(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "main", "=no-push", "a*=no-push"} {
		if got, err := ParseRule(in); err == nil {
			t.Errorf("ParseRule(%q) = %v, want an error", in, got)
		}
	}
}

func TestNewProtectionIsClosed(t *testing.T) {
	if _, err := NewProtection("main", nil); err == nil {
		t.Error("a rule without ops was accepted")
	}
	var bad *OpError
	if _, err := NewProtection("main", []Op{"no-fun"}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "no-create") {
		t.Errorf("unknown op: got %v, want an *OpError that names the known ones", err)
	}
	if _, err := NewProtection("ma*n", []Op{NoPush}); err == nil {
		t.Error("an undocumented pattern was accepted")
	}
}

func FuzzNormalizePattern(f *testing.F) {
	for _, s := range []string{"*", "HEAD", "main", "a/*", "refs/heads/x", "a**", "refs/*", "..", "\xff/*"} {
		f.Add(s, "refs/heads/main")
	}
	f.Fuzz(func(t *testing.T, pattern, ref string) {
		full, err := NormalizePattern(pattern)
		if err != nil {
			return
		}
		if again, err := NormalizePattern(full); err != nil || again != full {
			t.Fatalf("NormalizePattern(%q) = %q, %v: not stable", full, again, err)
		}
		want := full == "*" || ref == full
		if prefix, ok := strings.CutSuffix(full, "/*"); ok {
			want = want || strings.HasPrefix(ref, prefix+"/")
		}
		if got := matches(full, ref); got != want {
			t.Fatalf("matches(%q, %q) = %v, want %v", full, ref, got, want)
		}
	})
}

func FuzzRuleJSON(f *testing.F) {
	for _, s := range []string{`["main",["no-push"]]`, `{"pattern":"a/*","ops":[]}`, `["*"]`, `[["x"]]`, `{"pattern":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again Rule
		if json.Unmarshal(data, &r) != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("read back %s: %v", out, err)
		}
		if again.Pattern != r.Pattern || !slices.Equal(again.Ops, r.Ops) {
			t.Fatalf("%s came back as %+v, was %+v", out, again, r)
		}
	})
}

func TestConfine(t *testing.T) {
	list, err := Confine("sessions/42")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ref     string
		kind    Kind
		allowed bool
	}{
		{"refs/namespaces/ephemeral/refs/heads/sessions/42", Create, true},
		{"refs/namespaces/ephemeral/refs/heads/sessions/42", FastForward, true},
		{"refs/namespaces/ephemeral/refs/heads/sessions/42", Force, false},
		{"refs/namespaces/ephemeral/refs/heads/sessions/42", Delete, false},
		{"refs/namespaces/ephemeral/refs/heads/sessions/420", Create, false},
		{"refs/namespaces/ephemeral/refs/heads/main", Create, false},
		{"refs/heads/sessions/42", Create, false},
		{"refs/heads/main", FastForward, false},
		{"refs/tags/v1", Create, false},
	} {
		if err := Decide(list, nil, Update{Ref: tc.ref, Kind: tc.kind}); (err == nil) != tc.allowed {
			t.Errorf("change %d of %s: %v", tc.kind, tc.ref, err)
		}
	}
	for _, branch := range []string{"", "*", "a/*", "refs/heads/a", "a b", "a..b", "a/", "/a", "a\n", "a.lock"} {
		var bad *PatternError
		if list, err := Confine(branch); !errors.As(err, &bad) {
			t.Errorf("Confine(%q) = %v, %v, want a *PatternError", branch, list, err)
		}
	}
}
