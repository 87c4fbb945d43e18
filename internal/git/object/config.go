package object

import "strings"

// eachSetting reads the text of a configuration file as Git does and yields its
// settings in order: the full name, section and key in lower case, and the value,
// which is missing where there is no "=". It reports whether the text is well
// formed; what comes before a fault has been yielded.
func eachSetting(text []byte, yield func(name, value string, missing bool)) bool {
	p := settingsParser{rest: text, yield: yield}
	if strings.HasPrefix(string(text), "\ufeff") {
		p.rest = text[len("\ufeff"):]
	}
	for {
		c := p.next()
		switch {
		case c == '\n' && p.ended:
			return true
		case isConfigSpace(c):
		case c == '#' || c == ';':
			for c != '\n' {
				c = p.next()
			}
			if p.ended {
				return true
			}
		case c == '[':
			if p.name = p.name[:0]; !p.section() {
				return false
			}
			p.name = append(p.name, '.')
			p.stem = len(p.name)
		case isLetter(c):
			p.name = append(p.name[:p.stem], lower(c))
			if !p.setting() {
				return false
			}
		default:
			return false
		}
	}
}

type settingsParser struct {
	rest  []byte
	ended bool // the text has ended: next returned a newline that is not there
	name  []byte
	stem  int // length of the section's name, with a dot
	value []byte
	yield func(name, value string, missing bool)
}

// next returns the next byte; CRLF is one newline, and so is the end.
func (p *settingsParser) next() byte {
	if len(p.rest) == 0 {
		p.ended = true
		return '\n'
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	if c == '\r' && len(p.rest) > 0 && p.rest[0] == '\n' {
		c, p.rest = '\n', p.rest[1:]
	}
	return c
}

// section reads a section's name up to its bracket.
func (p *settingsParser) section() bool {
	for {
		switch c := p.next(); {
		case p.ended:
			return false
		case c == ']':
			return true
		case isConfigSpace(c):
			return p.subsection(c)
		case !isKeyByte(c) && c != '.':
			return false
		default:
			p.name = append(p.name, lower(c))
		}
	}
}

// subsection reads what is in quotation marks, after the space c.
func (p *settingsParser) subsection(c byte) bool {
	for isConfigSpace(c) {
		if c == '\n' {
			return false
		}
		c = p.next()
	}
	if c != '"' {
		return false
	}
	p.name = append(p.name, '.')
	for {
		c := p.next()
		if c == '"' {
			return p.next() == ']'
		}
		if c == '\\' {
			c = p.next()
		}
		if c == '\n' {
			return false
		}
		p.name = append(p.name, c)
	}
}

// setting reads what follows the first letter of a key, and yields it.
func (p *settingsParser) setting() bool {
	c := p.next()
	for ; isKeyByte(c); c = p.next() {
		p.name = append(p.name, lower(c))
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	if c == '\n' {
		p.yield(string(p.name), "", true)
		return true
	}
	if c != '=' || !p.readValue() {
		return false
	}
	p.yield(string(p.name), string(p.value), false)
	return true
}

// readValue reads a value to the end of its line, which a backslash prolongs.
func (p *settingsParser) readValue() bool {
	p.value = p.value[:0]
	quoted, comment, spaces := false, false, 0
	for {
		c := p.next()
		switch {
		case c == '\n':
			return !quoted
		case comment:
			continue
		case isConfigSpace(c) && !quoted:
			if len(p.value) > 0 {
				spaces++
			}
			continue
		case !quoted && (c == ';' || c == '#'):
			comment = true
			continue
		}
		for ; spaces > 0; spaces-- {
			p.value = append(p.value, ' ')
		}
		switch c {
		case '"':
			quoted = !quoted
			continue
		case '\\':
			switch c = p.next(); c {
			case '\n':
				continue
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return false
			}
		}
		p.value = append(p.value, c)
	}
}

func isConfigSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isLetter(c byte) bool { return 'a' <= lower(c) && lower(c) <= 'z' }

func isKeyByte(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
