package s3_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/blob/s3"
)

var env = s3.Env{AccessKeyID: "id", SecretAccessKey: "top-secret", SessionToken: "token", Region: "eu-west-1"}

func TestParseURL(t *testing.T) {
	c, err := s3.ParseURL("s3://packs/a/b/?endpoint=http://localhost:9000&region=us-west-2&path_style=true", env)
	if err != nil {
		t.Fatal(err)
	}
	if c.Bucket != "packs" || c.Prefix != "a/b/" || c.Endpoint != "http://localhost:9000" || c.Region != "us-west-2" || !c.PathStyle ||
		c.AccessKeyID != "id" || c.SecretAccessKey != "top-secret" || c.SessionToken != "token" {
		t.Errorf("got bucket %q prefix %q endpoint %q region %q path style %v", c.Bucket, c.Prefix, c.Endpoint, c.Region, c.PathStyle)
	}
	c, err = s3.ParseURL("s3://packs", s3.Env{AccessKeyID: "id", SecretAccessKey: "s"})
	if err != nil || c.Endpoint != "https://s3.amazonaws.com" || c.Region != "us-east-1" || c.PathStyle || c.Prefix != "" {
		t.Errorf("defaults: %q, %q, %v, %v", c.Endpoint, c.Region, c.PathStyle, err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "packs", "http://packs", "s3://", "s3:packs", "s3://user:top-secret@packs", "s3://packs#x", "s3://packs?endpoint=",
		"s3://packs?endpoint=localhost:9000", "s3://packs?endpoint=http://h/path", "s3://packs?endpoint=http://u:top-secret@h",
		"s3://packs?path_style=perhaps", "s3://packs?region=a&region=b", "s3://packs?unknown=1", "s3://packs?%zz", "s3://pa cks",
	} {
		if _, err := s3.ParseURL(raw, env); !errors.Is(err, s3.ErrConfig) || strings.Contains(err.Error(), "top-secret") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, half := range []s3.Env{{}, {AccessKeyID: "id"}, {SecretAccessKey: "top-secret"}} {
		if _, err := s3.ParseURL("s3://packs", half); !errors.Is(err, s3.ErrConfig) {
			t.Errorf("half-set credentials: %v", err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"s3://packs", "s3://packs/p?endpoint=http://h:1&region=r&path_style=1", "s3://u:p@b", "s3://[::1]", "s3://b?x", "%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := s3.ParseURL(raw, env)
		if err != nil {
			if !errors.Is(err, s3.ErrConfig) {
				t.Errorf("error %v is not %v", err, s3.ErrConfig)
			}
			return
		}
		if c.Bucket == "" || c.Endpoint == "" || c.Region == "" || c.Prefix != "" && !strings.HasSuffix(c.Prefix, "/") {
			t.Errorf("%q makes an incomplete configuration", raw)
		}
	})
}
