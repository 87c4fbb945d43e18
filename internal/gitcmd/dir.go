package gitcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Dir is a bare repository without refs, made for one task: packs, and nothing
// else. Close must be called.
type Dir struct {
	room   *Room
	shared string // the room's directory
	path   string // the directory of objects, in shared
	packs  int    // that MakePack has put there
}

// NewDir makes an empty view.
func (r *Room) NewDir() (*Dir, error) {
	shared, err := r.open()
	if err != nil {
		return nil, fmt.Errorf("make a directory for git: %w", err)
	}
	d := &Dir{room: r, shared: shared, path: filepath.Join(shared, strconv.FormatInt(r.made.Add(1), 10))}
	for _, path := range []string{d.path, d.packDir()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("make a directory for git: %w", err), os.RemoveAll(d.path))
		}
	}
	return d, nil
}

func (d *Dir) packDir() string { return filepath.Join(d.path, "pack") }

// shallowFile is where Shallow writes.
func (d *Dir) shallowFile() string { return filepath.Join(d.path, "shallow") }

// AddPack puts a pack with the given checksum into the view. The index comes
// last: a pack without one does not exist for git. A pack that is in the view
// already, for the same objects may be written twice, is left as it is.
func (d *Dir) AddPack(checksum object.ID, pack io.WriterTo, index []byte) error {
	base := filepath.Join(d.packDir(), "pack-"+checksum.String())
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

// MakePack puts a pack into the view that write writes; write returns its index.
func (d *Dir) MakePack(write func(io.Writer) (index []byte, err error)) error {
	d.packs++
	base := filepath.Join(d.packDir(), "made-"+strconv.Itoa(d.packs))
	f, err := os.OpenFile(base+".pack", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make a pack for git: %w", err)
	}
	buf := bufio.NewWriterSize(f, 64<<10)
	index, err := write(buf)
	if err == nil {
		err = buf.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
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
	if err := os.WriteFile(d.shallowFile(), lines, 0o600); err != nil {
		return fmt.Errorf("cut the history for git: %w", err)
	}
	return nil
}

// attributesFile is where Attributes writes.
func (d *Dir) attributesFile() string { return filepath.Join(d.path, "attributes") }

// Attributes tells git what holds of paths, as lines of a gitattributes file.
func (d *Dir) Attributes(lines []byte) error {
	if err := os.WriteFile(d.attributesFile(), lines, 0o600); err != nil {
		return fmt.Errorf("write attributes for git: %w", err)
	}
	return nil
}

// Close gives the view up; it is removed soon after. git must not run in it.
func (d *Dir) Close() error { return d.room.discard(d.path) }
