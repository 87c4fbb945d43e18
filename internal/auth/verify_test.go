package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cairnstate/cairn/internal/policy"
)

var testNow = time.Unix(1_800_000_000, 0)

// signers holds one private key of each family, and a second of some.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	out := map[string]crypto.Signer{}
	for name, curve := range map[string]elliptic.Curve{
		"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521(), "P-256 other": elliptic.P256(),
	} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		out[name] = key
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	out["RSA"], out["Ed25519"] = rsaKey, edKey
	return out
})

// registered returns the public half of a signer under a kid.
func registered(t testing.TB, kid, signer string) Key {
	t.Helper()
	key, err := newKey(kid, signers()[signer].Public())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// object is JSON as a test writes it.
type object map[string]any

func (o object) with(name string, value any) object {
	out := maps.Clone(o)
	out[name] = value
	return out
}

func (o object) without(name string) object {
	out := maps.Clone(o)
	delete(out, name)
	return out
}

func goodClaims() object {
	return object{
		"iss": "acme", "sub": "agent-7", "repo": "team/project", "scopes": []string{"git:read", "git:write"},
		"iat": testNow.Unix(), "exp": testNow.Unix() + 3600,
	}
}

// compose signs any header and claims with any method, however wrong.
func compose(t testing.TB, method jwt.SigningMethod, key any, head, claims any) string {
	t.Helper()
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return encoding.EncodeToString(data)
	}
	signed := part(head) + "." + part(claims)
	signature, err := method.Sign(signed, key)
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + encoding.EncodeToString(signature)
}

func es256(t testing.TB, claims any) string {
	t.Helper()
	return compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "ES256", "typ": "JWT"}, claims)
}

func acme(t testing.TB, keys ...Key) OrgKeys {
	if keys == nil {
		keys = []Key{registered(t, "", "P-256")}
	}
	return OrgKeys{Name: "acme", Version: 1, Keys: keys}
}

func newVerifier(t testing.TB, o Options) *Verifier {
	t.Helper()
	v, err := NewVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expect checks the code of a refusal ("" for none) and that its message gives no token away.
func expect(t *testing.T, raw string, p *Principal, err error, want Code) {
	t.Helper()
	if want == "" {
		if err != nil || p == nil {
			t.Errorf("got %v, %v, want a principal", p, err)
		}
		return
	}
	var bad *TokenError
	if !errors.As(err, &bad) || bad.Code != want {
		t.Errorf("got error %v, want code %s", err, want)
		return
	}
	if p != nil {
		t.Errorf("got a principal together with %v", err)
	}
	for part := range strings.SplitSeq(raw, ".") {
		if len(part) > 16 && strings.Contains(bad.Message, part[:16]) {
			t.Errorf("message %q holds a part of the token", bad.Message)
		}
	}
	if len(bad.Message) > 300 || strings.ContainsAny(bad.Message, "\r\n") {
		t.Errorf("message is not one short line: %q", bad.Message)
	}
}

func TestAlgorithms(t *testing.T) {
	fits := map[string]string{
		"RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA",
		"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519",
	}
	for alg, own := range fits {
		method := jwt.GetSigningMethod(alg)
		raw := compose(t, method, signers()[own], object{"alg": alg}, goodClaims())
		for family := range signers() {
			t.Run(alg+" against "+family, func(t *testing.T) {
				want := TokenSignature
				if family == own {
					want = ""
				}
				v := newVerifier(t, Options{})
				p, err := v.Verify(raw, acme(t, registered(t, "", family)), testNow)
				expect(t, raw, p, err, want)
			})
		}
	}
}

func TestAlgorithmConfusion(t *testing.T) {
	rsaKey, p384 := registered(t, "", "RSA"), registered(t, "", "P-384")
	hs := func(secret []byte, alg string) string {
		return compose(t, jwt.GetSigningMethod(alg), secret, object{"alg": alg}, goodClaims())
	}
	der, err := x509.MarshalPKIXPublicKey(rsaKey.public)
	if err != nil {
		t.Fatal(err)
	}
	none := compose(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, object{"alg": "none"}, goodClaims())
	tests := map[string]struct {
		raw  string
		keys []Key
		want Code
	}{
		"HS256 with the RSA public PEM":         {hs([]byte(rsaKey.PublicPEM), "HS256"), []Key{rsaKey}, TokenAlgorithm},
		"HS512 with the RSA public DER":         {hs(der, "HS512"), []Key{rsaKey}, TokenAlgorithm},
		"HS256 with an empty secret":            {hs([]byte{}, "HS256"), []Key{rsaKey}, TokenAlgorithm},
		"alg none":                              {none, []Key{rsaKey}, TokenAlgorithm},
		"alg None":                              {compose(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, object{"alg": "None"}, goodClaims()), nil, TokenAlgorithm},
		"alg absent":                            {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{}, goodClaims()), nil, TokenAlgorithm},
		"alg in lower case":                     {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "es256"}, goodClaims()), nil, TokenAlgorithm},
		"signature cut off":                     {none[:strings.LastIndexByte(none, '.')+1], []Key{rsaKey}, TokenAlgorithm},
		"says ES256, P-384 key registered":      {es256(t, goodClaims()), []Key{p384}, TokenSignature},
		"says ES384, made with P-256":           {relabel(t, es256(t, goodClaims()), "ES384"), []Key{p384}, TokenSignature},
		"says RS256, made with PS256":           {compose(t, jwt.SigningMethodPS256, signers()["RSA"], object{"alg": "RS256"}, goodClaims()), []Key{rsaKey}, TokenSignature},
		"says EdDSA, made with ES256":           {relabel(t, es256(t, goodClaims()), "EdDSA"), nil, TokenSignature},
		"another key of the same type":          {es256(t, goodClaims()), []Key{registered(t, "", "P-256 other")}, TokenSignature},
		"organisation without keys":             {es256(t, goodClaims()), []Key{}, TokenSignature},
		"jwk in the header is not used":         {compose(t, jwt.SigningMethodES256, signers()["P-256 other"], object{"alg": "ES256", "jwk": object{"kty": "EC"}, "jku": "https://evil.example"}, goodClaims()), nil, TokenSignature},
		"typ is ignored":                        {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "ES256", "typ": 7}, goodClaims()), nil, ""},
		"crit is refused":                       {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "ES256", "crit": []string{"b64"}}, goodClaims()), nil, TokenMalformed},
		"empty signature":                       {strings.Join(strings.Split(es256(t, goodClaims()), ".")[:2], ".") + ".", nil, TokenSignature},
		"all zero signature":                    {strings.Join(strings.Split(es256(t, goodClaims()), ".")[:2], ".") + "." + encoding.EncodeToString(make([]byte, 64)), nil, TokenSignature},
		"claims changed after signing":          {swapClaims(t, es256(t, goodClaims()), goodClaims().with("repo", "other")), nil, TokenSignature},
		"issuer changed to one with this key":   {es256(t, goodClaims().with("iss", "other")), nil, TokenSignature},
		"kid is a number":                       {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "ES256", "kid": 1}, goodClaims()), nil, TokenMalformed},
		"kid is a path and is not looked up":    {compose(t, jwt.SigningMethodES256, signers()["P-256"], object{"alg": "ES256", "kid": "../../dev/null"}, goodClaims()), []Key{registered(t, "k1", "P-256")}, TokenSignature},
		"header with a second alg, last counts": {duplicateAlg(t), nil, TokenAlgorithm},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			org := acme(t)
			if tt.keys != nil {
				org.Keys = tt.keys
			}
			p, err := newVerifier(t, Options{}).Verify(tt.raw, org, testNow)
			expect(t, tt.raw, p, err, tt.want)
		})
	}
}

// relabel changes the alg of a token and leaves its signature.
func relabel(t *testing.T, raw, alg string) string {
	t.Helper()
	parts := strings.Split(raw, ".")
	return encoding.EncodeToString([]byte(`{"alg":"`+alg+`"}`)) + "." + parts[1] + "." + parts[2]
}

func swapClaims(t *testing.T, raw string, claims object) string {
	t.Helper()
	data, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(raw, ".")
	return parts[0] + "." + encoding.EncodeToString(data) + "." + parts[2]
}

func duplicateAlg(t *testing.T) string {
	return compose(t, jwt.SigningMethodES256, signers()["P-256"], json.RawMessage(`{"alg":"ES256","alg":"none"}`), goodClaims())
}

func TestKID(t *testing.T) {
	one, other := "P-256", "P-256 other"
	tests := []struct {
		name string
		kid  string
		keys []Key
		want Code
		key  string
	}{
		{"absent, one key with kid", "", []Key{registered(t, "k1", one)}, "", "k1"},
		{"absent, tries every key", "", []Key{registered(t, "k1", other), registered(t, "", "RSA"), registered(t, "k2", one)}, "", "k2"},
		{"absent, none fits", "", []Key{registered(t, "k1", other)}, TokenSignature, ""},
		{"registered, its key", "k1", []Key{registered(t, "k0", other), registered(t, "k1", one)}, "", "k1"},
		{"registered, only that key counts", "k0", []Key{registered(t, "k0", other), registered(t, "k1", one), registered(t, "", one)}, TokenSignature, ""},
		{"registered, of another type", "k0", []Key{registered(t, "k0", "RSA"), registered(t, "", one)}, TokenSignature, ""},
		{"registered twice", "k0", []Key{registered(t, "k0", other), registered(t, "k0", one)}, "", "k0"},
		{"unknown, falls back to keys without kid", "zz", []Key{registered(t, "k0", other), registered(t, "", one)}, "", ""},
		{"unknown, fallback does not fit", "zz", []Key{registered(t, "k0", one), registered(t, "", other)}, TokenSignature, ""},
		{"unknown, no key without kid", "zz", []Key{registered(t, "k0", one)}, TokenSignature, ""},
		{"unknown, no keys", "zz", []Key{}, TokenSignature, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head := object{"alg": "ES256"}
			if tt.kid != "" {
				head["kid"] = tt.kid
			}
			raw := compose(t, jwt.SigningMethodES256, signers()[one], head, goodClaims())
			p, err := newVerifier(t, Options{}).Verify(raw, OrgKeys{Name: "acme", Keys: tt.keys}, testNow)
			expect(t, raw, p, err, tt.want)
			if p != nil && p.KeyID != tt.key {
				t.Errorf("verified with key %q, want %q", p.KeyID, tt.key)
			}
		})
	}
}

// TestForgeriesLookAlike: a forger learns neither whether an organisation exists nor which keys it has.
func TestForgeriesLookAlike(t *testing.T) {
	unknown := OrgKeys{Name: "acme"}
	orgs := map[string]OrgKeys{
		"without keys": acme(t, []Key{}...),
		"other issuer": {Name: "globex", Version: 3, Keys: acme(t).Keys, MaxTTL: time.Minute},
	}
	for family := range signers() {
		if family != "P-256" {
			orgs["with a key without kid, "+family] = acme(t, registered(t, "", family))
		}
		orgs["with a key with the kid, "+family] = acme(t, registered(t, "k1", family))
		orgs["with a key with another kid, "+family] = acme(t, registered(t, "k2", family))
	}
	claims := map[string]object{
		"good": goodClaims(), "expired": goodClaims().with("exp", 1), "early": goodClaims().with("nbf", testNow.Unix()+999),
		"without exp": goodClaims().without("exp"),
	}
	for alg, own := range map[string]string{"RS256": "RSA", "PS512": "RSA", "ES256": "P-256 other", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"} {
		for what, c := range claims {
			forged := compose(t, jwt.GetSigningMethod(alg), signers()[own], object{"alg": alg, "kid": "k1"}, c)
			forged = forged[:len(forged)-8] + "AAAAAAAA" // matches no key, not even its own
			_, want := newVerifier(t, Options{}).Verify(forged, unknown, testNow)
			expect(t, forged, nil, want, TokenSignature)
			for org, keys := range orgs {
				p, err := newVerifier(t, Options{}).Verify(forged, keys, testNow)
				expect(t, forged, p, err, TokenSignature)
				if err == nil || err.Error() != want.Error() {
					t.Errorf("%s %s at an org %s: %v, and at an unknown org %v", what, alg, org, err, want)
				}
			}
		}
	}
	for _, fam := range algorithms {
		if got, err := familyOf(nobodys()[fam]); err != nil || got != fam {
			t.Errorf("the key that is tried in place of a missing one of %s is of %s, %v", fam, got, err)
		}
	}
}

func TestClaims(t *testing.T) {
	now := testNow.Unix()
	good := goodClaims()
	tests := []struct {
		name   string
		claims any
		want   Code
	}{
		{"good", good, ""},
		{"not an object", []int{1}, TokenMalformed},
		{"no iss", good.without("iss"), TokenMalformed},
		{"iss not a string", good.with("iss", 1), TokenMalformed},
		{"no sub", good.without("sub"), ""},
		{"no repo", good.without("repo"), ""},
		{"repo not a string", good.with("repo", []string{"a"}), TokenMalformed},
		{"scopes not an array", good.with("scopes", "git:read"), TokenMalformed},
		{"no scopes", good.without("scopes"), ""},
		{"audience is ignored", good.with("aud", []string{"x"}), ""},
		{"unknown claims are ignored", good.with("azp", 1), ""},

		{"iat in the past", good.with("iat", now-86400), ""},
		{"no iat", good.without("iat"), ""},
		{"iat ahead by 30 s", good.with("iat", now+30), ""},
		{"iat ahead by 60 s", good.with("iat", now+60), ""},
		{"iat ahead by 61 s", good.with("iat", now+61), TokenNotYetValid},
		{"iat with a fraction", good.with("iat", float64(now)+0.75), ""},
		{"iat negative", good.with("iat", -1), TokenMalformed},
		{"iat a string", good.with("iat", "1"), TokenMalformed},
		{"iat huge", good.with("iat", 1e300), TokenMalformed},

		{"nbf past", good.with("nbf", now-1), ""},
		{"nbf ahead by 60 s", good.with("nbf", now+60), ""},
		{"nbf ahead by 61 s", good.with("nbf", now+61), TokenNotYetValid},
		{"nbf a string", good.with("nbf", "x"), TokenMalformed},

		{"no exp", good.without("exp"), TokenMalformed},
		{"exp null", good.with("exp", nil), TokenMalformed},
		{"exp a string", good.with("exp", "never"), TokenMalformed},
		{"exp huge", good.with("exp", 1e300), TokenMalformed},
		{"exp zero", good.with("exp", 0), TokenExpired},
		{"exp a year ahead", good.with("exp", now+366*86400), ""},
		{"exp now", good.with("exp", now), TokenExpired},
		{"exp in one second", good.with("exp", now+1), ""},
		{"exp fraction is dropped", good.with("exp", float64(now)+0.9), TokenExpired},

		{"refs", good.with("refs", []any{[]any{"main", []string{"no-push"}}}), ""},
		{"refs as objects", good.with("refs", []any{object{"pattern": "main", "ops": []string{"no-push"}}}), ""},
		{"refs null", good.with("refs", nil), ""},
		{"refs not an array", good.with("refs", "main"), TokenMalformed},
		{"refs an object", good.with("refs", object{"main": []string{"no-push"}}), TokenMalformed},
		{"refs entry a string", good.with("refs", []any{"main"}), TokenMalformed},
		{"refs pattern undocumented", good.with("refs", []any{[]any{"ma*n", []string{"no-push"}}}), TokenMalformed},
		{"refs ops a string", good.with("refs", []any{[]any{"main", "no-push"}}), TokenMalformed},
		{"refs unknown op", good.with("refs", []any{[]any{"main", []string{"x"}}}), ""},
		{"ops", good.with("ops", []string{"no-push"}), ""},
		{"ops a string", good.with("ops", "no-push"), TokenMalformed},
		{"ops too long", good.with("ops", []string{strings.Repeat("x", 65)}), TokenMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw := es256(t, tt.claims)
			p, err := newVerifier(t, Options{}).Verify(raw, acme(t), testNow)
			expect(t, raw, p, err, tt.want)
		})
	}
}

func TestMessagesSayWhen(t *testing.T) {
	v := newVerifier(t, Options{})
	_, err := v.Verify(es256(t, goodClaims().with("iat", testNow.Unix()+600)), acme(t), testNow)
	for _, part := range []string{"iat", "server's time " + stamp(testNow), stamp(testNow.Add(600 * time.Second))} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not name %q", err, part)
		}
	}
	_, err = v.Verify(es256(t, goodClaims().with("exp", testNow.Unix()-90)), acme(t), testNow)
	for _, part := range []string{stamp(testNow.Add(-90 * time.Second)), "1m30s ago"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not name %q", err, part)
		}
	}
}

func TestPrincipalCarriesTheClaims(t *testing.T) {
	raw := es256(t, goodClaims().with("thread", "t1").with("session", "s1").
		with("refs", []any{[]any{"main", []string{"no-force-push"}}}).with("ops", []string{"no-push"}))
	p, err := newVerifier(t, Options{Strict: true}).Verify(raw, acme(t, registered(t, "k9", "P-256")), testNow)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"Org":"acme","Subject":"agent-7","Repo":"team/project","Thread":"t1","Session":"s1",`+
		`"Scopes":["git:read","git:write"],"Policies":[["refs/heads/main",["no-force-push"]],["*",["no-push"]]],`+
		`"IssuedAt":%d,"Expires":%d,"KeyID":"k9","Strict":true}`, testNow.Unix(), testNow.Unix()+3600)
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestGraceAndLifetime(t *testing.T) {
	now := testNow.Unix()
	v := newVerifier(t, Options{Grace: 30 * time.Second})
	for after, want := range map[int64]Code{0: "", 29: "", 30: TokenExpired, 31: TokenExpired} {
		raw := es256(t, goodClaims().with("exp", now-after))
		p, err := v.Verify(raw, acme(t), testNow)
		expect(t, raw, p, err, want)
	}
	limited := acme(t)
	limited.MaxTTL = time.Hour
	for _, tt := range []struct {
		claims object
		want   Code
	}{
		{goodClaims(), ""},
		{goodClaims().with("exp", now+3601), TokenLifetime},
		{goodClaims().with("iat", now-10), TokenLifetime},
		{goodClaims().without("iat"), TokenLifetime},
	} {
		raw := es256(t, tt.claims)
		p, err := v.Verify(raw, limited, testNow)
		expect(t, raw, p, err, tt.want)
	}
	for _, o := range []Options{{Grace: -1}, {Grace: 61 * time.Second}, {CacheSize: -1}} {
		if _, err := NewVerifier(o); err == nil {
			t.Errorf("NewVerifier(%+v) accepted an option out of range", o)
		}
	}
}

func TestShapes(t *testing.T) {
	raw := es256(t, goodClaims())
	parts := strings.Split(raw, ".")
	tests := map[string]struct {
		raw  string
		want Code
	}{
		"empty":                  {"", TokenMissing},
		"one part":               {"x", TokenMalformed},
		"two parts":              {parts[0] + "." + parts[1], TokenMalformed},
		"four parts":             {raw + ".x", TokenMalformed},
		"padding":                {parts[0] + "=." + parts[1] + "." + parts[2], TokenMalformed},
		"standard base64":        {"+/+/." + parts[1] + "." + parts[2], TokenMalformed},
		"header not JSON":        {encoding.EncodeToString([]byte("{")) + "." + parts[1] + "." + parts[2], TokenMalformed},
		"header is null":         {encoding.EncodeToString([]byte("null")) + "." + parts[1] + "." + parts[2], TokenAlgorithm},
		"bytes after the claims": {parts[0] + "." + encoding.EncodeToString([]byte(`{"iss":"acme"}{}`)) + "." + parts[2], TokenMalformed},
		"signature not base64":   {parts[0] + "." + parts[1] + ".!", TokenMalformed},
		"at the limit":           {strings.Repeat("x", MaxTokenSize), TokenMalformed},
		"over the limit":         {raw + strings.Repeat("x", MaxTokenSize), TokenMalformed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := newVerifier(t, Options{}).Verify(tt.raw, acme(t), testNow)
			expect(t, tt.raw, p, err, tt.want)
		})
	}
	v := newVerifier(t, Options{})
	for n := range len(raw) {
		if p, err := v.Verify(raw[:n], acme(t), testNow); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted as %+v", n, len(raw), p)
		}
	}
}

func TestPeek(t *testing.T) {
	v := newVerifier(t, Options{})
	raw := es256(t, goodClaims().with("thread", "t1"))
	check := func() {
		t.Helper()
		org, repo, thread, sub, err := v.Peek(raw)
		if got := []string{org, repo, thread, sub}; err != nil || !slices.Equal(got, []string{"acme", "team/project", "t1", "agent-7"}) {
			t.Errorf("Peek = %q, %v", got, err)
		}
	}
	check()
	if _, err := v.Verify(raw, acme(t), testNow); err != nil {
		t.Fatal(err)
	}
	check()
	for bad, want := range map[string]Code{"": TokenMissing, "a.b.c": TokenMalformed, strings.Repeat("a", MaxTokenSize+1): TokenMalformed} {
		var refused *TokenError
		if _, _, _, _, err := v.Peek(bad); !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("Peek(%.10q) = %v, want %s", bad, err, want)
		}
	}
}

func TestFloor(t *testing.T) {
	at := func(iat int64) *Principal { return &Principal{Claims: Claims{IssuedAt: iat}} }
	for _, tt := range []struct {
		floor, iat int64
		refused    bool
	}{{0, 0, false}, {0, 5, false}, {5, 0, true}, {5, 4, true}, {5, 5, true}, {5, 6, false}} {
		err := Floor(tt.floor, at(tt.iat))
		var bad *TokenError
		if refused := errors.As(err, &bad) && bad.Code == TokenSuperseded; refused != tt.refused || (err != nil) != tt.refused {
			t.Errorf("Floor(%d) of iat %d = %v, want refused %v", tt.floor, tt.iat, err, tt.refused)
		}
	}
}

func TestAllows(t *testing.T) {
	all := []Scope{GitRead, GitWrite, RepoWrite, OrgRead, CheckpointRead, CheckpointWrite, SessionWrite}
	tests := []struct {
		name   string
		claims Claims
		strict bool
		want   []Scope
	}{
		{"scopes without claims", Claims{Scopes: all}, false, []Scope{OrgRead}},
		{"repo", Claims{Scopes: all, Repo: "r"}, false, []Scope{GitRead, GitWrite, RepoWrite, OrgRead, SessionWrite}},
		{"thread", Claims{Scopes: all, Thread: "t"}, false, []Scope{OrgRead, CheckpointRead, CheckpointWrite, SessionWrite}},
		{"session", Claims{Scopes: all, Session: "s"}, false, []Scope{OrgRead, SessionWrite}},
		{"write implies read", Claims{Scopes: []Scope{GitWrite}, Repo: "r"}, false, []Scope{GitRead, GitWrite}},
		{"strict", Claims{Scopes: []Scope{GitWrite}, Repo: "r"}, true, []Scope{GitWrite}},
		{"read does not imply write", Claims{Scopes: []Scope{GitRead, CheckpointRead}, Repo: "r", Thread: "t"}, false, []Scope{GitRead, CheckpointRead}},
		{"no other implication", Claims{Scopes: []Scope{RepoWrite, CheckpointWrite}, Repo: "r", Thread: "t"}, false, []Scope{RepoWrite, CheckpointWrite}},
		{"no scopes", Claims{Repo: "r", Thread: "t", Session: "s"}, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &Principal{Claims: tt.claims, Strict: tt.strict}
			for _, scope := range all {
				if got, want := p.Allows(scope), slices.Contains(tt.want, scope); got != want {
					t.Errorf("Allows(%s) = %v, want %v", scope, got, want)
				}
			}
		})
	}
	unknown := &Principal{Claims: Claims{Scopes: []Scope{"deployment:write"}, Repo: "r", Thread: "*"}}
	if unknown.Allows("deployment:write") {
		t.Error("an unknown scope grants something")
	}
	p := &Principal{Claims: Claims{Repo: "a/b", Thread: "t"}}
	if !p.CoversRepo("a/b") || p.CoversRepo("a") || p.CoversRepo("") || p.CoversRepo("A/B") {
		t.Error("CoversRepo is not equality")
	}
	if !p.CoversThread("t") || p.CoversThread("u") || p.CoversThread("") {
		t.Error("CoversThread is not equality")
	}
	each := &Principal{Claims: Claims{Thread: AnyThread}}
	if !each.CoversThread("u") || each.CoversThread("") || each.CoversRepo("") {
		t.Error("AnyThread does not cover exactly the threads")
	}
}

func TestMintAndVerify(t *testing.T) {
	claims := Claims{
		Org: "acme", Subject: "me", Repo: "r", Scopes: []Scope{GitRead}, IssuedAt: testNow.Unix(), Expires: testNow.Unix() + 60,
		Policies: policy.List{{Pattern: "refs/heads/x", Ops: []policy.Op{policy.NoForcePush}}, {Pattern: "*"}},
	}
	for name, signer := range signers() {
		raw, err := Mint(signer, "k", claims)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, err := newVerifier(t, Options{}).Verify(raw, acme(t, registered(t, "k", name)), testNow)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, _ := json.Marshal(p.Claims)
		want, _ := json.Marshal(claims)
		if string(got) != string(want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		parsed, err := jwt.NewParser(jwt.WithValidMethods([]string{"ES256", "ES384", "ES512", "RS256", "EdDSA"}),
			jwt.WithTimeFunc(func() time.Time { return testNow })).
			Parse(raw, func(*jwt.Token) (any, error) { return signer.Public(), nil })
		if err != nil || parsed.Header["typ"] != "JWT" || parsed.Header["kid"] != "k" {
			t.Errorf("%s: another parser reads %v, %v", name, parsed, err)
		}
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() (string, error){
		"no org":        func() (string, error) { return Mint(signers()["P-256"], "", Claims{Expires: 1}) },
		"no lifetime":   func() (string, error) { return Mint(signers()["P-256"], "", Claims{Org: "a", IssuedAt: 5, Expires: 5}) },
		"small RSA key": func() (string, error) { return Mint(small, "", claims) },
		"no key":        func() (string, error) { return Mint(nil, "", claims) },
		"too long": func() (string, error) {
			return Mint(signers()["P-256"], "", Claims{Org: "a", Expires: 5, Repo: strings.Repeat("r", MaxTokenSize)})
		},
	} {
		if raw, err := try(); err == nil {
			t.Errorf("%s: minted %q", name, raw)
		}
	}
}

func FuzzVerify(f *testing.F) {
	good := es256(f, goodClaims())
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add("")
	f.Add("..")
	f.Add(parts[0] + "." + parts[1] + ".")
	f.Add(encoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".")
	limited := es256(f, goodClaims().with("refs", []any{[]any{"main", []string{"no-push"}}}))
	f.Add(limited)
	org, v := acme(f), newVerifier(f, Options{CacheSize: 8})
	f.Fuzz(func(t *testing.T, raw string) {
		peeked, _, _, _, peekErr := v.Peek(raw)
		p, err := v.Verify(raw, org, testNow)
		if err == nil {
			signed := raw[:strings.LastIndexByte(raw, '.')+1]
			if !strings.HasPrefix(good, signed) && !strings.HasPrefix(limited, signed) {
				t.Fatalf("accepted %q, which was never signed", raw)
			}
			if peekErr != nil || peeked != "acme" || p.Org != "acme" {
				t.Fatalf("verified %+v, peeked %q, %v", p, peeked, peekErr)
			}
			return
		}
		var bad *TokenError
		if !errors.As(err, &bad) || bad.Code == "" || len(bad.Message) > 2000 {
			t.Fatalf("error %v is not a *TokenError", err)
		}
	})
}

func FuzzPeek(f *testing.F) {
	for _, s := range []string{`{"iss":"a"}`, `{"iss":"a","refs":[["*",[]]]}`, `{"iss":1}`, `[`, `{"iss":"a","exp":1e309}`, `null`} {
		f.Add([]byte(`{"alg":"ES256"}`), []byte(s))
	}
	v := newVerifier(f, Options{CacheSize: 1})
	f.Fuzz(func(t *testing.T, head, claims []byte) {
		raw := encoding.EncodeToString(head) + "." + encoding.EncodeToString(claims) + ".AAAA"
		org, _, _, _, err := v.Peek(raw)
		var bad *TokenError
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("error %v is not a *TokenError", err)
		}
		if (err == nil) != (org != "") {
			t.Fatalf("Peek = %q, %v", org, err)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, name := range []string{"P-256", "RSA", "Ed25519"} {
		key := registered(f, "", name)
		f.Add([]byte(key.PublicPEM))
		der, err := x509.MarshalPKCS8PrivateKey(signers()[name])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParsePublicKey("k", text)
		if err != nil {
			if !errors.Is(err, ErrKey) {
				t.Fatalf("error %v does not wrap ErrKey", err)
			}
			return
		}
		again, err := ParsePublicKey("k", []byte(key.PublicPEM))
		if err != nil || again.PublicPEM != key.PublicPEM || again.Type() != key.Type() {
			t.Fatalf("canonical form came back as %+v, %v", again, err)
		}
	})
}
