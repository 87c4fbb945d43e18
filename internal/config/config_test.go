package config

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"
)

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestSourcesInOrder(t *testing.T) {
	files := map[string]string{
		"/c.yaml": "data: /from-file\nlisten: 127.0.0.1:1\nlog-level: debug\ntls-host: [a.example, b.example]\ndev-tls: true\n",
		"/secret": "postgres://db\n",
	}
	c, err := Load(Source{
		Flags:  map[string]string{"config": "/c.yaml", "listen": "127.0.0.1:3"},
		Getenv: env(map[string]string{"CAIRN_LISTEN": "127.0.0.1:2", "CAIRN_LOG_LEVEL": "warn", "CAIRN_DATABASE_URL_FILE": "/secret"}),
		ReadFile: func(p string) ([]byte, error) {
			if s, ok := files[p]; ok {
				return []byte(s), nil
			}
			return nil, fs.ErrNotExist
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Data != "/from-file" || c.Listen != "127.0.0.1:3" || c.LogLevel != "warn" || c.DatabaseURL != "postgres://db" {
		t.Errorf("got %+v", c)
	}
	if strings.Join(c.TLSHosts, " ") != "a.example b.example" || !c.DevTLS {
		t.Errorf("hosts %v, dev-tls %v", c.TLSHosts, c.DevTLS)
	}
	if c.IdleTimeout != time.Minute || c.InlinePack != 64<<10 {
		t.Errorf("defaults: idle %s, inline %d", c.IdleTimeout, c.InlinePack)
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		flags map[string]string
		env   map[string]string
		file  string
		want  string
	}{
		"nowhere to keep data":     {want: "--data"},
		"database without bucket":  {flags: map[string]string{"database-url": "postgres://x"}, want: "--bucket"},
		"half of TLS":              {flags: map[string]string{"data": "d", "tls-cert": "c"}, want: "--tls-key"},
		"two kinds of TLS":         {flags: map[string]string{"data": "d", "tls-cert": "c", "tls-key": "k", "dev-tls": "true"}, want: "either"},
		"host without dev-tls":     {flags: map[string]string{"data": "d", "tls-host": "h"}, want: "--dev-tls"},
		"cache without bucket":     {flags: map[string]string{"data": "d", "cache-dir": "x"}, want: "--bucket"},
		"half of the AWS pair":     {flags: map[string]string{"data": "d", "bucket": "s3://b"}, env: map[string]string{"AWS_ACCESS_KEY_ID": "a"}, want: "AWS_SECRET_ACCESS_KEY"},
		"unknown key":              {file: "data: d\nlisten-on: x\n", want: "listen-on"},
		"not a mapping":            {file: "- a\n", want: "mapping"},
		"bad size":                 {flags: map[string]string{"data": "d", "max-push": "1 GB"}, want: "--max-push"},
		"huge size":                {flags: map[string]string{"data": "d", "max-push": "9999999999TiB"}, want: "--max-push"},
		"no memory":                {flags: map[string]string{"data": "d", "memory-cache": "0"}, want: "1048576"},
		"no pushes":                {flags: map[string]string{"data": "d", "max-push": "0"}, want: "--max-push"},
		"bad grace":                {env: map[string]string{"CAIRN_DATA": "d", "CAIRN_TOKEN_GRACE": "61s"}, want: "CAIRN_TOKEN_GRACE"},
		"bad origin":               {flags: map[string]string{"data": "d", "allow-origin": "https://app.example.com/"}, want: "without a path"},
		"capitals in an origin":    {flags: map[string]string{"data": "d", "allow-origin": "https://App.example.com"}, want: "lower case"},
		"origin without a scheme":  {flags: map[string]string{"data": "d", "allow-origin": "*,app.example.com"}, want: "not an origin"},
		"bad proxy":                {flags: map[string]string{"data": "d", "trusted-proxy": "10.0.0.1"}, want: "10.0.0.0/8"},
		"bad level":                {flags: map[string]string{"data": "d", "log-level": "loud"}, want: "debug"},
		"secret twice":             {flags: map[string]string{"data": "d"}, env: map[string]string{"CAIRN_DATABASE_URL": "a", "CAIRN_DATABASE_URL_FILE": "b"}, want: "either"},
		"secret keys twice":        {flags: map[string]string{"data": "d", "secret-key-file": "f"}, env: map[string]string{"CAIRN_SECRET_KEY": "hunter2"}, want: "either"},
		"secret keys not there":    {env: map[string]string{"CAIRN_DATA": "d", "CAIRN_SECRET_KEY_FILE": "f"}, file: "", want: "secret-key-file"},
		"database of another kind": {flags: map[string]string{"data": "d", "database-url": "mysql://u:hunter2@h/d"}, want: "postgres://"},
		"address without port":     {flags: map[string]string{"data": "d", "listen": "localhost"}, want: "127.0.0.1:8080"},
		"address of the operator":  {flags: map[string]string{"data": "d", "admin-listen": "9090"}, want: "--admin-listen"},
		"switch with another word": {env: map[string]string{"CAIRN_DATA": "d", "CAIRN_DEV_TLS": "yes"}, want: "CAIRN_DEV_TLS"},
		"dev-tls without a place":  {flags: map[string]string{"database-url": "postgres://x", "bucket": "s3://b", "cache-dir": "c", "dev-tls": "true"}, want: "--data"},
		"no place for packs":       {flags: map[string]string{"database-url": "postgres://x", "bucket": "s3://b"}, want: "--cache-dir"},
		"host with a port":         {flags: map[string]string{"data": "d", "dev-tls": "true", "tls-host": "h:1"}, want: "host name"},
		"file that is not there":   {file: "missing", want: "cannot read"},
		"URL with a password":      {flags: map[string]string{"data": "d", "public-url": "https://u:p@h"}, want: "--public-url"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := tc.flags
			if tc.file != "" {
				flags = map[string]string{"config": "f"}
			}
			_, err := Load(Source{Flags: flags, Getenv: env(tc.env), ReadFile: func(string) ([]byte, error) {
				if tc.file == "missing" || tc.file == "" {
					return nil, fs.ErrNotExist
				}
				return []byte(tc.file), nil
			}})
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want a usage error that names %q", err, tc.want)
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "17": 17, "64KiB": 65536, "2 MiB": 2 << 20, "10GiB": 10 << 30, "1TiB": 1 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-1", "1kb", "x", "1.5GiB", "KiB"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d", in, got)
		}
	}
}

// FuzzFile reads any text as a configuration file: what is accepted is checked.
func FuzzFile(f *testing.F) {
	f.Add("data: d\nlisten: 127.0.0.1:1\ntls-host: [a, b]\ndev-tls: true\n")
	f.Add("data: {a: 1}\n")
	f.Add("max-push: 1GiB\ntrusted-proxy: 10.0.0.0/8,::1/128\ndata: d")
	f.Add("a: &a [*a]")
	f.Add("data: d\ndata: e\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Load(Source{Flags: map[string]string{"config": "f"}, ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
		var usage *UsageError
		if err != nil && !errors.As(err, &usage) {
			t.Errorf("%q: %v is no usage error", text, err)
		}
		if err == nil && (c.Data == "" || c.MaxPush < 1 || c.TokenGrace > time.Minute || (c.DevTLS && c.TLSCert != "")) {
			t.Errorf("%q is accepted as %+v", text, c)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"0", "17", "64KiB", "2 MiB", "9999999TiB", "-1", "KiB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err == nil && n < 0 || err != nil && n != 0 {
			t.Errorf("ParseSize(%q) = %d, %v", text, n, err)
		}
	})
}
