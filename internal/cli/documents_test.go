package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// invocation finds the command lines of a document: "cairn", then words.
var invocation = regexp.MustCompile("(?m)(?:^|[(`$ ])cairn ((?:dev|serve|org|repo|webhook|token|url|fsck|doctor|version)\\b[^`\n]*)")

// TestDocumentsNameRealCommands looks up every command line that the documents
// show: its words must lead to a command, and its flags be known there.
func TestDocumentsNameRealCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../../README.md", "../../docs/operations.md")
	flag := regexp.MustCompile(`(?:^|\s|\[|\()--([a-z][a-z-]*)`)
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range invocation.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(m[1], " #")
			line, _, _ = strings.Cut(line, ")")
			cmd, _, err := newRoot(System()).Find(strings.Fields(line))
			if err != nil || !cmd.HasParent() {
				t.Errorf("%s: %q is no command", file, line)
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(line, -1) {
				seen++
				if cmd.Flags().Lookup(f[1]) == nil {
					t.Errorf("%s: %q: %s has no flag --%s", file, line, cmd.CommandPath(), f[1])
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("found %d flags in the documents", seen)
	}
}
