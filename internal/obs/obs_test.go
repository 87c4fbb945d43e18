package obs

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

const token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhY21lIiwicmVwbyI6InIifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"

func TestNoCredentialIsLogged(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("t:" + token))
	key := "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----"
	for _, format := range []string{"json", "text"} {
		var buf bytes.Buffer
		log, err := NewLogger(&buf, "debug", format)
		if err != nil {
			t.Fatal(err)
		}
		log = log.With("base", "https://t:"+token+"@host/r.git")
		log.WithGroup("g").Debug("got "+token,
			"auth", "Basic "+basic, "bearer", "Bearer "+token, "url", "https://u:secret-password@host/x",
			"err", fmt.Errorf("wrapped: %w", errors.New("token "+token)), "key", key, "n", 7)
		out := buf.String()
		for _, secret := range []string{token, strings.Split(token, ".")[2], basic, "secret-password", "MIGHAgEAMBMGByqGSM49"} {
			if strings.Contains(out, secret) {
				t.Errorf("%s log holds %q:\n%s", format, secret, out)
			}
		}
		if !strings.Contains(out, hidden) || !strings.Contains(out, "host/x") {
			t.Errorf("%s log lost more than the credentials:\n%s", format, out)
		}
	}
}

func TestUnknownLevelAndFormat(t *testing.T) {
	for _, tc := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := NewLogger(&bytes.Buffer{}, tc[0], tc[1]); err == nil {
			t.Errorf("NewLogger(%q, %q) succeeded", tc[0], tc[1])
		}
	}
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1.2.3")
	m.Begin("git-upload-pack").End(200, 10, 20)
	m.CountCorruption(func() int64 { return 1 })
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`cairn_requests_total{route="git-upload-pack",status="200"} 1`,
		`cairn_response_bytes_total{route="git-upload-pack"} 20`,
		`cairn_request_bytes_total{route="git-upload-pack"} 10`,
		`cairn_build_info{version="v1.2.3"} 1`,
		`cairn_corruption_total 1`,
		`cairn_requests_in_flight 0`,
	} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}
