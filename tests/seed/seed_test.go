package seed

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
)

// driver calls every sample and prints what it made, one JSON array a line.
const driver = `
func main() {
	ctx := context.Background()
	client, err := cairn.NewClient()
	if err != nil {
		panic(err)
	}
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	record := func(sample string) func(args ...string) error {
		return func(args ...string) error { return out.Encode(append([]string{sample}, args...)) }
	}
	check(quickStart())
	readURL, writeURL, err := sessionRemotes(ctx, client, "sessions/42")
	check(err)
	check(record("confine")(readURL, writeURL))
	check(runInModalSandbox(ctx, client, "team/modal", record("modal")))
	check(runAgentTask(ctx, client, "team/e2b", record("e2b")))
	check(runInDaytona(ctx, client, "team/daytona", record("daytona")))
	attempts := 0
	check(runWithFallback(ctx, client, "team/fallback", func(url string) error {
		attempts++
		if err := record("fallback")(url); err != nil || attempts > 1 {
			return err
		}
		return fmt.Errorf("the first provider is down")
	}))
}
`

var (
	importBlock = regexp.MustCompile(`(?ms)^import \((.*?)^\)\n`)
	importLine  = regexp.MustCompile(`(?m)^import (".*")\n`)
	clientName  = regexp.MustCompile(`\bpierre\b`)
)

// program joins the samples to one file. A sample without declarations becomes the body of a function.
func program(t *testing.T) string {
	t.Helper()
	imports := map[string]bool{`"encoding/json"`: true, `"os"`: true}
	var code strings.Builder
	for _, name := range []string{"quick_start", "confine", "modal", "e2b", "daytona", "fallback"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "github.com/pierrecomputer/sdk/go", "github.com/cairnstate/cairn/sdk/go")
		text = clientName.ReplaceAllString(text, "cairn")
		for _, block := range importBlock.FindAllStringSubmatch(text, -1) {
			for spec := range strings.Lines(block[1]) {
				if spec = strings.TrimSpace(spec); spec != "" {
					imports[spec] = true
				}
			}
		}
		for _, line := range importLine.FindAllStringSubmatch(text, -1) {
			imports[line[1]] = true
		}
		text = importLine.ReplaceAllString(importBlock.ReplaceAllString(text, ""), "")
		if !strings.Contains("\n"+text, "\nfunc ") {
			text = "func quickStart() error {\n" + text + "\nreturn nil\n}\n"
		}
		code.WriteString(text)
	}
	var out strings.Builder
	out.WriteString("package main\n\n")
	for spec := range imports {
		out.WriteString("import " + spec + "\n")
	}
	return out.String() + code.String() + driver
}

// run builds and runs the samples with the variables that the guide names, and returns the lines they print.
func run(t *testing.T, key []byte) []string {
	t.Helper()
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "samples")
	if err := os.WriteFile(file, []byte(program(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("the samples do not compile: %v\n%s", err, out)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PIERRE_ORG=acme", "PIERRE_PRIVATE_KEY=" + strings.ReplaceAll(string(key), "\n", `\n`)}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the samples do not run: %v\n%s", err, stderr.Bytes())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// opened is a URL taken apart: its address without the token, and what the token says.
type opened struct {
	address string
	*auth.Principal
}

func opener(t *testing.T, key []byte) func(raw string) opened {
	t.Helper()
	public, err := auth.ParsePublicKey("", key)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(raw string) opened {
		t.Helper()
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		token, _ := u.User.Password()
		p, err := verifier.Verify(token, auth.OrgKeys{Name: "acme", Keys: []auth.Key{public}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Expires - p.IssuedAt; got != 3600 {
			t.Errorf("token for %q lives %d s, want the 3600 of the sample", p.Repo, got)
		}
		u.User = nil
		return opened{u.String(), p}
	}
}

func (o opened) check(t *testing.T, address, repo string, scopes ...auth.Scope) {
	t.Helper()
	if o.address != address || o.Repo != repo || !slices.Equal(o.Scopes, scopes) {
		t.Errorf("URL %s is for %q with %q, want %s for %q with %q", o.address, o.Repo, o.Scopes, address, repo, scopes)
	}
}

func TestSamples(t *testing.T) {
	key, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	open := opener(t, key)
	lines := run(t, key)

	quick := strings.Fields(lines[0])
	if len(quick) != 2 {
		t.Fatalf("quick start printed %d words, want two URLs", len(quick))
	}
	const host = "http://127.0.0.1:8080/"
	open(quick[0]).check(t, host+"my-project.git", "my-project", auth.GitRead)
	open(quick[1]).check(t, host+"my-project.git", "my-project", auth.GitRead, auth.GitWrite)

	calls := map[string][][]string{}
	for _, line := range lines[1:] {
		var call []string
		if err := json.Unmarshal([]byte(line), &call); err != nil || len(call) == 0 {
			t.Fatalf("line %q: %v", line, err)
		}
		calls[call[0]] = append(calls[call[0]], call[1:])
	}

	confine := calls["confine"][0]
	open(confine[0]).check(t, host+"my-project.git", "my-project", auth.GitRead)
	write := open(confine[1])
	write.check(t, host+"my-project+ephemeral.git", "my-project", auth.GitRead, auth.GitWrite)
	checkConfinement(t, write.Policies)

	for _, sample := range []string{"modal", "e2b", "daytona"} {
		if len(calls[sample]) != 2 {
			t.Fatalf("%s ran %d commands, want a clone and a push", sample, len(calls[sample]))
		}
		clone := calls[sample][0]
		at := slices.IndexFunc(clone, func(arg string) bool { return strings.HasPrefix(arg, "http://") })
		if at < 0 {
			t.Fatalf("%s clones without a URL: %d arguments", sample, len(clone))
		}
		open(clone[at]).check(t, host+"team/"+sample+".git", "team/"+sample, auth.GitRead, auth.GitWrite)
	}

	fallback := calls["fallback"]
	if len(fallback) != 2 || fallback[0][0] != fallback[1][0] {
		t.Fatalf("the fallback used %d URLs, want the same one twice", len(fallback))
	}
	open(fallback[0][0]).check(t, host+"team/fallback.git", "team/fallback", auth.GitRead, auth.GitWrite)
}

// checkConfinement holds the policies of the sample against what the guide promises: fast-forward pushes to the session
// branch, and nothing else.
func checkConfinement(t *testing.T, policies policy.List) {
	t.Helper()
	const ephemeral = "refs/namespaces/ephemeral/refs/heads/"
	for _, tt := range []struct {
		update  policy.Update
		allowed bool
	}{
		{policy.Update{Ref: ephemeral + "sessions/42", Kind: policy.Create}, true},
		{policy.Update{Ref: ephemeral + "sessions/42", Kind: policy.FastForward}, true},
		{policy.Update{Ref: ephemeral + "sessions/42", Kind: policy.Force}, false},
		{policy.Update{Ref: ephemeral + "sessions/42", Kind: policy.Delete}, false},
		{policy.Update{Ref: ephemeral + "sessions/43", Kind: policy.Create}, false},
		{policy.Update{Ref: ephemeral + "main", Kind: policy.Create}, false},
		{policy.Update{Ref: "refs/heads/sessions/42", Kind: policy.Create}, false},
		{policy.Update{Ref: "refs/heads/main", Kind: policy.FastForward}, false},
		{policy.Update{Ref: "refs/namespaces/ephemeral/refs/tags/v1", Kind: policy.Create}, false},
	} {
		err := policy.Decide(policies, nil, tt.update)
		if (err == nil) != tt.allowed {
			t.Errorf("%+v: %v, want allowed %v", tt.update, err, tt.allowed)
		}
	}
	if !policies.DeniesAll() {
		t.Error("the token may change other things of the repository")
	}
}
