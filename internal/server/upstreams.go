package server

import (
	"crypto/rand"
	"crypto/x509"
	"net/url"
	"os"
	"strings"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/upstream"
)

// openUpstreams makes what syncs repositories with other hosts.
func (s *Server) openUpstreams() (*upstream.Syncer, error) {
	c := upstream.Config{
		Meta: s.storage.Meta, Engine: s.storage.Engine, Secrets: s.storage.Secrets, Hosts: s.storage.Guard,
		Plain: make(map[string]bool), Process: strings.ToLower(rand.Text()), Timeout: s.cfg.UpstreamWait, Idle: s.cfg.UpstreamIdle, Log: s.log,
	}
	for _, host := range s.cfg.UpstreamPlain {
		host = strings.ToLower(host)
		if err := c.Hosts.CheckURL(&url.URL{Scheme: "http", Host: host}); err != nil {
			return nil, &config.UsageError{Setting: "upstream-plain", Reason: err.Error()}
		}
		c.Plain[host] = true
	}
	if file := s.cfg.UpstreamCA; file != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		text, err := os.ReadFile(file)
		if err != nil || !roots.AppendCertsFromPEM(text) {
			return nil, &config.UsageError{Setting: "upstream-ca", Reason: "the file it names cannot be read or holds no certificate"}
		}
		c.Roots = roots
	}
	return upstream.New(c), nil
}
