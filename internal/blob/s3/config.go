package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says which bucket a Store uses and how. The zero value of a field
// without "required" is a sensible default.
type Config struct {
	Bucket string // required
	// Prefix starts the name of every object, with a slash at its end, or is empty.
	Prefix string
	// Endpoint is the server's URL, without a path; https://s3.amazonaws.com by
	// default.
	Endpoint string
	// Region is us-east-1 by default.
	Region string
	// PathStyle puts the bucket into the path of URLs, not into the host name.
	PathStyle bool

	AccessKeyID     string // required
	SecretAccessKey string // required
	SessionToken    string

	// PartSize is the size in bytes of the parts that larger objects are uploaded
	// in, and at most 10,000 of them make an object: 8 MiB by default, at least
	// 5 MiB by the rules of S3. A Writer holds up to three parts in memory.
	PartSize int
	// CacheBytes bounds the memory for blocks that were read: 64 MiB by default.
	CacheBytes int64
	// Stall is how long a request may make no progress before it is tried again:
	// 30 seconds by default.
	Stall time.Duration
	// MaxWait is the longest wait before a request is tried again: 4 seconds by
	// default. The first wait is a hundredth of it.
	MaxWait time.Duration
	// Transport is the HTTP transport; a new one by default.
	Transport http.RoundTripper
}

// Env holds the values of the AWS environment variables, which the caller reads.
type Env struct {
	AccessKeyID     string // AWS_ACCESS_KEY_ID
	SecretAccessKey string // AWS_SECRET_ACCESS_KEY
	SessionToken    string // AWS_SESSION_TOKEN
	Region          string // AWS_REGION, or AWS_DEFAULT_REGION
}

// ErrConfig says that a bucket URL or its surroundings make no configuration.
var ErrConfig = errors.New("invalid S3 configuration")

const (
	defaultEndpoint   = "https://s3.amazonaws.com"
	defaultRegion     = "us-east-1"
	defaultPartSize   = 8 << 20
	minPartSize       = 5 << 20
	defaultCacheBytes = 64 << 20
	defaultStall      = 30 * time.Second
	defaultMaxWait    = 4 * time.Second
)

// ParseURL reads s3://NAME[/PREFIX]?endpoint=URL&region=NAME&path_style=true and
// completes it from env; what the URL says wins. Errors match ErrConfig and hold
// nothing of the URL but its parameters' names.
func ParseURL(raw string, env Env) (Config, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return Config{}, fmt.Errorf("%w: want s3://NAME?endpoint=URL&region=NAME&path_style=true, without user and fragment", ErrConfig)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, fmt.Errorf("%w: the query of the bucket URL cannot be read", ErrConfig)
	}
	c := Config{
		Bucket:          u.Host,
		Region:          env.Region,
		AccessKeyID:     env.AccessKeyID,
		SecretAccessKey: env.SecretAccessKey,
		SessionToken:    env.SessionToken,
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		c.Prefix = prefix + "/"
	}
	for name, values := range query {
		if len(values) != 1 || values[0] == "" {
			return Config{}, fmt.Errorf("%w: parameter %q of the bucket URL must have one value", ErrConfig, name)
		}
		switch name {
		case "endpoint":
			c.Endpoint = values[0]
		case "region":
			c.Region = values[0]
		case "path_style":
			if c.PathStyle, err = strconv.ParseBool(values[0]); err != nil {
				return Config{}, fmt.Errorf("%w: path_style must be true or false", ErrConfig)
			}
		default:
			return Config{}, fmt.Errorf("%w: the bucket URL has an unknown parameter %q", ErrConfig, name)
		}
	}
	return c, c.complete()
}

// complete fills in the defaults and refuses what is half-set.
func (c *Config) complete() error {
	if c.Bucket == "" {
		return fmt.Errorf("%w: no bucket is named", ErrConfig)
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return fmt.Errorf("%w: both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set", ErrConfig)
	}
	if c.Prefix != "" && !strings.HasSuffix(c.Prefix, "/") {
		return fmt.Errorf("%w: the prefix must end in a slash", ErrConfig)
	}
	if c.Endpoint == "" {
		c.Endpoint = defaultEndpoint
	}
	if _, err := c.endpoint(); err != nil {
		return err
	}
	if c.Region == "" {
		c.Region = defaultRegion
	}
	if c.PartSize == 0 {
		c.PartSize = defaultPartSize
	}
	if c.PartSize < minPartSize {
		return fmt.Errorf("%w: parts of %d bytes are below the least size, %d", ErrConfig, c.PartSize, minPartSize)
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if c.Stall == 0 {
		c.Stall = defaultStall
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	return nil
}

func (c *Config) endpoint() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: the endpoint must be http://HOST[:PORT] or https://HOST[:PORT]", ErrConfig)
	}
	return u, nil
}
