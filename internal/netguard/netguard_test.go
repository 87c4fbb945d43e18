package netguard

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
)

func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "140.82.121.4": true, "2606:4700::1111": true, "2a00:1450:4001::1": true,
		"::ffff:8.8.8.8": true, "64:ff9b::808:808": true,

		"127.0.0.1": false, "127.8.9.1": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false,
		"192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false,
		"224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false,
		"::": false, "::1": false, "::7f00:1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "fec0::1": false,
		"ff02::1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:0:127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false,
		"64:ff9b:1::1": false, "2002:7f00:1::": false, "2002:808:808::": false, "2001:0:1::1": false, "2001:db8::1": false, "100::1": false, "2606:4700::1%1": false,
	} {
		if got := IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public %v, want %v", text, got, want)
		}
	}
	if IsPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func guard(t *testing.T, allow ...string) *Guard {
	t.Helper()
	g, err := New(allow)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCheckURL(t *testing.T) {
	plain := guard(t)
	lax := guard(t, "git.internal", "Other.internal:8080", "10.1.0.0/16", "127.0.0.1:9", "[fd00::1]:443")
	for text, want := range map[string][2]bool{
		"https://github.com/a/b.git":   {true, true},
		"https://github.com:8443/":     {true, true},
		"https://github.com./":         {true, true},
		"http://github.com/":           {false, false},
		"https://u:p@github.com/":      {false, false},
		"https://u@git.internal/":      {false, false},
		"file:///etc/passwd":           {false, false},
		"ftp://git.internal/":          {false, false},
		"https:///x":                   {false, false},
		"https://127.0.0.1/":           {false, false},
		"https://[::1]/":               {false, false},
		"https://[::ffff:127.0.0.1]/":  {false, false},
		"https://169.254.169.254/":     {false, false},
		"https://2130706433/":          {false, false},
		"https://0x7f000001/":          {false, false},
		"https://0x7f.1/":              {false, false},
		"https://127.1/":               {false, false},
		"https://0177.0.0.1/":          {false, false},
		"https://a_b.example/":         {false, false},
		"http://git.internal/":         {false, true},
		"https://git.internal:1/":      {true, true}, // resolved, then refused
		"http://other.internal:8080/":  {false, true},
		"http://other.internal:8081/":  {false, false},
		"http://10.1.2.3/":             {false, true},
		"http://10.2.2.3/":             {false, false},
		"http://127.0.0.1:9/":          {false, true},
		"http://127.0.0.1:10/":         {false, false},
		"https://[fd00::1]/":           {false, true},
		"https://[fd00:0:0:0::1]:443/": {false, true},
		"https://[fd00::2]/":           {false, false},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range []*Guard{plain, lax} {
			err := g.CheckURL(u)
			if (err == nil) != want[i] {
				t.Errorf("%s, guard %d: %v", text, i, err)
			}
			if refused, ok := errors.AsType[*RefusedError](err); err != nil && !ok {
				t.Errorf("%s: %T, %v", text, err, refused)
			}
		}
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	for _, entry := range []string{"", "a b", "https://x", "host:port", "host:0x", "10.0.0.0/33", "-a", "a..b", "*.internal", "1.2.3"} {
		if _, err := New([]string{entry}); err == nil {
			t.Errorf("%q is accepted", entry)
		}
	}
}

// TestDialChecksWhatANameResolvesTo asks a server on loopback by address and by
// a name that resolves to it, and through a redirect.
func TestDialChecksWhatANameResolvesTo(t *testing.T) {
	ok := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") }))
	defer ok.Close()
	_, port, err := net.SplitHostPort(ok.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	redirect := httptest.NewServer(http.RedirectHandler("http://localhost:"+port+"/", http.StatusFound))
	defer redirect.Close()
	get := func(g *Guard, u string) error {
		tr := g.Transport(nil)
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get(u)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	refused := func(name string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*RefusedError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("address", get(guard(t), ok.URL))
	refused("name", get(guard(t), "http://localhost:"+port))
	refused("redirect", get(guard(t, redirect.Listener.Addr().String()), redirect.URL))
	refused("another port", get(guard(t, "localhost:1"), "http://localhost:"+port))
	for name, g := range map[string]*Guard{
		"by address": guard(t, "127.0.0.1"), "by address and port": guard(t, "127.0.0.1:"+port), "by range": guard(t, "127.0.0.0/8"),
	} {
		if err := get(g, ok.URL); err != nil {
			t.Errorf("allowed %s: %v", name, err)
		}
	}
	if err := get(guard(t, "LOCALHOST"), "http://localhost:"+port); err != nil {
		t.Errorf("allowed by name: %v", err)
	}
	if err := get(guard(t, "127.0.0.0/8", "::1/128"), "http://localhost:"+port); err != nil {
		t.Errorf("a name that resolves into an allowed range: %v", err)
	}
}

// FuzzNew takes any text as an entry: what it allows is never everything.
func FuzzNew(f *testing.F) {
	for _, entry := range []string{"git.internal", "a:1", "10.0.0.0/8", "[::1]:443", "::1", "*", "a/b", "[", "::ffff:1.2.3.4/100"} {
		f.Add(entry)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		g, err := New([]string{entry})
		if err != nil {
			return
		}
		if len(g.hosts)+len(g.prefixes) != 1 {
			t.Errorf("%q became %v and %v", entry, g.hosts, g.prefixes)
		}
		if g.Allows("unrelated.example.org", "443") && entry != "unrelated.example.org" && entry != "unrelated.example.org:443" {
			t.Errorf("%q allows an unrelated host", entry)
		}
	})
}
