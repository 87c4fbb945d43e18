package config

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Setting is one row of the table.
type Setting struct {
	// Name is the flag without dashes, and the key in the file. The variable is
	// CAIRN_ and the name in capitals with underscores.
	Name string
	// Value is the placeholder shown in help; "" for a switch.
	Value   string
	Default string
	// Secret settings may also be given as …_FILE, the path of a file with the
	// value.
	Secret bool
	// Repeats says that the flag may be given more than once; the variable and
	// the file separate values with commas.
	Repeats bool
	// Storage marks the settings that every operator command takes.
	Storage bool
	Help    string

	set func(*Config, string) error
}

// Variable is the environment variable of the setting.
func (s Setting) Variable() string {
	return "CAIRN_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Settings is the table of everything a server can be told.
var Settings = []Setting{
	{Name: "config", Value: "FILE", Storage: true, Help: "read settings from this YAML file, whose keys are the flags' names"},
	{Name: "data", Value: "DIR", Storage: true, Help: "keep everything in this directory: a SQLite database and the bytes", set: setString(func(c *Config) *string { return &c.Data })},
	{Name: "database-url", Value: "URL", Secret: true, Storage: true, Help: "keep metadata in this PostgreSQL database (postgres://…) instead of SQLite", set: setDatabaseURL},
	{Name: "bucket", Value: "URL", Storage: true, Help: "keep bytes in this bucket (s3://NAME?endpoint=…&region=…&path_style=true) instead of the directory; credentials come from the AWS variables", set: setString(func(c *Config) *string { return &c.Bucket })},
	{Name: "cache-dir", Value: "DIR", Storage: true, Help: "keep copies of the bucket's objects here (default DATA/cache)", set: setString(func(c *Config) *string { return &c.CacheDir })},
	{Name: "cache-size", Value: "SIZE", Default: "10GiB", Storage: true, Help: "let the copies of the bucket's objects take this much space", set: setSize(func(c *Config) *int64 { return &c.CacheSize }, 0)},
	{Name: "secret-key-file", Value: "FILE", Storage: true, Help: "encrypt stored secrets with the keys in this file: 32 bytes in base64 a line, the one to encrypt with first, older ones after it (default DATA/secret.key, made when the database is in DATA); CAIRN_SECRET_KEY may hold the keys instead, with commas between them", set: setString(func(c *Config) *string { return &c.SecretKeyFile })},
	{Name: "allow-host", Value: "HOST", Repeats: true, Storage: true, Help: "let webhooks and upstreams reach this HOST, HOST:PORT, address or range (10.1.0.0/16) although it is not on the public network, by plain http too", set: setList(func(c *Config) *[]string { return &c.AllowHosts })},
	{Name: "upstream-plain", Value: "HOST", Repeats: true, Help: "ask upstreams at this HOST or HOST:PORT, as repositories name it, by plain http; --allow-host must let it through", set: setList(func(c *Config) *[]string { return &c.UpstreamPlain })},
	{Name: "upstream-ca", Value: "FILE", Help: "trust the certificate authorities in this file (PEM) too when upstreams are asked", set: setString(func(c *Config) *string { return &c.UpstreamCA })},
	{Name: "upstream-timeout", Value: "DURATION", Default: "1h", Help: "give up a sync with an upstream that takes longer than this", set: setDuration(func(c *Config) *time.Duration { return &c.UpstreamWait }, time.Second, 24*time.Hour)},
	{Name: "upstream-idle", Value: "DURATION", Default: "1m", Help: "end a sync whose upstream sends nothing for this long; it is tried again later", set: setDuration(func(c *Config) *time.Duration { return &c.UpstreamIdle }, time.Second, time.Hour)},
	{Name: "listen", Value: "ADDR", Default: "127.0.0.1:8080", Help: "answer REST and Git on this address; port 0 takes a free one", set: setAddress(func(c *Config) *string { return &c.Listen })},
	{Name: "admin-listen", Value: "ADDR", Help: "answer /metrics on this address instead of the main one", set: setAddress(func(c *Config) *string { return &c.AdminListen })},
	{Name: "public-url", Value: "URL", Help: "the URL that clients use, for the URLs in answers (default: the address listened on)", set: setPublicURL},
	{Name: "allow-origin", Value: "ORIGIN", Repeats: true, Help: "let browsers use REST and Git from pages of this ORIGIN (https://app.example.com), which bring a token; * stands for every origin", set: setOrigins},
	{Name: "trusted-proxy", Value: "CIDR", Repeats: true, Help: "believe X-Forwarded-For from these addresses", set: setProxies},
	{Name: "dev-tls", Help: "serve TLS with a certificate made for this machine; its authority is written to DATA/tls/ca.pem, and with the system's own to DATA/tls/bundle.pem", set: setBool(func(c *Config) *bool { return &c.DevTLS })},
	{Name: "tls-cert", Value: "FILE", Help: "serve TLS with this certificate chain (PEM); read again on SIGHUP", set: setString(func(c *Config) *string { return &c.TLSCert })},
	{Name: "tls-key", Value: "FILE", Help: "the private key of --tls-cert (PEM)", set: setString(func(c *Config) *string { return &c.TLSKey })},
	{Name: "tls-host", Value: "NAME", Repeats: true, Help: "a further name or address in the certificate of --dev-tls", set: setHosts},
	{Name: "log-level", Value: "LEVEL", Default: "info", Help: "debug, info, warn or error", set: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{Name: "log-format", Value: "FORMAT", Default: "json", Help: "json or text", set: oneOf(func(c *Config) *string { return &c.LogFormat }, "json", "text")},
	{Name: "any-repo-name", Help: "accept repository names with characters that a shell may read (default: letters, digits, . _ - /)", set: setBool(func(c *Config) *bool { return &c.AnyRepoName })},
	{Name: "default-notes-only", Help: "let REST read and write notes in refs/notes/commits only, and refuse other notes refs", set: setBool(func(c *Config) *bool { return &c.DefaultNotesOnly })},
	{Name: "strict-scopes", Help: "do not let git:write include git:read", set: setBool(func(c *Config) *bool { return &c.StrictScopes })},
	{Name: "token-grace", Value: "DURATION", Default: "0s", Help: "accept tokens this long after they expired, 0s to 60s", set: setDuration(func(c *Config) *time.Duration { return &c.TokenGrace }, 0, time.Minute)},
	{Name: "unseen-grace", Value: "DURATION", Default: "15m", Storage: true, Help: "let a commit be fetched this long after a forced update dropped it from a ref", set: setDuration(func(c *Config) *time.Duration { return &c.UnseenGrace }, 0, 365*24*time.Hour)},
	{Name: "garbage-grace", Value: "DURATION", Default: "336h", Storage: true, Help: "keep what a repack found unreachable for this long; 0s drops it at once", set: setDuration(func(c *Config) *time.Duration { return &c.GarbageGrace }, 0, 10*365*24*time.Hour)},
	{Name: "rate-limit", Value: "N", Default: "0", Help: "answer at most N requests a second to the tokens of one subject (429 with Retry-After beyond it); 0 sets no limit", set: setSize(func(c *Config) *int64 { return &c.SubjectRate }, 0)},
	{Name: "rate-limit-org", Value: "N", Default: "0", Help: "answer at most N requests a second to the tokens of one org; 0 sets no limit", set: setSize(func(c *Config) *int64 { return &c.OrgRate }, 0)},
	{Name: "undelete-window", Value: "DURATION", Default: "336h", Storage: true, Help: "keep what a deleted repository holds for this long, so that it can come back; 0s removes it with the next collection", set: setDuration(func(c *Config) *time.Duration { return &c.UndeleteWindow }, 0, 10*365*24*time.Hour)},
	{Name: "idempotency-retention", Value: "DURATION", Default: "24h", Storage: true, Help: "keep the answer to a request with an Idempotency-Key for this long", set: setDuration(func(c *Config) *time.Duration { return &c.KeyRetention }, time.Minute, 365*24*time.Hour)},
	{Name: "events-keep", Value: "DURATION", Default: "720h", Storage: true, Help: "keep events, and what became of their deliveries, for this long; those that an enabled webhook is still to get stay until it got them; 0s keeps all", set: setDuration(func(c *Config) *time.Duration { return &c.EventsKeep }, 0, 10*365*24*time.Hour)},
	{Name: "idle-timeout", Value: "DURATION", Default: "60s", Help: "end a request whose client neither sends nor reads for this long; there is no limit on the total time", set: setDuration(func(c *Config) *time.Duration { return &c.IdleTimeout }, time.Second, time.Hour)},
	{Name: "shutdown-wait", Value: "DURATION", Default: "30s", Help: "on SIGTERM, let requests under way finish for this long", set: setDuration(func(c *Config) *time.Duration { return &c.ShutdownWait }, 0, time.Hour)},
	{Name: "webhook-disable-after", Value: "DURATION", Default: "72h", Help: "disable a webhook endpoint when every delivery to it failed for this long", set: setDuration(func(c *Config) *time.Duration { return &c.WebhookDisableAfter }, time.Minute, 365*24*time.Hour)},
	{Name: "max-push", Value: "SIZE", Default: "10GiB", Help: "refuse pushed packs above this size", set: setSize(func(c *Config) *int64 { return &c.MaxPush }, 1)},
	{Name: "max-object", Value: "SIZE", Default: "5GiB", Help: "refuse objects above this size", set: setSize(func(c *Config) *int64 { return &c.MaxObject }, 1)},
	{Name: "memory-cache", Value: "SIZE", Default: "128MiB", Help: "memory for packs, indexes and answers that are used often; repositories with very many refs may take as much again", set: setSize(func(c *Config) *int64 { return &c.MemoryCache }, 1<<20)},
	{Name: "inline-pack", Value: "SIZE", Default: "64KiB", Help: "keep packs up to this size in the database, larger ones as files or objects", set: setSize(func(c *Config) *int64 { return &c.InlinePack }, 0)},
}

// lookup finds a setting's value and the name of where it came from ("" when it
// is not given).
func lookup(src Source, file map[string]string, s Setting) (value, from string, err error) {
	if v, ok := src.Flags[s.Name]; ok {
		return v, "--" + s.Name, nil
	}
	name := s.Variable()
	v := src.Getenv(name)
	if s.Secret {
		if path := src.Getenv(name + "_FILE"); path != "" {
			if v != "" {
				return "", "", &UsageError{name, "set either it or " + name + "_FILE"}
			}
			b, err := src.ReadFile(path)
			if err != nil {
				return "", "", &UsageError{name + "_FILE", "cannot read the file it names"}
			}
			return strings.TrimSpace(string(b)), name + "_FILE", nil
		}
	}
	if v != "" {
		return v, name, nil
	}
	if v, ok := file[s.Name]; ok {
		return v, s.Name + " in the configuration file", nil
	}
	return "", "", nil
}

// readFile reads the configuration file, if one is named, into the text form of
// each key.
func readFile(src Source) (map[string]string, error) {
	path := src.Flags["config"]
	if path == "" {
		path = src.Getenv("CAIRN_CONFIG")
	}
	if path == "" {
		return nil, nil
	}
	b, err := src.ReadFile(path)
	if err != nil {
		return nil, &UsageError{"config", fmt.Sprintf("cannot read %q", path)}
	}
	var raw map[string]any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, &UsageError{"config", fmt.Sprintf("%q is not a YAML mapping of settings", path)}
	}
	known := map[string]bool{}
	for _, s := range Settings {
		known[s.Name] = s.set != nil
	}
	keys := make([]string, 0, len(raw))
	for k := range raw {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := map[string]string{}
	for _, k := range keys {
		if !known[k] {
			return nil, &UsageError{"config", fmt.Sprintf("unknown setting %q in %q", k, path)}
		}
		text, err := scalar(raw[k])
		if err != nil {
			return nil, &UsageError{k + " in the configuration file", err.Error()}
		}
		out[k] = text
	}
	return out, nil
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case uint64, int64, int:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			s, ok := item.(string)
			if !ok {
				return "", fmt.Errorf("item %d is not text", i+1)
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("give one value or a list of texts")
}

// ParseSize reads a number of bytes: digits with an optional unit KiB, MiB, GiB
// or TiB (powers of 1024).
func ParseSize(s string) (int64, error) {
	units := []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.factor {
			break
		}
		return n * u.factor, nil
	}
	return 0, fmt.Errorf("%q is not a size such as 512MiB", s)
}
