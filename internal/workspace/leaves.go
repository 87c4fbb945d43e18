package workspace

import "strings"

// maxHops is how many links the file system follows for one path.
const maxHops = 40

// Leaves reports whether following target from a link leaves its root at any
// step, links on the way included. link is the path of the link below root, and
// readlink returns where the link at another such path points to; false says that
// there is none. What does not exist leaves nothing.
func Leaves(root, link, target string, readlink func(path string) (string, bool)) bool {
	at := strings.Split(link, "/")
	at = at[:len(at)-1]
	var todo []string
	follow := func(target string) bool {
		if strings.HasPrefix(target, "/") {
			rel, ok := strings.CutPrefix(target, strings.TrimSuffix(root, "/"))
			if !ok || rel != "" && rel[0] != '/' {
				return false
			}
			at, target = nil, rel
		}
		todo = append(strings.Split(target, "/"), todo...)
		return true
	}
	if !follow(target) {
		return true
	}
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
		case "..":
			if len(at) == 0 {
				return true
			}
			at = at[:len(at)-1]
		default:
			at = append(at[:len(at):len(at)], name)
			next, ok := readlink(strings.Join(at, "/"))
			if !ok {
				continue
			}
			if hops++; hops > maxHops {
				return false // the file system does not follow it either
			}
			at = at[:len(at)-1]
			if !follow(next) {
				return true
			}
		}
	}
	return false
}
