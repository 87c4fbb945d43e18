package refname

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// gitAccepts asks the installed git whether name is well formed.
func gitAccepts(t *testing.T, name string) bool {
	t.Helper()
	cmd := exec.Command("git", "check-ref-format", name)
	cmd.Env = []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + t.TempDir(), "PATH=/usr/local/bin:/usr/bin:/bin"}
	err := cmd.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); err != nil && !isExit {
		t.Fatal(err)
	}
	return err == nil
}

var rows = []struct {
	name string
	ok   bool
}{
	{"refs/heads/main", true},
	{"refs/heads/a/b/c", true},
	{"heads/main", true},
	{"refs/heads/ü", true},
	{"refs/heads/\xff\xfe", true},
	{"refs/heads/@", true},
	{"refs/heads/a@b", true},
	{"refs/heads/{x}", true},
	{"refs/heads/-x", true},
	{"refs/heads/a.b", true},
	{"refs/heads/a.lock.b", true},
	{"refs/heads/lock", true},
	{"refs/heads/HEAD", true},
	{"refs/heads/a$(id)", true},
	{"a.", false},
	{"", false},
	{"@", false},
	{"main", false},
	{"/", false},
	{"/refs/heads/x", false},
	{"refs/heads/", false},
	{"refs//heads/x", false},
	{"refs/heads/.x", false},
	{"refs/.heads/x", false},
	{"./x", false},
	{"refs/heads/x.", false},
	{"refs/heads./x", true},
	{"refs/heads/x..y", false},
	{"refs/heads/../x", false},
	{"refs/heads/x.lock", false},
	{"refs/x.lock/y", false},
	{"refs/heads/.lock", false},
	{"refs/heads/x@{1}", false},
	{"refs/heads/@{", false},
	{"refs/@/{", true},
	{"refs/heads/a b", false},
	{"refs/heads/a~b", false},
	{"refs/heads/a^b", false},
	{"refs/heads/a:b", false},
	{"refs/heads/a?b", false},
	{"refs/heads/a*b", false},
	{"refs/heads/a[b", false},
	{"refs/heads/a]b", true},
	{"refs/heads/a\\b", false},
	{"refs/heads/a\tb", false},
	{"refs/heads/a\nb", false},
	{"refs/heads/a\x7fb", false},
	{"refs/heads/a\x01b", false},
}

func TestCheck(t *testing.T) {
	for _, row := range rows {
		err := Check(row.name)
		if (err == nil) != row.ok {
			t.Errorf("Check(%q) = %v, want ok %t", row.name, err, row.ok)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("Check(%q) = %v, which is not ErrInvalid", row.name, err)
		}
		if got := gitAccepts(t, row.name); got != row.ok {
			t.Errorf("git check-ref-format %q = %t, the table says %t", row.name, got, row.ok)
		}
	}
}

func TestCheckBeyondGit(t *testing.T) {
	long := "refs/heads/" + strings.Repeat("x", MaxLen)
	if err := Check(long[:MaxLen]); err != nil {
		t.Errorf("%d bytes: %v", MaxLen, err)
	}
	for _, name := range []string{long[:MaxLen+1], "refs/heads/a\x00b"} {
		if err := Check(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("Check(%.40q) = %v, want ErrInvalid", name, err)
		}
	}
}

// TestCheckAgainstGit compares random names made of the pieces that the rules
// are about.
func TestCheckAgainstGit(t *testing.T) {
	pieces := []string{"a", "refs", "/", "/", ".", "..", ".lock", "lock", "@", "{", "@{", "~", "*", "\\", " ", "é", "\x7f", "-", "]"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		var b strings.Builder
		for range 1 + rng.IntN(7) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		// A leading dash would be an option to the command.
		name := strings.TrimLeft(b.String(), "-")
		if got, want := Check(name) == nil, gitAccepts(t, name); got != want {
			t.Errorf("Check(%q) accepts: %t, git: %t", name, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := Branch("x/y"); got != "refs/heads/x/y" {
		t.Errorf("Branch = %q", got)
	}
	stored := Ephemeral("refs/heads/x")
	if stored != "refs/namespaces/ephemeral/refs/heads/x" {
		t.Errorf("Ephemeral = %q", stored)
	}
	split := []struct {
		full, inner string
		ok          bool
	}{
		{stored, "refs/heads/x", true},
		{"refs/heads/x", "refs/heads/x", false},
		{EphemeralPrefix, EphemeralPrefix, false},
		{"refs/namespaces/ephemeral", "refs/namespaces/ephemeral", false},
	}
	for _, row := range split {
		if inner, ok := SplitEphemeral(row.full); inner != row.inner || ok != row.ok {
			t.Errorf("SplitEphemeral(%q) = %q, %t; want %q, %t", row.full, inner, ok, row.inner, row.ok)
		}
	}
	short := []struct {
		full, short string
		branch      bool
	}{
		{"refs/heads/x/y", "x/y", true},
		{"refs/heads/", "refs/heads/", false},
		{"refs/tags/x", "refs/tags/x", false},
		{stored, stored, false},
	}
	for _, row := range short {
		if got := Short(row.full); got != row.short || IsBranch(row.full) != row.branch {
			t.Errorf("Short(%q) = %q, IsBranch = %t; want %q, %t", row.full, got, IsBranch(row.full), row.short, row.branch)
		}
	}
}

func TestUnder(t *testing.T) {
	rows := []struct {
		a, b string
		want bool
	}{
		{"refs/heads/dev", "refs/heads/dev/x", true},
		{"refs/heads/dev", "refs/heads/dev/x/y", true},
		{"refs/heads/dev", "refs/heads/dev", false},
		{"refs/heads/dev", "refs/heads/develop", false},
		{"refs/heads/dev/x", "refs/heads/dev", false},
		{"refs/heads/dev", "refs/heads/Dev/x", false},
	}
	for _, row := range rows {
		if got := Under(row.a, row.b); got != row.want {
			t.Errorf("Under(%q, %q) = %t", row.a, row.b, got)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, row := range rows {
		f.Add(row.name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if Check(name) != nil {
			return
		}
		// What is accepted stays acceptable in the ephemeral namespace
		// and splits back, and no part of it walks a directory tree.
		if inner, ok := SplitEphemeral(Ephemeral(name)); !ok || inner != name {
			t.Fatalf("Ephemeral(%q) splits into %q, %t", name, inner, ok)
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == "." || part == ".." {
				t.Fatalf("Check(%q) accepts the component %q", name, part)
			}
		}
	})
}
