package netguard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
)

// TestReboundName: a name that was public when it was asked about and leads
// inside when it is connected to is refused, and nothing inside sees a
// connection.
func TestReboundName(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	public, inside := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")
	var mu sync.Mutex
	asked := 0
	g := guard(t)
	g.Resolver = testkit.Resolver(func(string) []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked == 1 {
			return []netip.Addr{public}
		}
		return []netip.Addr{inside}
	})
	u := &url.URL{Scheme: "https", Host: "rebind.example:" + port, Path: "/"}
	first, err := g.Resolver.LookupNetIP(t.Context(), "ip4", u.Hostname())
	if err != nil || len(first) != 1 || g.check(u.Hostname(), first[0].Unmap()) != nil {
		t.Fatalf("the first answer: %v, %v", first, err)
	}
	if err := g.CheckURL(u); err != nil {
		t.Fatal(err)
	}
	tr := g.Transport(nil)
	defer tr.CloseIdleConnections()
	for range 3 {
		resp, err := (&http.Client{Transport: tr}).Get(u.String())
		if err == nil {
			resp.Body.Close()
		}
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Host != "rebind.example" {
			t.Errorf("%v", err)
		}
	}
	if asked != 4 {
		t.Errorf("the name was looked up %d times, want once for each connection", asked)
	}
	// An operator who allows the name allows whatever it leads to.
	allowed := guard(t, "rebind.example")
	allowed.Resolver = g.Resolver
	conn, err := allowed.DialContext(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ln.Close()
	count := 0
	for conn := range accepted {
		conn.Close()
		count++
	}
	if count > 1 {
		t.Errorf("%d connections came through", count)
	}
}

// TestManyAddresses: of several addresses each is checked, not only the first.
func TestManyAddresses(t *testing.T) {
	g := guard(t)
	g.Resolver = testkit.Resolver(func(string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("127.0.0.1")}
	})
	_, err := g.DialContext(t.Context(), "tcp", "many.example:443")
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		t.Errorf("%v", err)
	}
}
