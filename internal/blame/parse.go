package blame

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// parse reads what git blame --incremental writes about a file of some lines.
func parse(out []byte, total int) ([]Line, error) {
	at := make([]Line, total)
	var group Line
	count, told := 0, 0
	for len(out) > 0 {
		var line []byte
		line, out, _ = bytes.Cut(out, []byte{'\n'})
		key, value, _ := strings.Cut(string(line), " ")
		switch {
		case len(key) == 2*object.Size:
			id, err := object.ParseID(key)
			if err != nil {
				return nil, fmt.Errorf("read what git blame writes: %w", err)
			}
			group = Line{Commit: id}
			n, err := numbers(value)
			if err != nil || n[2] > total || n[1] > total-n[2]+1 {
				return nil, fmt.Errorf("git blame tells of lines %q of a file of %d: %w", value, total, errGit)
			}
			group.Original, group.Number, count = n[0], n[1], n[2]
		case key == "previous":
			name, _, _ := strings.Cut(value, " ")
			id, err := object.ParseID(name)
			if err != nil {
				return nil, fmt.Errorf("read what git blame writes: %w", err)
			}
			group.Previous = id
		case key == "filename":
			path, err := unquote(value)
			if err != nil {
				return nil, err
			}
			group.Path = path
			if told += count; told > MaxLines {
				return nil, tooMany()
			}
			for i := range count {
				l := group
				l.Number += i
				l.Original += i
				at[l.Number-1] = l
			}
			count = 0
		}
	}
	lines := make([]Line, 0, told)
	for _, l := range at {
		if l.Number > 0 {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// errGit says that git wrote what it should not.
var errGit = fmt.Errorf("unexpected output")

// numbers reads the three numbers of a group: lines in the original and in the file,
// from 1, and how many.
func numbers(text string) (n [3]int, err error) {
	fields := strings.Fields(text)
	if len(fields) != len(n) {
		return n, errGit
	}
	for i, f := range fields {
		if n[i], err = strconv.Atoi(f); err != nil || n[i] < 1 {
			return n, errGit
		}
	}
	return n, nil
}

// unquote reads a path, which git quotes as C does where it must.
func unquote(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	path, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf("git blame names a file %q: %w", text, errGit)
	}
	return path, nil
}
