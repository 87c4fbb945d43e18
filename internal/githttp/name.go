package githttp

// Name names the route for logs and metrics, like "git-upload-pack"; it never
// holds anything of the path.
func (r Route) Name() string {
	switch r.endpoint {
	case infoRefs:
		return "git-info-refs"
	case uploadPack:
		return "git-upload-pack"
	case receivePack:
		return "git-receive-pack"
	}
	return "git-dumb"
}
