package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/server"
)

// maxSkew is the difference of clocks that tokens still bear.
const maxSkew = 60 * time.Second

// finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func newDoctor(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check that this machine can run Cairn", Args: cobra.NoArgs,
		Long: `Check what the server or a client on this machine stands on: the storage, when one is
named, by reading and writing; the server at CAIRN_URL, when it is set; the git
program. Exit code 1 when a check failed.`,
	}
	load := settings(cmd, env, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		findings := []finding{checkGit(c.Context())}
		if storageNamed(c, env) {
			err := withNewStorage(c.Context(), env, load, func(st *server.Storage) error {
				findings = append(findings, checkMeta(c.Context(), st), checkBlobs(c.Context(), st))
				return nil
			})
			if err != nil {
				findings = append(findings, finding{"storage", false, message(err)})
			}
		}
		if env.Getenv("CAIRN_URL") != "" {
			findings = append(findings, checkServer(c.Context(), env)...)
		}
		return report(env, findings, asJSON)
	}
	return cmd
}

func report(env Env, findings []finding, asJSON bool) error {
	failed := 0
	for _, f := range findings {
		if !f.OK {
			failed++
		}
		if asJSON {
			continue
		}
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(env.Stdout, "%s  %-9s %s\n", mark, f.Check, f.Detail)
	}
	if asJSON {
		if err := printJSON(env.Stdout, map[string]any{"checks": findings}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(findings))
	}
	return nil
}

var gitVersion = regexp.MustCompile(`(\d+)\.(\d+)`)

func checkGit(ctx context.Context) finding {
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		return finding{"git", false, "the git program is not on the path; install git 2.38 or newer"}
	}
	text := strings.TrimSpace(string(out))
	m := gitVersion.FindStringSubmatch(text)
	if m == nil {
		return finding{"git", false, fmt.Sprintf("%q names no version", text)}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return finding{"git", major > 2 || (major == 2 && minor >= 38), text + " (2.38 or newer is needed)"}
}

func checkMeta(ctx context.Context, st *server.Storage) finding {
	start := time.Now()
	if err := st.Meta.Ping(ctx); err != nil {
		return finding{"database", false, message(err)}
	}
	return finding{"database", true, fmt.Sprintf("answered in %s", time.Since(start).Round(10*time.Microsecond))}
}

// checkBlobs proves the promises that packs rest on: an object is there once it
// is written, is never overwritten, and goes when it is deleted.
func checkBlobs(ctx context.Context, st *server.Storage) finding {
	start := time.Now()
	if err := server.ProbeBlobs(ctx, st.Blobs, "doctor/"+strings.ToLower(rand.Text())); err != nil {
		return finding{"bytes", false, err.Error()}
	}
	return finding{"bytes", true, fmt.Sprintf("written, read and deleted in %s", time.Since(start).Round(10*time.Microsecond))}
}

func checkServer(ctx context.Context, env Env) []finding {
	base, err := serverURL(env)
	if err != nil {
		return []finding{{"server", false, err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String()+"/readyz", nil)
	if err != nil {
		return []finding{{"server", false, err.Error()}}
	}
	sent := env.Now()
	resp, err := client().Do(req)
	if err != nil {
		return []finding{{"server", false, message(unreachable(base, err))}}
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	found := []finding{{"server", resp.StatusCode == http.StatusOK, fmt.Sprintf("%s answered %s", base.Host, resp.Status)}}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := sent.Sub(date).Abs().Round(time.Second)
		found = append(found, finding{"clock", skew <= maxSkew, fmt.Sprintf("%s apart from the server (tokens bear %s)", skew, maxSkew)})
	}
	return found
}

// storageNamed reports whether flags or variables name a storage.
func storageNamed(c *cobra.Command, env Env) bool {
	return storageFlagged(c) || env.Getenv("CAIRN_DATA") != "" || env.Getenv("CAIRN_DATABASE_URL") != "" || env.Getenv("CAIRN_CONFIG") != ""
}

func storageFlagged(c *cobra.Command) bool {
	for _, name := range []string{"data", "database-url", "config"} {
		if c.Flags().Changed(name) {
			return true
		}
	}
	return false
}
