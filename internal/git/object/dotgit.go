package object

import (
	"bytes"
	"unicode/utf8"
)

// isDotGit reports whether name, or a part of it between backslashes, opens a
// ".git" directory on some file system: in any case, with code points that HFS+
// ignores, or by the rules of NTFS ("git~1", trailing dots, spaces and streams).
func isDotGit(name []byte) bool {
	return anyDisguise(name, ".git", ntfsDotGit)
}

// isDotGitmodules reports the same of ".gitmodules".
func isDotGitmodules(name []byte) bool {
	return anyDisguise(name, ".gitmodules", ntfsDotGitmodules)
}

// anyDisguise reports whether name is plain on HFS+, or whether it or what
// follows one of its backslashes is an NTFS disguise.
func anyDisguise(name []byte, plain string, ntfs func([]byte) bool) bool {
	if len(name) == 0 {
		return false
	}
	switch c := name[0]; {
	// No disguise begins with anything else.
	case c == '.', c == 'g', c == 'G', c == '~', c >= utf8.RuneSelf:
		if hfsEqual(name, plain) || ntfs(name) {
			return true
		}
	}
	for {
		i := bytes.IndexByte(name, '\\')
		if i < 0 {
			return false
		}
		if name = name[i+1:]; ntfs(name) {
			return true
		}
	}
}

// hfsEqual reports whether HFS+ takes name for want, which is in lower case.
// Like Git it takes malformed UTF-8 for the end of the name.
func hfsEqual(name []byte, want string) bool {
	var r rune
	for i := range len(want) {
		if r, name = nextHFS(name); 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r != rune(want[i]) {
			return false
		}
	}
	r, _ = nextHFS(name)
	return r == 0 || r == '/'
}

// nextHFS returns the next code point that HFS+ does not ignore; 0 at the end
// and for malformed UTF-8, among which Git counts U+FFFE and U+FFFF.
func nextHFS(name []byte) (rune, []byte) {
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		switch {
		case r == utf8.RuneError && size == 1, r == 0xfffe, r == 0xffff:
			return 0, nil
		case 0x200c <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e, 0x206a <= r && r <= 0x206f, r == 0xfeff:
			name = name[size:]
		default:
			return r, name[size:]
		}
	}
	return 0, nil
}

// ntfsDotGit reports whether NTFS takes name, up to a directory separator, for
// ".git".
func ntfsDotGit(name []byte) bool {
	if end := bytes.IndexAny(name, `\/`); end >= 0 {
		name = name[:end]
	}
	rest, ok := cutFold(name, ".git")
	if !ok {
		rest, ok = cutFold(name, "git~1")
	}
	return ok && ntfsIgnored(rest)
}

// ntfsDotGitmodules reports whether NTFS takes name for ".gitmodules": written
// out, as its usual short name, or as the short name that NTFS makes of a hash
// when the usual ones are taken.
func ntfsDotGitmodules(name []byte) bool {
	if rest, ok := cutFold(name, ".gitmodules"); ok {
		return ntfsIgnored(rest)
	}
	if rest, ok := cutFold(name, "gitmod~"); ok && len(rest) > 0 && '1' <= rest[0] && rest[0] <= '4' {
		return ntfsIgnored(rest[1:])
	}
	const hashed, shortName = "gi7eba", 8
	if len(name) < shortName {
		return false
	}
	tilde := bytes.IndexByte(name[:shortName-1], '~')
	if tilde < 0 || name[tilde+1] == '0' {
		return false
	}
	if _, ok := cutFold(name, hashed[:tilde]); !ok {
		return false
	}
	for _, c := range name[tilde+1 : shortName] {
		if !isDigit(c) {
			return false
		}
	}
	return ntfsIgnored(name[shortName:])
}

// ntfsIgnored reports whether NTFS ignores the end of a name: dots and spaces,
// and from a colon on the name of a stream.
func ntfsIgnored(rest []byte) bool {
	for _, c := range rest {
		if c == ':' {
			return true
		}
		if c != '.' && c != ' ' {
			return false
		}
	}
	return true
}

// cutFold removes prefix, which is in lower case ASCII, from name.
func cutFold(name []byte, prefix string) (rest []byte, ok bool) {
	if len(name) < len(prefix) {
		return nil, false
	}
	for i := range len(prefix) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != prefix[i] {
			return nil, false
		}
	}
	return name[len(prefix):], true
}
