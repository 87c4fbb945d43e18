package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnstate/cairn/internal/config"
)

// commandReference describes every command and flag as Markdown.
func commandReference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Command line\nGenerated from the program; `make generate` writes it again.\n\n")
	b.WriteString(root.Long + "\n")
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n%s.\n", sub.CommandPath(), strings.TrimSuffix(sub.Short, "."))
			if sub.Long != "" {
				fmt.Fprintf(&b, "\n%s\n", sub.Long)
			}
			if sub.Runnable() && !sub.HasSubCommands() || sub.Flags().HasFlags() {
				fmt.Fprintf(&b, "\n```text\n%s\n```\n", sub.UseLine())
			}
			writeFlags(&b, sub)
			walk(sub)
		}
	}
	walk(root)
	return b.String()
}

func writeFlags(b *strings.Builder, cmd *cobra.Command) {
	rows := ""
	storage := true
	for _, s := range config.Settings {
		if s.Storage && cmd.Flags().Lookup(s.Name) == nil {
			storage = false
		}
	}
	isServe := cmd.Name() == "serve"
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || (storage && isSetting(f.Name, !isServe)) {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		def := f.DefValue
		if def == "false" || def == "[]" || def == "0s" && f.Name == "max-ttl" {
			def = ""
		}
		rows += fmt.Sprintf("| `--%s` | %s | %s | %s |\n", f.Name, name, def, strings.ReplaceAll(usage, "|", "\\|"))
	})
	if rows != "" {
		b.WriteString("\n| flag | value | default | meaning |\n|---|---|---|---|\n" + rows)
	}
	switch {
	case isServe:
		b.WriteString("\nIts flags are the settings of [configuration](configuration.md).\n")
	case storage:
		b.WriteString("\nIt takes the storage flags of [configuration](configuration.md).\n")
	}
}

func isSetting(name string, storageOnly bool) bool {
	for _, s := range config.Settings {
		if s.Name == name && (s.Storage || !storageOnly) {
			return true
		}
	}
	return false
}

// settingsReference describes every setting as Markdown.
func settingsReference() string {
	var b strings.Builder
	b.WriteString(`# Configuration
Generated from the program; ` + "`make generate`" + ` writes it again.

A setting is given as a flag, as a variable, or as a key of the same name as the flag in the YAML file of ` + "`--config`" + `;
the first of these wins. Settings that are unknown, malformed or half-set are refused at the start; so is any other variable that begins with
` + "`CAIRN_`" + `, save those of client commands and those that orchestrators make for a service named cairn. Lists are repeated
flags, or separated by commas in a variable, or lists in the file. Sizes are bytes or have a unit: KiB, MiB, GiB, TiB.

| flag and key | variable | default | meaning |
|---|---|---|---|
`)
	for _, s := range config.Settings {
		flag := "--" + s.Name
		if s.Value != "" {
			flag += " " + s.Value
		}
		variable := "`" + s.Variable() + "`"
		if s.Secret {
			variable += ", or the path of a file with it in `" + s.Variable() + "_FILE`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", flag, variable, s.Default, strings.ReplaceAll(s.Help, "|", "\\|"))
	}
	b.WriteString(`
The settings from ` + "`config`" + ` to ` + "`cache-size`" + ` name the storage; operator commands (` + "`org`, `token revoke`, `repo`, `fsck`, `doctor`" + `) take
them too and work while the server runs.

The credentials of a bucket come from ` + "`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`" + ` and
` + "`AWS_REGION`" + `.

## Client commands
| variable | meaning |
|---|---|
| ` + "`CAIRN_URL`" + ` | the server, http://127.0.0.1:8080 when unset |
| ` + "`CAIRN_ORG`" + ` | the org (` + "`PIERRE_ORG`" + ` serves when it is unset) |
| ` + "`CAIRN_PRIVATE_KEY`" + ` | the org's private key: PEM text, also with \n escapes, or a path (` + "`PIERRE_PRIVATE_KEY`" + ` serves when it is unset) |
| ` + "`CAIRN_TOKEN`" + ` | a token to use as it is, instead of a key |
| ` + "`CAIRN_TOKEN_FILE`" + ` | a file with a token, read anew for every request |
| ` + "`CAIRN_THREAD`" + ` | the thread of checkpoints, where ` + "`--thread`" + ` is not given |
| ` + "`CAIRN_STATE_DIR`" + ` | where ` + "`capture` and `restore`" + ` remember what directories came from; ` + "`$XDG_STATE_HOME/cairn` or `~/.local/state/cairn`" + ` when unset |
`)
	return b.String()
}
