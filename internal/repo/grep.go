package repo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/grep"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// GrepQuery asks for the lines of a commit's files that match a pattern, in the
// order of paths. Files that git takes for binary, symbolic links, submodules and
// files of more than GrepMaxFile bytes are passed over.
type GrepQuery struct {
	Commit object.ID // the caller has resolved it
	// Pattern is a regular expression of RE2, matched against each line.
	Pattern       string
	CaseSensitive bool
	// Paths select a file, what is below a directory, or what a glob matches and
	// what is below it; none selects everything. Include, Exclude and Extensions
	// (".go" or "go") then select as in an ArchiveQuery.
	Paths, Include, Exclude, Extensions []string
	// Before and Behind are how many lines around a match are told with it.
	Before, Behind int
	// PerFile bounds the matches of one file, Limit those of a page, Lines the lines
	// of a page.
	PerFile, Limit, Lines int
}

// Bounds of a GrepQuery and its answer.
const (
	GrepMaxFile    = 16 << 20 // bytes
	GrepMaxContext = 100      // lines before or behind a match
	GrepMaxLines   = 2000
	GrepMaxPerFile = 1 << 20
	grepBytes      = 4 << 20 // of text on a page
	grepTime       = 15 * time.Second
	grepAhead      = 8 // files of one request that are searched at a time
)

// GrepPosition is a place in an answer: what comes after a line of a file, of which
// some matches were told already; or what comes after the file where Line is 0.
type GrepPosition struct {
	Path          string
	Line, Matches int
}

// GrepPage is a part of an answer.
type GrepPage struct {
	Files []GrepFile
	// Next is where the answer goes on, nil at its end. A page may be short, even
	// empty, and go on, where searching took long.
	Next *GrepPosition

	lines, matches, bytes int
	cut                   bool // time was up
}

// GrepFile is a file with the lines found in it.
type GrepFile struct {
	Path  string
	Lines []grep.Line
}

// Grep returns the part of an answer that comes after a position, and whether it was
// found in the cache. What cannot be searched for is an *InvalidError.
func (v *View) Grep(ctx context.Context, q GrepQuery, after GrepPosition) (page *GrepPage, cached bool, err error) {
	pattern, paths, err := q.check()
	if err != nil {
		return nil, false, err
	}
	key := q.key(v.repo.ID, after)
	if page, ok := v.engine.greps.pages.Get(key); ok {
		return page, true, nil
	}
	g, tree, err := v.rootTree(ctx, q.Commit)
	if err != nil {
		return nil, false, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &grepWalk{
		ctx: ctx, db: g.DB(), q: &q, paths: paths, pattern: pattern, after: after, turns: v.engine.greps.turns,
		until: time.Now().Add(grepTime), files: make(chan *grepping, grepAhead), work: make(chan *grepping, grepAhead),
	}
	w.running.Go(func() { w.walk(tree) })
	for range cap(w.turns) {
		w.running.Go(w.searchAll)
	}
	page, err = w.collect()
	stop()
	w.running.Wait()
	if err != nil {
		return nil, false, err
	}
	if !page.cut {
		v.engine.greps.pages.Put(key, page, page.weight())
	}
	return page, false, nil
}

// greps is what all searches of an engine share.
type greps struct {
	pages *lru.Cache[grepKey, *GrepPage]
	turns chan struct{} // one value for each file that is searched
}

func newGreps(bytes int64) greps {
	return greps{lru.New[grepKey, *GrepPage](bytes), make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
}

type grepKey struct {
	repo  meta.RepoID
	query [sha256.Size]byte
}

// key names an answer in the cache.
func (q *GrepQuery) key(repo meta.RepoID, after GrepPosition) grepKey {
	return grepKey{repo, sha256.Sum256(fmt.Appendf(nil, "%#v %#v", *q, after))}
}

// check compiles a query.
func (q *GrepQuery) check() (*grep.Pattern, pathspecs, error) {
	pattern, err := grep.Compile(q.Pattern, q.CaseSensitive)
	if bad, ok := errors.AsType[*grep.PatternError](err); ok {
		return nil, nil, invalid("%s", bad.Error())
	}
	if err != nil {
		return nil, nil, err
	}
	if len(q.Extensions) > maxGlobs {
		return nil, nil, invalid("%d file extensions are more than the limit of %d", len(q.Extensions), maxGlobs)
	}
	for _, e := range q.Extensions {
		if e == "" || len(e) > maxGlobLen {
			return nil, nil, invalid("file extension %q is malformed", clip(e))
		}
	}
	if err := checkGlobs(q.Include, q.Exclude); err != nil {
		return nil, nil, err
	}
	paths, err := parsePathspecs(q.Paths)
	return pattern, paths, err
}

// wants reports whether the query selects a file.
func (q *GrepQuery) wants(name string) bool {
	if len(q.Extensions) > 0 {
		found := false
		for _, e := range q.Extensions {
			found = found || strings.HasSuffix(name, "."+strings.TrimPrefix(e, "."))
		}
		if !found {
			return false
		}
	}
	return (len(q.Include) == 0 || matchesAny(q.Include, name)) && !matchesAny(q.Exclude, name)
}

// grepWalk is one search under way.
type grepWalk struct {
	ctx     context.Context
	db      *odb.DB
	q       *GrepQuery
	paths   pathspecs
	pattern *grep.Pattern
	after   GrepPosition
	turns   chan struct{}
	until   time.Time
	files   chan *grepping // in order; closed at the end of the tree
	work    chan *grepping // likewise, to be searched
	err     error          // of the walk, once files is closed
	running sync.WaitGroup
}

// grepping is one file while it is searched.
type grepping struct {
	path    string
	id      object.ID
	from    GrepPosition
	done    chan struct{} // closed when what follows is set
	groups  []grep.Group
	reached int
	err     error
}

// walk names the files to search and searches them, several at a time.
func (w *grepWalk) walk(tree object.ID) {
	defer close(w.files)
	defer close(w.work)
	w.err = w.tree(tree, "", 0)
}

func (w *grepWalk) tree(id object.ID, dir string, depth int) error {
	if depth >= graph.MaxTreeDepth {
		return tooDeep(id)
	}
	data, err := w.db.Tree(w.ctx, id)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		name := dir + string(e.Name)
		switch mode := e.Mode.Canonical(); {
		case mode.IsDir():
			key := name + "/"
			if (key > w.after.Path || strings.HasPrefix(w.after.Path, key)) && w.paths.reach(key) {
				err = w.tree(e.ID, key, depth+1)
			}
		case mode != object.ModeRegular && mode != object.ModeExecutable:
		case name > w.after.Path || name == w.after.Path && w.after.Line > 0:
			if w.paths.match(name) && w.q.wants(name) {
				err = w.start(name, e.ID)
			}
		}
		if err != nil {
			return err
		}
	}
	return it.Err()
}

// start has a file searched.
func (w *grepWalk) start(name string, id object.ID) error {
	f := &grepping{path: name, id: id, done: make(chan struct{})}
	if name == w.after.Path {
		f.from = w.after
	}
	for _, to := range []chan *grepping{w.files, w.work} {
		select {
		case to <- f:
		case <-w.ctx.Done():
			f.err = w.ctx.Err()
			close(f.done) // it may be in the one channel and not in the other
			return f.err
		}
	}
	return nil
}

// keptBuffer bounds in bytes the memory for texts that is kept from one file to
// the next.
const keptBuffer = 256 << 10

// searchAll searches files, each in its turn among those of all requests.
func (w *grepWalk) searchAll() {
	var buffer []byte
	for f := range w.work {
		select {
		case w.turns <- struct{}{}:
			f.err = w.search(f, &buffer)
			<-w.turns
		case <-w.ctx.Done():
			f.err = w.ctx.Err()
		}
		close(f.done)
		if cap(buffer) > keptBuffer {
			buffer = nil
		}
	}
}

// search finds the lines of one file, whose text is put into a buffer.
func (w *grepWalk) search(f *grepping, buffer *[]byte) error {
	text, err := w.read(f.id, buffer)
	if err != nil || grep.IsBinary(text) {
		return err
	}
	s := grep.Search{
		Pattern: w.pattern, After: f.from.Line, Before: w.q.Before, Behind: w.q.Behind,
		Matches: min(w.q.PerFile-f.from.Matches, w.q.Limit+1), Lines: w.q.Lines, Bytes: grepBytes, Until: w.until,
	}
	f.groups, f.reached, err = s.Find(w.ctx, text)
	return err
}

// read returns the content of a blob in a buffer, nothing of one that is too
// large.
func (w *grepWalk) read(id object.ID, buffer *[]byte) ([]byte, error) {
	_, size, r, err := w.db.Stream(w.ctx, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > GrepMaxFile {
		return nil, nil
	}
	text := slices.Grow((*buffer)[:0], int(size))[:size]
	*buffer = text
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("read blob %s: %w", id, err)
	}
	return text, nil
}

// collect makes a page of what is found.
func (w *grepWalk) collect() (*GrepPage, error) {
	page := &GrepPage{}
	for f := range w.files {
		<-f.done
		if f.err != nil {
			return nil, f.err
		}
		at := f.from
		at.Path = f.path
		for i := range f.groups {
			if !page.fits(&f.groups[i], w.q) {
				return page, nil
			}
			page.add(f.path, &f.groups[i], w.q.Lines)
			at.Line = f.groups[i].Last()
			at.Matches++
			next := at
			page.Next = &next
		}
		switch {
		case f.reached > 0:
			page.Next, page.cut = &GrepPosition{f.path, max(at.Line, f.reached), at.Matches}, true
			return page, nil
		case time.Now().After(w.until):
			page.Next, page.cut = &GrepPosition{Path: f.path}, true
			return page, nil
		}
	}
	page.Next = nil
	return page, w.err
}

// fits reports whether a group may come onto the page.
func (p *GrepPage) fits(g *grep.Group, q *GrepQuery) bool {
	return p.matches == 0 || p.matches < q.Limit && p.lines+len(g.Lines) <= q.Lines && p.bytes+g.Bytes <= grepBytes
}

// add puts a group on the page. One that is larger than a page loses lines around
// its match.
func (p *GrepPage) add(path string, g *grep.Group, most int) {
	lines := g.Lines
	if len(lines) > most {
		at := 0
		for !lines[at].Match {
			at++
		}
		from := min(max(0, at-most+1), len(lines)-most)
		lines = lines[from : from+most]
	}
	if n := len(p.Files); n == 0 || p.Files[n-1].Path != path {
		p.Files = append(p.Files, GrepFile{Path: path})
	}
	f := &p.Files[len(p.Files)-1]
	f.Lines = append(f.Lines, lines...)
	p.matches++
	p.lines += len(lines)
	p.bytes += g.Bytes
}

// weight is what the page takes in the cache, in bytes.
func (p *GrepPage) weight() int64 {
	n := 200 + int64(p.bytes)
	for i := range p.Files {
		n += int64(len(p.Files[i].Path)) + 64 + 64*int64(len(p.Files[i].Lines))
	}
	return n
}

// pathspecs select paths; none of them selects all.
type pathspecs []pathspec

type pathspec struct {
	text string // without slashes at its ends
	glob bool
	// base is the directories before the first that has a wildcard, with a slash at
	// the end.
	base string
}

// parsePathspecs reads paths and globs, relative to the root.
func parsePathspecs(texts []string) (pathspecs, error) {
	var specs pathspecs
	var globs []string
	for _, text := range texts {
		s := pathspec{text: strings.Trim(strings.TrimPrefix(text, "./"), "/")}
		if s.text == "" || s.text == "." {
			return nil, nil
		}
		if strings.HasPrefix(s.text, ":") || strings.IndexByte(s.text, 0) >= 0 {
			return nil, invalid("path %q is not a path or glob: the forms of git that begin with a colon are not taken", clip(text))
		}
		wild := strings.IndexAny(s.text, `*?[{\`)
		if s.glob = wild >= 0; s.glob {
			globs = append(globs, s.text)
			s.base = s.text[:strings.LastIndexByte(s.text[:wild], '/')+1]
			if !strings.Contains(s.text, "/") {
				s.base = ""
			}
		}
		specs = append(specs, s)
	}
	if len(specs) > maxGlobs {
		return nil, invalid("%d paths are more than the limit of %d", len(specs), maxGlobs)
	}
	return specs, checkGlobs(globs)
}

// match reports whether a file is selected.
func (specs pathspecs) match(name string) bool {
	for i := range specs {
		if specs[i].match(name) {
			return true
		}
	}
	return len(specs) == 0
}

func (s *pathspec) match(name string) bool {
	if !s.glob {
		return name == s.text || strings.HasPrefix(name, s.text) && name[len(s.text)] == '/'
	}
	for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], '/') {
		if matchesAny([]string{s.text}, name[:end]) {
			return true
		}
	}
	return false
}

// reach reports whether files below a directory, whose name ends in a slash, may be
// selected.
func (specs pathspecs) reach(dir string) bool {
	for i := range specs {
		base := specs[i].base
		if !specs[i].glob {
			base = specs[i].text + "/"
		}
		if strings.HasPrefix(base, dir) || strings.HasPrefix(dir, base) {
			return true
		}
	}
	return len(specs) == 0
}
