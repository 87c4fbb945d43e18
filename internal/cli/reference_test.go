package cli

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated references")

func TestReference(t *testing.T) {
	for path, want := range map[string]string{
		"../../docs/cli.md":           commandReference(newRoot(System())),
		"../../docs/configuration.md": settingsReference(),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s does not say what the program does; run `make generate`", path)
		}
	}
}

// TestHelpOfSettings: help shows the placeholder of a setting beside its flag, and
// then what it means.
func TestHelpOfSettings(t *testing.T) {
	for _, command := range []string{"serve", "usage"} {
		help := newTerminal(t).must(command, "--help")
		for _, want := range []string{
			"--bucket URL ", " keep bytes in this bucket", "--allow-host HOST ", " let webhooks and upstreams reach this HOST,",
			`(CAIRN_CACHE_SIZE) (default 10GiB)`,
		} {
			if !strings.Contains(help, want) {
				t.Errorf("%s does not say %q", command, want)
			}
		}
		for _, no := range []string{"URL keep", "HOST let", "default []"} {
			if strings.Contains(help, no) {
				t.Errorf("%s says %q", command, no)
			}
		}
	}
}
