package gitcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Dir is a bare repository without refs, made for one task: packs, and nothing
// else. Close must be called.
type Dir struct{ path string }

// NewDir makes an empty view in a scratch directory.
func NewDir(scratch string) (*Dir, error) {
	path, err := os.MkdirTemp(scratch, "git-*")
	if err != nil {
		return nil, fmt.Errorf("make a directory for git: %w", err)
	}
	d := &Dir{path}
	if err := d.fill(); err != nil {
		d.Close()
		return nil, fmt.Errorf("make a directory for git: %w", err)
	}
	return d, nil
}

func (d *Dir) fill() error {
	for _, dir := range []string{"objects/pack", "refs"} {
		if err := os.MkdirAll(filepath.Join(d.path, dir), 0o700); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"HEAD":   "ref: refs/heads/none\n",
		"config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
	} {
		if err := os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// AddPack puts a pack with the given checksum into the view. The index comes
// last: a pack without one does not exist for git. A pack that is in the view
// already, for the same objects may be written twice, is left as it is.
func (d *Dir) AddPack(checksum object.ID, pack io.WriterTo, index []byte) error {
	base := filepath.Join(d.path, "objects", "pack", "pack-"+checksum.String())
	f, err := os.OpenFile(base+".pack", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy a pack for git: %w", err)
	}
	_, err = pack.WriteTo(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.WriteFile(base+".idx", index, 0o600)
	}
	if err != nil {
		return fmt.Errorf("copy a pack for git: %w", err)
	}
	return nil
}

// MakePack puts a pack into the view that write writes; write returns its
// checksum and index.
func (d *Dir) MakePack(write func(io.Writer) (checksum object.ID, index []byte, err error)) error {
	dir := filepath.Join(d.path, "objects", "pack")
	f, err := os.CreateTemp(dir, "tmp_pack_*")
	if err != nil {
		return fmt.Errorf("make a pack for git: %w", err)
	}
	checksum, index, err := write(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("make a pack for git: %w", cerr)
	}
	if err != nil {
		return err
	}
	base := filepath.Join(dir, "pack-"+checksum.String())
	if err = os.Rename(f.Name(), base+".pack"); err == nil {
		err = os.WriteFile(base+".idx", index, 0o600)
	}
	if err != nil {
		return fmt.Errorf("make a pack for git: %w", err)
	}
	return nil
}

// Shallow tells git that the history ends at commits: that their parents are not
// there.
func (d *Dir) Shallow(commits []object.ID) error {
	var lines []byte
	for _, id := range commits {
		lines = append(append(lines, id.String()...), '\n')
	}
	if err := os.WriteFile(filepath.Join(d.path, "shallow"), lines, 0o600); err != nil {
		return fmt.Errorf("cut the history for git: %w", err)
	}
	return nil
}

// Attributes tells git what holds of paths, as lines of a gitattributes file.
func (d *Dir) Attributes(lines []byte) error {
	dir := filepath.Join(d.path, "info")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "attributes"), lines, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write attributes for git: %w", err)
	}
	return nil
}

// Close removes the view.
func (d *Dir) Close() error { return os.RemoveAll(d.path) }
