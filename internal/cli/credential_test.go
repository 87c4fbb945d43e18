package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// credential runs the helper with git's question on standard input.
func (m *terminal) credential(action, question string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	env := m.env(&out, &errs)
	env.Stdin = strings.NewReader(question)
	code = Main(m.t.Context(), []string{"credential", action}, env)
	return code, out.String(), errs.String()
}

func TestCredential(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	newTerminal(t).must("org", "create", "acme", "--data", t.TempDir(), "--key-out", key)
	minter := newTerminal(t, "CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+key)
	token := strings.TrimSpace(minter.must("token", "--repo", "r"))
	ours := newTerminal(t, "CAIRN_URL=https://git.example.com/cairn", "CAIRN_TOKEN="+token)

	for name, question := range map[string]string{
		"host":             "protocol=https\nhost=git.example.com\n",
		"end of input":     "protocol=https\nhost=git.example.com",
		"port":             "protocol=https\nhost=git.example.com:443\n\n",
		"upper case":       "protocol=https\nhost=GIT.example.com\n\n",
		"path":             "protocol=https\nhost=git.example.com\npath=cairn/r.git\n\n",
		"further keys":     "capability[]=authtype\nprotocol=https\nhost=git.example.com\nwwwauth[]=Basic realm=\"x\"\n\n",
		"after empty line": "protocol=https\nhost=git.example.com\n\nhost=evil.example.com\n",
	} {
		code, out, errs := ours.credential("get", question)
		if code != 0 || errs != "" || !strings.HasPrefix(out, "username=t\npassword="+token+"\npassword_expiry_utc=") {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
	for name, question := range map[string]string{
		"another host":     "protocol=https\nhost=evil.example.com\n\n",
		"a longer host":    "protocol=https\nhost=git.example.com.evil.com\n\n",
		"another port":     "protocol=https\nhost=git.example.com:8443\n\n",
		"no encryption":    "protocol=http\nhost=git.example.com\n\n",
		"another path":     "protocol=https\nhost=git.example.com\npath=other/r.git\n\n",
		"a longer path":    "protocol=https\nhost=git.example.com\npath=cairnival/r.git\n\n",
		"nothing":          "",
		"last one decides": "protocol=https\nhost=git.example.com\nhost=evil.example.com\n\n",
	} {
		if code, out, errs := ours.credential("get", question); code != 0 || out != "" || errs != "" {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
	for _, action := range []string{"store", "erase", "capability"} {
		if code, out, errs := ours.credential(action, "protocol=https\nhost=git.example.com\n\n"); code != 0 || out != "" || errs != "" {
			t.Errorf("%s: exit code %d\n%s%s", action, code, out, errs)
		}
	}
	if code, _, errs := ours.credential("get", "nonsense\n"); code != exitUsage || !strings.Contains(errs, "key=value") {
		t.Errorf("nonsense: exit code %d\n%s", code, errs)
	}
	if code, _, errs := ours.credential("get", strings.Repeat("a", maxAttributes+1)); code != exitUsage {
		t.Errorf("a long line: exit code %d\n%s", code, errs)
	}
}

func TestCredentialThatCannotServe(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	newTerminal(t).must("org", "create", "acme", "--data", t.TempDir(), "--key-out", key)
	minter := newTerminal(t, "CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+key)
	minter.now = func() time.Time { return time.Now().Add(-time.Hour) }
	old := strings.TrimSpace(minter.must("token", "--repo", "r", "--ttl", "10m"))
	const question = "protocol=http\nhost=127.0.0.1:8080\n\n"
	for name, c := range map[string]struct {
		vars []string
		code int
		says string
	}{
		"none":     {nil, exitUsage, "set CAIRN_TOKEN"},
		"no file":  {[]string{"CAIRN_TOKEN_FILE=" + filepath.Join(t.TempDir(), "absent")}, exitUsage, "CAIRN_TOKEN_FILE"},
		"no token": {[]string{"CAIRN_TOKEN=hunter2"}, exitUsage, "not a token"},
		"lines":    {[]string{"CAIRN_TOKEN=a\nhost=evil.example.com"}, exitUsage, "not one line"},
		"expired":  {[]string{"CAIRN_TOKEN=" + old}, exitDenied, "expired at"},
	} {
		code, out, errs := newTerminal(t, c.vars...).credential("get", question)
		if code != c.code || out != "quit=1\n" || !strings.Contains(errs, c.says) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
}

// A token that is replaced in its file serves the next request of git.
func TestCredentialReadsTheFileAnew(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	newTerminal(t).must("org", "create", "acme", "--data", t.TempDir(), "--key-out", key)
	minter := newTerminal(t, "CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+key)
	file := filepath.Join(t.TempDir(), "token")
	sandbox := newTerminal(t, "CAIRN_TOKEN_FILE="+file)
	for i := range 2 {
		token := strings.TrimSpace(minter.must("token", "--repo", "r", "--sub", "agent-"+strconv.Itoa(i)))
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, out, errs := sandbox.credential("get", "protocol=http\nhost=127.0.0.1:8080\n\n"); !strings.Contains(out, "password="+token+"\n") {
			t.Errorf("round %d:\n%s%s", i, out, errs)
		}
	}
}
