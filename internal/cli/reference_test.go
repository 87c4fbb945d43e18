package cli

import (
	"flag"
	"os"
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
