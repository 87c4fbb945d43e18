package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/api"
)

func newCheckpointFiles(env Env) *cobra.Command {
	path := ""
	cmd := &cobra.Command{Use: "files ID", Short: "List the files of a checkpoint", Args: cobra.ExactArgs(1)}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&path, "path", "", "only what lies beneath this `DIR`, which begins with the name of a root")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		rows := []api.Entry{}
		for e, err := range remote.Entries(c.Context(), args[0], path) {
			if err != nil {
				return err
			}
			if *asJSON {
				rows = append(rows, e)
				continue
			}
			line := fmt.Sprintf("%s%04o %10d %s %s", typeLetter(e.Type), e.Mode, e.Size, e.Mtime, visible(e.Path))
			if e.Target != "" {
				line += " -> " + visible(e.Target)
			}
			if _, err := fmt.Fprintln(env.Stdout, line); err != nil {
				return err
			}
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"id": args[0], "entries": rows})
		}
		return nil
	}
	return cmd
}

// typeLetter is the letter of a type, as ls has it.
func typeLetter(t string) string {
	switch t {
	case "directory":
		return "d"
	case "symlink":
		return "l"
	}
	return "-"
}

// visible quotes a path that would not be one word on one line.
func visible(path string) string {
	if q := fmt.Sprintf("%q", path); q != `"`+path+`"` {
		return q
	}
	return path
}

func newCheckpointDiff(env Env) *cobra.Command {
	base := ""
	cmd := &cobra.Command{Use: "diff ID", Short: "Tell what differs from one checkpoint to another", Args: cobra.ExactArgs(1),
		Long: `Tell what differs from --base, or from the checkpoint before, to a checkpoint. A
directory that was added or removed is one line.`}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&base, "base", "", "the `ID` to compare with; the parent when left out")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		rows := []api.CheckpointChange{}
		for change, err := range remote.Diff(c.Context(), args[0], base) {
			if err != nil {
				return err
			}
			if *asJSON {
				rows = append(rows, change)
			} else if _, err := fmt.Fprintf(env.Stdout, "%s %s\n", changeLetter(change.Change), visible(change.Path)); err != nil {
				return err
			}
		}
		if !*asJSON {
			return nil
		}
		if base == "" {
			cp, err := remote.Get(c.Context(), args[0])
			if err != nil {
				return err
			}
			base = cp.Parent
		}
		return printJSON(env.Stdout, map[string]any{"id": args[0], "base": orNull(base), "changes": rows})
	}
	return cmd
}

// changeLetter is the letter of a change, as git has it.
func changeLetter(change string) string {
	switch change {
	case "added":
		return "A"
	case "removed":
		return "D"
	}
	return "M"
}

func newCheckpointArchive(env Env) *cobra.Command {
	format, path, file := "", "", ""
	cmd := &cobra.Command{Use: "archive ID", Short: "Write the files of a checkpoint as one archive", Args: cobra.ExactArgs(1)}
	f := cmd.Flags()
	f.StringVar(&format, "format", "tar.gz", "tar, tar.gz or tar.zst")
	f.StringVar(&path, "path", "", "only this file or directory; it begins with the name of a root")
	f.StringVarP(&file, "output", "o", "", "write to this `FILE`; to standard output when left out")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if format != "tar" && format != "tar.gz" && format != "tar.zst" {
			return usagef("--format %q: want tar, tar.gz or tar.zst", format)
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		w, done, err := output(env, file)
		if err != nil {
			return err
		}
		err = remote.Archive(c.Context(), args[0], format, path, w)
		if ended := done(err == nil); err == nil {
			err = ended
		}
		return err
	}
	return cmd
}
