// Package option holds the optional parts of calls to the Cairn SDK.
package option

// ClientOption changes how cairn.NewClient makes a client. What an option gives wins over the environment.
type ClientOption func(*Client)

// Client is what the options of a client add up to. An empty field is taken from the environment.
type Client struct {
	BaseURL    string
	Org        string
	PrivateKey string
	KeyID      string
	Token      string
	TokenFile  string
	Subject    string
}

// WithBaseURL sets the server's address, "http" or "https", a path prefix allowed. It replaces CAIRN_URL.
func WithBaseURL(url string) ClientOption { return func(c *Client) { c.BaseURL = url } }

// WithOrg sets the organisation that tokens are issued by. It replaces CAIRN_ORG.
func WithOrg(name string) ClientOption { return func(c *Client) { c.Org = name } }

// WithPrivateKey sets the key that signs tokens: PEM text, also with its line ends written as \n, or the path of a PEM file.
// It replaces the credentials of the environment.
func WithPrivateKey(pemOrPath string) ClientOption {
	return func(c *Client) { c.PrivateKey = pemOrPath }
}

// WithKeyID names the key in the tokens that it signs, for organisations that registered it under that name.
func WithKeyID(kid string) ClientOption { return func(c *Client) { c.KeyID = kid } }

// WithToken makes the client use one token as it is, and mint none. It replaces the credentials of the environment.
func WithToken(token string) ClientOption { return func(c *Client) { c.Token = token } }

// WithTokenFile makes the client use the token in a file, read anew each time. It replaces the credentials of the
// environment.
func WithTokenFile(path string) ClientOption { return func(c *Client) { c.TokenFile = path } }

// WithSubject sets who acts, for the audit log of the server; "cairn-sdk-go" where it is not given.
func WithSubject(subject string) ClientOption { return func(c *Client) { c.Subject = subject } }

// RefPolicy is one rule of a token about the refs that it may change. In a list the first rule whose pattern matches a ref
// decides, and a ref that no rule matches may be changed.
type RefPolicy struct {
	// Pattern is a full ref name, "<prefix>/*" or "*"; what does not begin with "refs/" is a branch.
	Pattern string
	// Ops restricts the change: "no-force-push", "no-push", "verify-sig". Without ops every change is allowed.
	Ops []string
}
