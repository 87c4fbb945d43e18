package hostile_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// jwt is a hand-made token.
type jwt struct {
	header, claims map[string]any
	sign           func(signed []byte) []byte
}

func (j jwt) String() string {
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	signed := part(j.header) + "." + part(j.claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(j.sign([]byte(signed)))
}

func (j jwt) with(claims map[string]any) jwt {
	all := map[string]any{}
	for k, v := range j.claims {
		all[k] = v
	}
	for k, v := range claims {
		if v == nil {
			delete(all, k)
			continue
		}
		all[k] = v
	}
	j.claims = all
	return j
}

func (j jwt) head(header map[string]any) jwt {
	j.header = header
	return j
}

func es256(t *testing.T, key *ecdsa.PrivateKey) func([]byte) []byte {
	return func(signed []byte) []byte {
		sum := sha256.Sum256(signed)
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		var out [64]byte
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])
		return out[:]
	}
}

func hs256(secret []byte) func([]byte) []byte {
	return func(signed []byte) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write(signed)
		return h.Sum(nil)
	}
}

// orgKey is the org's private key, which has to be one for ES256.
func orgKey(t *testing.T, s *harness.Server) *ecdsa.PrivateKey {
	t.Helper()
	data, err := os.ReadFile(s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := auth.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the org has a %T", parsed)
	}
	return key
}

// TestHostileTokens sends forged and malformed tokens to Git and REST.
func TestHostileTokens(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	createPublic(t, s, "r", commit(publicTree.id()))
	createPublic(t, s, "other", commit(publicTree.id()))
	key := orgKey(t, s)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	now := time.Now().Unix()
	good := jwt{
		header: map[string]any{"alg": "ES256", "typ": "JWT"},
		claims: map[string]any{"iss": harness.Org, "sub": "x", "repo": "r", "scopes": []string{"git:read", "git:write"}, "iat": now, "exp": now + 3600},
		sign:   es256(t, key),
	}
	forged := good
	forged.sign = es256(t, stranger)
	header := func(pairs ...any) map[string]any {
		h := map[string]any{"typ": "JWT"}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i].(string)] = pairs[i+1]
		}
		return h
	}
	signed := func(by func([]byte) []byte, h map[string]any) string {
		j := good.head(h)
		j.sign = by
		return j.String()
	}
	nobody := func([]byte) []byte { return nil }
	text := good.String()
	parts := strings.Split(text, ".")
	unauthorized := map[string]string{
		"none":                 signed(nobody, header("alg", "none")),
		"None":                 signed(nobody, header("alg", "None")),
		"none with signature":  signed(good.sign, header("alg", "none")),
		"empty alg":            signed(good.sign, header("alg", "")),
		"no alg":               signed(good.sign, header()),
		"HS256 by public PEM":  signed(hs256(publicPEM), header("alg", "HS256")),
		"HS256 by public DER":  signed(hs256(public), header("alg", "HS256")),
		"HS256 by nothing":     signed(hs256(nil), header("alg", "HS256")),
		"ES256 by HMAC":        signed(hs256(publicPEM), header("alg", "ES256")),
		"ES384 on P-256":       signed(good.sign, header("alg", "ES384")),
		"RS256 on EC":          signed(good.sign, header("alg", "RS256")),
		"EdDSA on EC":          signed(good.sign, header("alg", "EdDSA")),
		"es256":                signed(good.sign, header("alg", "es256")),
		"alg list":             signed(good.sign, header("alg", []string{"ES256"})),
		"another key":          forged.String(),
		"own jwk":              signed(forged.sign, header("alg", "ES256", "jwk", map[string]any{"kty": "EC", "crv": "P-256"})),
		"own x5c":              signed(forged.sign, header("alg", "ES256", "x5c", []string{"AAAA"})),
		"jku":                  signed(forged.sign, header("alg", "ES256", "jku", "http://127.0.0.1:1/keys")),
		"kid path":             signed(forged.sign, header("alg", "ES256", "kid", "../../../../dev/null")),
		"kid SQL":              signed(forged.sign, header("alg", "ES256", "kid", "' OR 1=1 --")),
		"kid NUL":              signed(forged.sign, header("alg", "ES256", "kid", "\x00")),
		"kid number":           signed(good.sign, header("alg", "ES256", "kid", 1)),
		"crit":                 signed(good.sign, header("alg", "ES256", "crit", []string{"exp"})),
		"crit null":            signed(good.sign, header("alg", "none", "crit", nil)),
		"zero signature":       signed(func([]byte) []byte { return make([]byte, 64) }, header("alg", "ES256")),
		"no signature":         parts[0] + "." + parts[1] + ".",
		"two parts":            parts[0] + "." + parts[1],
		"four parts":           text + ".",
		"five parts":           text + ".x.y",
		"other claims":         parts[0] + "." + strings.Split(good.with(map[string]any{"repo": "other"}).String(), ".")[1] + "." + parts[2],
		"padded":               parts[0] + "==." + parts[1] + "." + parts[2],
		"huge":                 good.with(map[string]any{"x": strings.Repeat("x", 40<<10)}).String(),
		"expired":              good.with(map[string]any{"exp": now - 100, "iat": now - 200}).String(),
		"no exp":               good.with(map[string]any{"exp": nil}).String(),
		"exp zero":             good.with(map[string]any{"exp": 0}).String(),
		"exp text":             good.with(map[string]any{"exp": fmt.Sprint(now + 3600)}).String(),
		"exp huge":             good.with(map[string]any{"exp": 1e300}).String(),
		"exp negative":         good.with(map[string]any{"exp": -1}).String(),
		"from the future":      good.with(map[string]any{"iat": now + 600}).String(),
		"not before":           good.with(map[string]any{"nbf": now + 600}).String(),
		"no issuer":            good.with(map[string]any{"iss": nil}).String(),
		"other issuer":         good.with(map[string]any{"iss": "acme2"}).String(),
		"issuer case":          good.with(map[string]any{"iss": "ACME"}).String(),
		"issuer list":          good.with(map[string]any{"iss": []string{"acme"}}).String(),
		"policy text":          good.with(map[string]any{"refs": "main"}).String(),
		"policy glob":          good.with(map[string]any{"refs": []any{[]any{"re*s/x", []string{"no-push"}}}}).String(),
		"policy of three":      good.with(map[string]any{"refs": []any{[]any{"x", []string{}, 1}}}).String(),
		"policy unknown field": good.with(map[string]any{"refs": []any{map[string]any{"pattern": "x", "opps": []string{"no-push"}}}}).String(),
		"nothing":              "",
		"dots":                 "..",
		"junk":                 "junk",
		"NUL":                  "a\x00b.c.d",
	}
	ask := func(token, scheme string) []harness.Answer {
		value := "Bearer " + token
		if scheme == "Basic" {
			value = "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token))
		}
		var all []harness.Answer
		for _, path := range []string{"/r.git/info/refs?service=git-upload-pack", "/r.git/info/refs?service=git-receive-pack", "/api/repos/r/branches", "/api/v1/repos/branches"} {
			if strings.ContainsRune(value, 0) {
				value = strings.ReplaceAll(value, "\x00", "%00")
			}
			all = append(all, request(t, s, "GET", path, "", map[string]string{"Authorization": value}, nil))
		}
		return all
	}
	for _, scheme := range []string{"Basic", "Bearer", "bEaReR"} {
		for _, a := range ask(text, scheme) {
			if a.Status != http.StatusOK {
				t.Errorf("the good token as %s: %d %s", scheme, a.Status, a.Body)
			}
		}
	}
	for what, token := range unauthorized {
		for _, scheme := range []string{"Basic", "Bearer"} {
			for i, a := range ask(token, scheme) {
				if a.Status != http.StatusUnauthorized || a.Header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s as %s, request %d: %d %.200q, want 401", what, scheme, i, a.Status, a.Body)
				}
				if len(token) > 20 && (bytes.Contains(a.Body, []byte(token)) || bytes.Contains(a.Body, []byte(token[len(token)-20:]))) {
					t.Errorf("%s: the answer repeats the token: %q", what, a.Body)
				}
			}
		}
	}
	for what, claims := range map[string]map[string]any{
		"case": {"repo": "R"}, "encoded": {"repo": "%72"}, "suffix": {"repo": "r.git"}, "slash": {"repo": "r/"}, "lead": {"repo": "/r"}, "dot": {"repo": "./r"},
		"space": {"repo": "r "}, "unicode": {"repo": "\uff52"}, "ephemeral": {"repo": "r+ephemeral"}, "glob": {"repo": "*"}, "none": {"repo": nil}, "blank": {"repo": ""}, "org": {"repo": "org"}, "org name": {"repo": harness.Org},
		"no scopes": {"scopes": nil}, "empty scope": {"scopes": []string{""}}, "other scopes": {"scopes": []string{"org:read", "checkpoint:read", "git", "git:*", "*", "GIT:READ", "git:read "}},
	} {
		for i, a := range ask(good.with(claims).String(), "Bearer") {
			legacy := i == 3 && claims["repo"] != nil // names the repository itself
			if a.Status != 403 && a.Status != 404 && !(legacy && a.Status == 404) {
				t.Errorf("%s, request %d: %d %.200q, want 403 or 404", what, i, a.Status, a.Body)
			}
		}
	}
}

// TestHostileForeign compares the answers for a repository of another org, one
// of this org that the token is not for, a deleted one and one that does not exist:
// status, headers and body are equal on every route and with every method.
func TestHostileForeign(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	otherKey := filepath.Join(s.Dir, "other.key")
	if _, err := s.Operate("org", "create", "other", "--key-out", otherKey); err != nil {
		t.Fatal(err)
	}
	createPublic(t, s, "mine", commit(publicTree.id()))
	createPublic(t, s, "yours", commit(publicTree.id()))
	data, err := os.ReadFile(otherKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := auth.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := auth.Mint(key, "", auth.Claims{Org: "other", Subject: "x", Repo: "theirs", Scopes: allScopes, IssuedAt: time.Now().Unix(), Expires: time.Now().Unix() + 600})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.Do(client, "POST", "/api/repos", foreign, "application/json", nil); err != nil || a.Status != http.StatusCreated {
		t.Fatalf("create: %d %s %v", a.Status, a.Body, err)
	}
	token := s.Token(harness.Grant{Repo: "mine", Scopes: allScopes})
	names := []string{"absent", "yours", "theirs", "ab%2Fsent", "y%6furs", "th%65irs", "MINE", "mine%20", "mine%2F", "%6dine%00"}
	var paths []string
	for _, remote := range []string{"", "+ephemeral", "+import"} {
		for _, end := range []string{"/info/refs?service=git-upload-pack", "/info/refs?service=git-receive-pack", "/info/refs", "/git-upload-pack", "/git-receive-pack", "/HEAD", "/objects/info/packs", ""} {
			paths = append(paths, "/{r}"+remote+".git"+end)
		}
	}
	for _, end := range []string{"", "/protections", "/file?path=a.txt", "/files", "/archive", "/branches", "/branch?name=main", "/branches/create", "/commit-pack", "/nothing"} {
		paths = append(paths, "/api/repos/{r}"+end)
	}
	n := 0
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
			for _, credential := range []string{token, ""} {
				first := ""
				for _, name := range names {
					header := map[string]string{}
					if strings.HasSuffix(path, "-pack") && !strings.HasPrefix(path, "/api") {
						header["Content-Type"] = "application/x-" + path[strings.LastIndexByte(path, '/')+1:] + "-request"
					}
					a := request(t, s, method, strings.ReplaceAll(path, "{r}", name), credential, header, strings.NewReader("{}"))
					a.Header.Del("Date")
					var h bytes.Buffer
					if err := a.Header.Write(&h); err != nil {
						t.Fatal(err)
					}
					got := fmt.Sprintf("%d\n%s\n%s", a.Status, h.Bytes(), strings.ReplaceAll(string(a.Body), name, "NAME"))
					n++
					if first == "" {
						first = got
					}
					if got != first {
						t.Errorf("%s %s with a token: %v, for %s:\n%s\nfor %s:\n%s", method, path, credential != "", names[0], first, name, got)
					}
					if a.Status/100 == 2 || a.Status >= 500 && a.Status != 501 {
						t.Errorf("%s %s for %s: %d %s", method, path, name, a.Status, a.Body)
					}
				}
			}
		}
	}
	t.Logf("%d answers compared", n)
}
