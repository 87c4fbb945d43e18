package checkpoint

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxID bounds ids and names of threads, in bytes.
const maxID = 255

// maxSize is the largest size that every peer can read.
const maxSize = 1<<53 - 1

var (
	fileKey     = regexp.MustCompile(`^sandbox-files/sha256/[0-9a-f]{64}$`)
	artifactKey = regexp.MustCompile(`^sandbox-artifacts/sha256/[0-9a-f]{64}$`)
	drive       = regexp.MustCompile(`^[A-Za-z]:([/\\]|$)`)
)

// checkIDs reports ids that no store takes.
func checkIDs(ids ...string) error {
	for _, id := range ids {
		switch {
		case id == "":
			return errorf(ErrInvalidID, "an id or the name of a thread is empty")
		case !utf8.ValidString(id):
			return errorf(ErrInvalidID, "the id %q is not UTF-8", id)
		case len(id) > maxID:
			return errorf(ErrInvalidID, "an id has %d bytes, at most %d are allowed", len(id), maxID)
		}
	}
	return nil
}

// optional returns the ids of list that are not empty.
func optional(list ...string) (ids []string) {
	for _, id := range list {
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkContents reports what a store does not take of a checkpoint beside its ids.
func checkContents(c *Checkpoint) error {
	if err := checkFiles(c.Files); err != nil {
		return err
	}
	for _, a := range c.Artifacts {
		switch {
		case a.ID == "" || a.Name == "" || a.MimeType == "" || !utf8.ValidString(a.ID):
			return errorf(ErrInvalidEntry, "an artifact without id, name or type")
		case !artifactKey.MatchString(a.BlobKey):
			return errorf(ErrInvalidEntry, "the artifact %q with the key %q", a.ID, a.BlobKey)
		case a.Size < 0 || a.Size > maxSize:
			return errorf(ErrInvalidEntry, "the artifact %q with the size %d", a.ID, a.Size)
		}
	}
	return nil
}

func checkFiles(files []File) error {
	kinds := make(map[string]string, len(files))
	for _, f := range files {
		if err := checkManifestPath(f.Path); err != nil {
			return err
		}
		if kinds[f.Path] != "" {
			return errorf(ErrInvalidEntry, "the path %q twice", f.Path)
		}
		kinds[f.Path] = f.Kind
		switch {
		case f.Kind == "dir" && f.BlobKey == "" && f.Size == 0:
		case f.Kind != "file":
			return errorf(ErrInvalidEntry, "the entry %q of kind %q", f.Path, f.Kind)
		case !fileKey.MatchString(f.BlobKey):
			return errorf(ErrInvalidEntry, "the file %q with the key %q", f.Path, f.BlobKey)
		case f.Size < 0 || f.Size > maxSize:
			return errorf(ErrInvalidEntry, "the file %q with the size %d", f.Path, f.Size)
		}
	}
	for path := range kinds {
		for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
			if kinds[path[:i]] == "file" {
				return errorf(ErrInvalidEntry, "%q lies beneath the file %q", path, path[:i])
			}
		}
	}
	return nil
}

// checkManifestPath keeps to what peers take: relative, with slashes between names, on every system.
func checkManifestPath(path string) error {
	bad := path == "" || strings.ContainsAny(path, "\x00\\") || drive.MatchString(path)
	for name := range strings.SplitSeq(path, "/") {
		bad = bad || name == "" || name == "." || name == ".."
	}
	if bad {
		return errorf(ErrInvalidEntry, "the path %q", path)
	}
	return nil
}

// keys returns the distinct blob keys that a checkpoint names.
func (c *Checkpoint) keys() map[string]bool {
	keys := map[string]bool{}
	for _, f := range c.Files {
		if f.BlobKey != "" {
			keys[f.BlobKey] = true
		}
	}
	for _, a := range c.Artifacts {
		keys[a.BlobKey] = true
	}
	return keys
}
