// Package config turns flags, CAIRN_ variables and a configuration file into one
// checked Config. A setting is one row of a table: its flag, variable, file key
// and documentation cannot differ.
package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// Config is what a server runs with, checked.
type Config struct {
	Data        string
	DatabaseURL string
	Bucket      string
	CacheDir    string
	CacheSize   int64

	// AllowHosts are reached although they are not public; package netguard says
	// what an entry may be.
	AllowHosts []string
	// UpstreamPlain are the hosts, of AllowHosts, that upstreams are asked at by
	// plain http.
	UpstreamPlain []string
	UpstreamCA    string
	UpstreamWait  time.Duration
	UpstreamIdle  time.Duration

	Listen         string
	AdminListen    string
	PublicURL      string
	TrustedProxies []netip.Prefix
	AllowOrigins   []string
	DevTLS         bool
	TLSCert        string
	TLSKey         string
	TLSHosts       []string

	// SecretKeyFile is where SecretKeys came from, "" for the environment.
	SecretKeyFile string
	// SecretKeys is the text of the key file for secrets, nil when none is given.
	SecretKeys []byte

	LogLevel  string
	LogFormat string

	AnyRepoName         bool
	DefaultNotesOnly    bool
	StrictScopes        bool
	OrgRate             int64
	SubjectRate         int64
	TokenGrace          time.Duration
	UnseenGrace         time.Duration
	GarbageGrace        time.Duration
	UndeleteWindow      time.Duration
	EventsKeep          time.Duration // 0 keeps all
	KeyRetention        time.Duration
	IdleTimeout         time.Duration
	ShutdownWait        time.Duration
	WebhookDisableAfter time.Duration
	MaxPush             int64
	MaxObject           int64
	MemoryCache         int64
	InlinePack          int64
	S3                  S3Credentials
}

// S3Credentials come from the AWS variables of the environment only.
type S3Credentials struct {
	AccessKey    string
	SecretKey    string
	SessionToken string
	Region       string
}

// Source is where settings are looked up: flags that were given, then
// variables, then the file.
type Source struct {
	// Flags holds the values of flags that were given on the command line.
	Flags map[string]string
	// Getenv looks a variable up; nil means that there are none.
	Getenv func(string) string
	// Environ lists the names of all variables; nil means that none is checked.
	Environ func() []string
	// ReadFile reads the configuration file and …_FILE secrets; nil means
	// os.ReadFile.
	ReadFile func(string) ([]byte, error)
}

// UsageError says which setting is wrong and what it should be.
type UsageError struct {
	Setting string
	Reason  string
}

func (e *UsageError) Error() string { return fmt.Sprintf("%s: %s", e.Setting, e.Reason) }

// Load reads every setting of the table from the sources, refuses what is
// unknown, malformed or half-set, and returns the checked Config.
func Load(src Source) (Config, error) {
	var c Config
	if src.Getenv == nil {
		src.Getenv = func(string) string { return "" }
	}
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	if err := checkVariables(src); err != nil {
		return c, err
	}
	file, err := readFile(src)
	if err != nil {
		return c, err
	}
	for _, s := range Settings {
		if s.set == nil {
			continue
		}
		value, from, err := lookup(src, file, s)
		if err != nil {
			return c, err
		}
		if from == "" {
			value, from = s.Default, s.Name
			if value == "" {
				continue
			}
		}
		if err := s.set(&c, value); err != nil {
			return c, &UsageError{Setting: from, Reason: err.Error()}
		}
	}
	c.S3 = S3Credentials{
		AccessKey:    src.Getenv("AWS_ACCESS_KEY_ID"),
		SecretKey:    src.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: src.Getenv("AWS_SESSION_TOKEN"),
		Region:       src.Getenv("AWS_REGION"),
	}
	if err := c.readSecretKeys(src); err != nil {
		return c, err
	}
	return c, c.check()
}

// readSecretKeys takes the keys for secrets from the file that is named, or from
// the variable; there is no flag for the keys themselves.
func (c *Config) readSecretKeys(src Source) error {
	const variable = "CAIRN_SECRET_KEY"
	text := src.Getenv(variable)
	switch {
	case text != "" && c.SecretKeyFile != "":
		return &UsageError{variable, "set either it or " + variable + "_FILE (--secret-key-file)"}
	case text != "":
		c.SecretKeys = []byte(strings.ReplaceAll(text, ",", "\n"))
	case c.SecretKeyFile != "":
		b, err := src.ReadFile(c.SecretKeyFile)
		if err != nil {
			return &UsageError{"secret-key-file", "cannot read the file it names"}
		}
		c.SecretKeys = b
	}
	return nil
}

// check refuses what is half-set: a setting that silently does nothing is a
// fault of the configuration.
func (c *Config) check() error {
	switch {
	case c.Data == "" && (c.DatabaseURL == "" || c.Bucket == ""):
		return &UsageError{"data", "give --data DIR, or both --database-url and --bucket"}
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return &UsageError{"tls-cert", "give both --tls-cert and --tls-key, or neither"}
	case c.DevTLS && c.TLSCert != "":
		return &UsageError{"dev-tls", "give either --dev-tls or --tls-cert and --tls-key"}
	case c.DevTLS && c.Data == "":
		return &UsageError{"dev-tls", "needs --data DIR, where its authority is kept"}
	case len(c.TLSHosts) > 0 && !c.DevTLS:
		return &UsageError{"tls-host", "adds a name to the certificate of --dev-tls, which is not given"}
	case c.CacheDir != "" && c.Bucket == "":
		return &UsageError{"cache-dir", "caches a bucket, and no --bucket is given"}
	case c.Data == "" && c.CacheDir == "":
		return &UsageError{"cache-dir", "give --cache-dir DIR: without --data there is no place for received packs"}
	case c.Bucket != "" && (c.S3.AccessKey == "") != (c.S3.SecretKey == ""):
		return &UsageError{"bucket", "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	return nil
}

func setString(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *field(c) = v; return nil }
}

func setList(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for item := range strings.SplitSeq(v, ",") {
			*field(c) = append(*field(c), strings.TrimSpace(item))
		}
		return nil
	}
}

func setAddress(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
			return fmt.Errorf("%q is not an address such as 127.0.0.1:8080", v)
		}
		*field(c) = v
		return nil
	}
}

func setBool(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		switch v {
		case "true":
			*field(c) = true
		case "false":
			*field(c) = false
		default:
			return fmt.Errorf("%q is not true or false", v)
		}
		return nil
	}
}

func setDuration(field func(*Config) *time.Duration, least, most time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is not a duration from %s to %s", v, least, most)
		}
		*field(c) = d
		return nil
	}
}

func setSize(field func(*Config) *int64, least int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := ParseSize(v)
		if err != nil {
			return err
		}
		if n < least {
			return fmt.Errorf("%q is less than %d bytes", v, least)
		}
		*field(c) = n
		return nil
	}
}

func oneOf(field func(*Config) *string, words ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for _, w := range words {
			if v == w {
				*field(c) = v
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", v, strings.Join(words, ", "))
	}
}

func setDatabaseURL(c *Config, v string) error {
	if !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
		return fmt.Errorf("want a URL that begins with postgres://") // the value may hold a password
	}
	c.DatabaseURL = v
	return nil
}

func setProxies(c *Config, v string) error {
	for item := range strings.SplitSeq(v, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil {
			return fmt.Errorf("%q is not an address range such as 10.0.0.0/8", item)
		}
		c.TrustedProxies = append(c.TrustedProxies, p)
	}
	return nil
}

func setOrigins(c *Config, v string) error {
	for origin := range strings.SplitSeq(v, ",") {
		origin = strings.TrimSpace(origin)
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin || origin != strings.ToLower(origin)) {
			return fmt.Errorf("%q is not an origin such as https://app.example.com, in lower case and without a path, or *", origin)
		}
		c.AllowOrigins = append(c.AllowOrigins, origin)
	}
	return nil
}

func setPublicURL(c *Config, v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%q is not a URL such as https://git.example.com", v)
	}
	c.PublicURL = strings.TrimRight(v, "/")
	return nil
}

func setHosts(c *Config, v string) error {
	for host := range strings.SplitSeq(v, ",") {
		host = strings.TrimSpace(host)
		if host == "" || strings.ContainsAny(host, " /:") {
			return fmt.Errorf("%q is not a host name", host)
		}
		c.TLSHosts = append(c.TLSHosts, host)
	}
	return nil
}
