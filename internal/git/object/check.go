package object

import (
	"bytes"
	"fmt"
	"math"
)

// CheckError says why Check refuses an object.
type CheckError struct {
	Type   Type
	ID     string // Git's name for the fault, such as "hasDotgit"
	Detail string // what is wrong with the object, in words
}

// Error returns the fault as git fsck prints it.
func (e *CheckError) Error() string {
	return fmt.Sprintf("%s refused: %s: %s", e.Type, e.ID, e.Detail)
}

// maxTreeName is the longest name in a tree that Git (2.43 and later) accepts.
const maxTreeName = 4096

// Check refuses what git fsck --strict, git index-pack --strict and a server
// with receive.fsckObjects refuse in a single object: faults of Git's severities
// fatal, error and warning. What Git only mentions (severity info: odd file
// modes, a bad tag name, a tag without tagger, linked .gitignore files) is
// accepted. Where versions of Git differ, the strictest counts: dates begin with
// a digit, and names are at most 4096 bytes.
//
// Not checked are what needs other objects (that links lead to objects of the
// right type), the content of .gitmodules blobs, for which there is
// CheckGitmodules, and that of .gitattributes blobs, of which Git ignores what it
// refuses.
//
// The error is a *CheckError about the first fault.
func Check(t Type, data []byte) error {
	var id, detail string
	switch t {
	case Commit:
		id, detail = checkCommit(data)
	case Tree:
		id, detail = checkTree(data)
	case Tag:
		id, detail = checkTag(data)
	case Blob:
		return nil
	default:
		id, detail = "unknownType", fmt.Sprintf("type %d does not exist", t)
	}
	if id != "" {
		return &CheckError{Type: t, ID: id, Detail: detail}
	}
	return nil
}

// checkCommit names the fault of a commit, or nothing.
func checkCommit(data []byte) (id, detail string) {
	if id, detail := checkHeader(data); id != "" {
		return id, detail
	}
	if !hasPrefix(data, "tree ") {
		return "missingTree", "expected a tree line"
	}
	_, rest, ok := cutIDLine(data, "tree ")
	if !ok {
		return "badTreeSha1", "the tree line holds no object id"
	}
	for hasPrefix(rest, "parent ") {
		if _, rest, ok = cutIDLine(rest, "parent "); !ok {
			return "badParentSha1", "a parent line holds no object id"
		}
	}
	authors := 0
	for ; hasPrefix(rest, "author "); authors++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, newline)
		if id, detail := checkIdent(line[len("author "):]); id != "" {
			return id, detail
		}
	}
	switch {
	case authors == 0:
		return "missingAuthor", "expected an author line"
	case authors > 1:
		return "multipleAuthors", "there is more than one author line"
	case !hasPrefix(rest, "committer "):
		return "missingCommitter", "expected a committer line"
	}
	line, _, _ := bytes.Cut(rest, newline)
	if id, detail := checkIdent(line[len("committer "):]); id != "" {
		return id, detail
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return "nulInCommit", "the message contains NUL"
	}
	return "", ""
}

// minTag is the size in bytes of the smallest tag that Git can read.
const minTag = 2*Size + 24

// checkTag names the fault of a tag, or nothing.
func checkTag(data []byte) (id, detail string) {
	if id, detail := checkHeader(data); id != "" {
		return id, detail
	}
	if !hasPrefix(data, "object ") {
		return "missingObject", "expected an object line"
	}
	_, rest, ok := cutIDLine(data, "object ")
	if !ok {
		return "badObjectSha1", "the object line holds no object id"
	}
	if !hasPrefix(rest, "type ") {
		return "missingTypeEntry", "expected a type line"
	}
	line, rest, _ := bytes.Cut(rest, newline)
	if parseType(line[len("type "):]) == Invalid {
		return "badType", "the type does not exist"
	}
	if !hasPrefix(rest, "tag ") {
		return "missingTagEntry", "expected a tag line"
	}
	if len(data) < minTag {
		return "badTagObject", "the tag is too short to be read"
	}
	_, rest, _ = bytes.Cut(rest, newline)
	if !hasPrefix(rest, "tagger ") {
		return "", ""
	}
	line, _, _ = bytes.Cut(rest, newline)
	return checkIdent(line[len("tagger "):])
}

// checkHeader names the fault of a header as a whole, or nothing: it ends in an
// empty line or with the object, and holds no NUL.
func checkHeader(data []byte) (id, detail string) {
	header := data
	end := bytes.Index(data, []byte("\n\n"))
	if end >= 0 {
		header = data[:end+1]
	}
	if i := bytes.IndexByte(header, 0); i >= 0 {
		return "nulInHeader", fmt.Sprintf("there is a NUL at offset %d", i)
	}
	if end < 0 && !bytes.HasSuffix(data, newline) {
		return "unterminatedHeader", "the header does not end in a newline"
	}
	return "", ""
}

// checkIdent names the fault of an identity "Name <email> seconds zone", or
// nothing.
func checkIdent(line []byte) (id, detail string) {
	if hasPrefix(line, "<") {
		return "missingNameBeforeEmail", "there is no name before the email address"
	}
	i := bytes.IndexAny(line, "<>")
	switch {
	case i < 0:
		return "missingEmail", "there is no email address"
	case line[i] == '>':
		return "badName", "a name contains >"
	case line[i-1] != ' ':
		return "missingSpaceBeforeEmail", "there is no space before the email address"
	}
	line = line[i+1:]
	i = bytes.IndexAny(line, "<>")
	if i < 0 || line[i] == '<' {
		return "badEmail", "an email address does not end in >"
	}
	if line = line[i+1:]; !hasPrefix(line, " ") {
		return "missingSpaceBeforeDate", "there is no space before the date"
	}
	return checkDate(bytes.TrimLeft(line, " \t"))
}

// checkDate names the fault of a date "seconds zone", or nothing.
func checkDate(date []byte) (id, detail string) {
	if hasPrefix(date, "0") && !hasPrefix(date, "0 ") {
		return "zeroPaddedDate", "a date begins with zeros"
	}
	digits, seconds := 0, uint64(0)
	for ; digits < len(date) && isDigit(date[digits]); digits++ {
		d := uint64(date[digits] - '0')
		if seconds > (math.MaxInt64-d)/10 {
			return "badDateOverflow", "a date is too large"
		}
		seconds = seconds*10 + d
	}
	if digits == 0 || !hasPrefix(date[digits:], " ") {
		return "badDate", "a date is not a number of seconds"
	}
	if !isZone(date[digits+1:]) {
		return "badTimezone", "a time zone is not a sign and four digits"
	}
	return "", ""
}

// Faults of a tree. The first one found is reported.
const (
	badTree = iota
	gitmodulesSymlink
	nullSha1
	fullPathname
	hasDot
	hasDotdot
	hasDotgit
	zeroPaddedFilemode
	treeNotSorted
	duplicateEntries
	largePathname
	gitmodulesBlob
	gitmodulesMissing
	treeFaults
)

var treeFaultTexts = [treeFaults]struct{ id, detail string }{
	badTree:            {"badTree", "it cannot be read"},
	gitmodulesSymlink:  {"gitmodulesSymlink", "an entry .gitmodules is a symbolic link"},
	gitmodulesBlob:     {"gitmodulesBlob", "an entry .gitmodules is a directory"},
	gitmodulesMissing:  {"gitmodulesMissing", "an entry .gitmodules is a submodule"},
	nullSha1:           {"nullSha1", "an entry has the null object id"},
	fullPathname:       {"fullPathname", "a name contains a slash"},
	hasDot:             {"hasDot", `it contains "."`},
	hasDotdot:          {"hasDotdot", `it contains ".."`},
	hasDotgit:          {"hasDotgit", `it contains ".git", plain or disguised`},
	zeroPaddedFilemode: {"zeroPaddedFilemode", "a mode begins with zero"},
	treeNotSorted:      {"treeNotSorted", "its entries are not sorted"},
	duplicateEntries:   {"duplicateEntries", "two entries have the same name"},
	largePathname:      {"largePathname", fmt.Sprintf("a name is longer than %d bytes", maxTreeName)},
}

// checkTree names the first fault of a tree, or nothing.
func checkTree(data []byte) (id, detail string) {
	var found [treeFaults]bool
	var order treeOrder
	it := TreeEntries(data)
	for {
		padded := hasPrefix(it.rest, "0")
		e, ok := it.Next()
		if !ok {
			break
		}
		checkName(e, &found)
		found[zeroPaddedFilemode] = found[zeroPaddedFilemode] || padded
		found[nullSha1] = found[nullSha1] || e.ID.IsZero()
		order.add(e, &found)
	}
	found[badTree] = it.Err() != nil
	for fault, is := range found {
		if is {
			return treeFaultTexts[fault].id, treeFaultTexts[fault].detail
		}
	}
	return "", ""
}

// checkName notes the faults of one entry's name.
func checkName(e Entry, found *[treeFaults]bool) {
	switch {
	case string(e.Name) == ".":
		found[hasDot] = true
	case string(e.Name) == "..":
		found[hasDotdot] = true
	case bytes.IndexByte(e.Name, '/') >= 0:
		found[fullPathname] = true
	case len(e.Name) > maxTreeName:
		found[largePathname] = true
	}
	if isDotGit(e.Name) {
		found[hasDotgit] = true
	}
	if e.Mode&modeFormat != modeFile && isDotGitmodules(e.Name) {
		switch e.Mode.Canonical() {
		case ModeSymlink:
			found[gitmodulesSymlink] = true
		case ModeDir:
			found[gitmodulesBlob] = true
		default:
			found[gitmodulesMissing] = true
		}
	}
}

// treeOrder notes entries out of order, and names that occur twice.
type treeOrder struct {
	last Entry
	// files are the names of files that begin the last name. A tree of the
	// same name as a file may follow it at a distance ("a", "a.c", "a/"),
	// with only longer names between them.
	files [][]byte
}

// add compares an entry with those before it.
func (o *treeOrder) add(e Entry, found *[treeFaults]bool) {
	if o.last.Name != nil {
		if bytes.Equal(o.last.Name, e.Name) {
			found[duplicateEntries] = true
		} else if CompareEntries(o.last, e) >= 0 {
			found[treeNotSorted] = true
		}
	}
	o.last = e
	for n := len(o.files); n > 0 && !bytes.HasPrefix(e.Name, o.files[n-1]); n-- {
		o.files = o.files[:n-1]
	}
	if n := len(o.files); n > 0 && len(o.files[n-1]) == len(e.Name) {
		found[duplicateEntries] = true
	}
	if !e.Mode.IsDir() {
		o.files = append(o.files, e.Name)
	}
}
