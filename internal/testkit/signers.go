package testkit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Signers makes keys and signatures with gpg and ssh-keygen, in a directory of
// its own.
type Signers struct {
	tb testing.TB
	// Home is the directory of gpg, for GNUPGHOME.
	Home string
	dir  string
}

// NewSigners returns Signers without keys. Without gpg or ssh-keygen the test
// fails, unless the variable SKIP names "signers".
func NewSigners(tb testing.TB) *Signers {
	tb.Helper()
	for _, program := range []string{"gpg", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			if slices.Contains(strings.FieldsFunc(os.Getenv("SKIP"), func(r rune) bool { return r == ',' || r == ' ' }), "signers") {
				tb.Skipf("SKIP names signers and %s is not there: %v", program, err)
			}
			tb.Fatalf("no %s to sign with (install gnupg and openssh-client, or set SKIP=signers)", program)
		}
	}
	// The sockets of gpg's agent need a short path.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Signers{tb: tb, Home: home, dir: tb.TempDir()}
	tb.Cleanup(func() {
		stop := exec.Command("gpgconf", "--kill", "all")
		stop.Env = s.Env()
		_ = stop.Run() // there may be no agent
		os.RemoveAll(home)
	})
	return s
}

// Env is the environment in which gpg has the keys.
func (s *Signers) Env() []string { return append(os.Environ(), "GNUPGHOME="+s.Home, "LC_ALL=C") }

func (s *Signers) run(stdin []byte, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.Stdin = s.Env(), s.dir, bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		s.tb.Logf("%s %s: %v\n%s", program, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

func (s *Signers) must(stdin []byte, program string, args ...string) string {
	s.tb.Helper()
	out, err := s.run(stdin, program, args...)
	if err != nil {
		s.tb.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return out
}

// GPG runs gpg without questions and returns what it prints.
func (s *Signers) GPG(stdin []byte, args ...string) string {
	s.tb.Helper()
	return s.must(stdin, "gpg", append([]string{"--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
}

// NewGPG makes an OpenPGP key that lives from the time that gpg is told with
// --faked-system-time in args, and returns its fingerprint. algorithm, usage and
// expire are those of gpg --quick-generate-key.
func (s *Signers) NewGPG(user, algorithm, expire string, args ...string) string {
	s.tb.Helper()
	s.GPG(nil, append(args, "--quick-generate-key", user, algorithm, "cert,sign", expire)...)
	return s.Fingerprint(user)
}

// Fingerprint returns the fingerprint of the primary key of a user.
func (s *Signers) Fingerprint(user string) string {
	s.tb.Helper()
	for line := range strings.Lines(s.GPG(nil, "--with-colons", "--list-keys", user)) {
		if rest, ok := strings.CutPrefix(line, "fpr:"); ok {
			return strings.Trim(strings.TrimSpace(rest), ":")
		}
	}
	s.tb.Fatalf("gpg has no key of %q", user)
	return ""
}

// PublicGPG returns the armoured public key of a user or fingerprint.
func (s *Signers) PublicGPG(key string) string {
	s.tb.Helper()
	return s.GPG(nil, "--armor", "--export", key)
}

// SignGPG returns a detached signature as git asks for one.
func (s *Signers) SignGPG(payload []byte, key string, args ...string) string {
	s.tb.Helper()
	return s.GPG(payload, append(append([]string{}, args...), "-bsau", key)...)
}

// GoodGPG reports whether gpg finds a signature good as git understands it.
func (s *Signers) GoodGPG(payload []byte, sig string) bool {
	s.tb.Helper()
	path := s.write("sig", sig)
	out, err := s.run(payload, "gpg", "--batch", "--keyid-format=long", "--status-fd=1", "--verify", path, "-")
	return err == nil && strings.Contains(out, "[GNUPG:] GOODSIG ")
}

// NewSSH makes an SSH key and returns its path and its public key.
func (s *Signers) NewSSH(name, algorithm string, args ...string) (path, public string) {
	s.tb.Helper()
	path = filepath.Join(s.dir, name)
	s.must(nil, "ssh-keygen", append([]string{"-q", "-t", algorithm, "-N", "", "-C", name, "-f", path}, args...)...)
	text, err := os.ReadFile(path + ".pub")
	if err != nil {
		s.tb.Fatal(err)
	}
	return path, string(text)
}

// Relock gives the SSH key at a path a passphrase.
func (s *Signers) Relock(path, passphrase string) {
	s.tb.Helper()
	s.must(nil, "ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", path)
}

// SignSSH returns a signature by the key at a path.
func (s *Signers) SignSSH(payload []byte, path, namespace string, args ...string) string {
	s.tb.Helper()
	file := s.write("payload", string(payload))
	os.Remove(file + ".sig")
	s.must(nil, "ssh-keygen", append([]string{"-Y", "sign", "-f", path, "-n", namespace}, append(args, file)...)...)
	sig, err := os.ReadFile(file + ".sig")
	if err != nil {
		s.tb.Fatal(err)
	}
	return string(sig)
}

// GoodSSH reports whether ssh-keygen finds a signature good for Git, given lines
// of allowed signers, at a time such as 20240131.
func (s *Signers) GoodSSH(payload []byte, sig, allowed, at string) bool {
	s.tb.Helper()
	_, err := s.run(payload, "ssh-keygen", "-Y", "verify", "-n", "git", "-f", s.write("allowed", allowed),
		"-I", "someone", "-s", s.write("sig", sig), "-Overify-time="+at)
	return err == nil
}

func (s *Signers) write(name, text string) string {
	s.tb.Helper()
	path := filepath.Join(s.dir, "in-"+name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	return path
}
