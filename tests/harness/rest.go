package harness

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/cairnstate/cairn/internal/auth"
)

// HTTP returns a client that trusts the server and follows no redirect.
func (s *Server) HTTP() *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, MaxIdleConns: 256}
	if s.opts.TLS {
		pool := x509.NewCertPool()
		if pem, err := os.ReadFile(s.Bundle()); err == nil {
			pool.AppendCertsFromPEM(pem)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Answer is what a REST call returned.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON returns the value at a path of object keys in the answer, or nil.
func (a Answer) JSON(keys ...string) any {
	var v any
	if json.Unmarshal(a.Body, &v) != nil {
		return nil
	}
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// Text is JSON for strings: "" when there is none at the path.
func (a Answer) Text(keys ...string) string {
	s, _ := a.JSON(keys...).(string)
	return s
}

// Do sends one request. A nil client is one of its own.
func (s *Server) Do(client *http.Client, method, path, token, contentType string, body []byte) (Answer, error) {
	header := http.Header{}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	return s.DoWith(client, method, path, token, body, header)
}

// DoWith is Do with headers.
func (s *Server) DoWith(client *http.Client, method, path, token string, body []byte, header http.Header) (Answer, error) {
	if client == nil {
		client = s.HTTP()
		defer client.CloseIdleConnections()
	}
	req, err := http.NewRequest(method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header = header
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, answer}, err
}

// CreateRepo makes an empty repository whose default branch is main.
func (s *Server) CreateRepo(name string) error {
	token := s.Token(Grant{Repo: name, Scopes: []auth.Scope{auth.RepoWrite}})
	body, err := json.Marshal(map[string]string{"default_branch": "main"})
	if err != nil {
		return err
	}
	a, err := s.Do(nil, http.MethodPost, "/api/repos", token, "application/json", body)
	if err == nil && a.Status != http.StatusCreated {
		err = fmt.Errorf("create repository %q: %w %d: %s", name, errStatus, a.Status, a.Body)
	}
	return err
}

// Fork makes a repository from another one's branches and tags.
func (s *Server) Fork(name, parent string) error {
	token := s.Token(Grant{Repo: name, Scopes: []auth.Scope{auth.RepoWrite}})
	body, err := json.Marshal(map[string]any{"base_repo": map[string]any{
		"provider": "code", "owner": Org, "name": parent, "operation": "fork",
		"auth": map[string]string{"token": s.Token(Grant{Repo: parent, Scopes: []auth.Scope{auth.GitRead}})},
	}})
	if err != nil {
		return err
	}
	a, err := s.Do(nil, http.MethodPost, "/api/repos", token, "application/json", body)
	if err == nil && a.Status != http.StatusCreated {
		err = fmt.Errorf("fork repository %q: %w %d: %s", parent, errStatus, a.Status, a.Body)
	}
	return err
}

// RepoPath is the path of a repository in the REST API.
func RepoPath(name string) string { return "/api/repos/" + url.PathEscape(name) }

// Commit is one call of the commit API.
type Commit struct {
	Repo      string
	Branch    string
	Base      string // base_branch
	Ephemeral bool
	Expected  string // expected_target_sha
	Message   string
	Files     map[string]string // path to content
	Token     string            // of the repository, minted when ""
}

// Body is the request's NDJSON.
func (c Commit) Body() []byte {
	files := []map[string]any{}
	var chunks bytes.Buffer
	enc := json.NewEncoder(&chunks)
	for path, content := range c.Files {
		files = append(files, map[string]any{"path": path, "content_id": path, "operation": "upsert"})
		enc.Encode(map[string]any{"blob_chunk": map[string]any{
			"content_id": path, "data": base64.StdEncoding.EncodeToString([]byte(content)), "eof": true,
		}})
	}
	metadata := map[string]any{
		"target_branch": c.Branch, "commit_message": c.Message, "files": files,
		"author": map[string]string{"name": "Sandbox worker", "email": "worker@example.com"},
	}
	if c.Base != "" {
		metadata["base_branch"] = c.Base
	}
	if c.Ephemeral {
		metadata["target_is_ephemeral"] = true
	}
	if c.Expected != "" {
		metadata["expected_target_sha"] = c.Expected
	}
	var body bytes.Buffer
	json.NewEncoder(&body).Encode(map[string]any{"metadata": metadata})
	body.Write(chunks.Bytes())
	return body.Bytes()
}

// Commit calls the commit API. A nil client is one of its own.
func (s *Server) Commit(client *http.Client, c Commit) (Answer, error) {
	if c.Token == "" {
		c.Token = s.Token(Grant{Repo: c.Repo})
	}
	if c.Message == "" {
		c.Message = "Save work"
	}
	return s.Do(client, http.MethodPost, RepoPath(c.Repo)+"/commit-pack", c.Token, "application/x-ndjson", c.Body())
}
