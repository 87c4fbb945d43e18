package writes_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/cairnstate/cairn/tests/stack"
)

// kind says how a column is listed.
type kind int

const (
	text    kind = iota
	number       // small, and the same in every run
	whether      // "yes" when it is not zero, for times

	// Of these a label is listed.
	orgID
	repoID
	packID
	packIDs
	setID
	blobKey
	process
	oneID   // of an object
	someIDs // of objects
	threadID
	segmentID
	uploadID  // of objects of checkpoints
	contentID // of a pack, an index file or a list
)

type column struct {
	name string
	kind kind
}

// table says which columns of a table are listed. The first keys ones name a row.
type table struct {
	keys    int
	order   string
	columns []column
}

// tables has every table of the schema. In their order labels are given.
var tables = map[string]table{
	"orgs":        {1, "id", []column{{"id", orgID}, {"name", text}, {"key_version", number}}},
	"org_keys":    {2, "org, fingerprint", []column{{"org", orgID}, {"kid", text}}},
	"floors":      {4, "org, kind, repo, target", []column{{"org", orgID}, {"kind", number}, {"repo", repoID}, {"target", text}, {"not_before", number}}},
	"repos":       {1, "id", []column{{"id", repoID}, {"name", text}, {"version", number}, {"pack_set", setID}, {"tidy", number}, {"source", repoID}, {"deleted_at", whether}}},
	"refs":        {2, "repo, name", []column{{"repo", repoID}, {"name", text}, {"id", oneID}, {"peeled", oneID}}},
	"ref_log":     {3, "repo, version, name", []column{{"repo", repoID}, {"version", number}, {"name", text}, {"old_id", oneID}, {"new_id", oneID}}},
	"protections": {2, "repo, place", []column{{"repo", repoID}, {"place", number}, {"pattern", text}}},
	"pack_sets":   {1, "id", []column{{"id", setID}, {"repos", number}, {"packs", packIDs}}},
	"packs": {1, "id", []column{{"id", packID}, {"class", number}, {"inline", number}, {"exact", number}, {"sets", number}, {"objects", number},
		{"blob_key", blobKey}, {"tips", someIDs}, {"boundary", someIDs}}},
	"small_packs":  {1, "pack", []column{{"pack", packID}}},
	"events":       {1, "position", []column{{"position", number}, {"repo", repoID}, {"version", number}, {"type", text}}},
	"idempotency":  {2, "org, idem_key", []column{{"org", orgID}, {"idem_key", text}, {"status", number}}},
	"reservations": {1, "at", []column{{"org", orgID}, {"repo", repoID}, {"bytes", number}}},
	"uploads":      {1, "at", []column{{"blob_key", blobKey}}},
	"processes":    {1, "id", []column{{"id", process}, {"oldest", whether}}},
	"retired":      {1, "at, blob_key", []column{{"blob_key", blobKey}}},

	"audit":              {4, "org, at, id", []column{{"org", orgID}, {"repo", repoID}, {"action", text}, {"detail", text}}},
	"signing_keys":       {2, "org, fingerprint", []column{{"org", orgID}, {"kind", text}}},
	"webhooks":           {1, "id", []column{{"url", text}, {"repo", repoID}, {"position", number}}},
	"webhook_deliveries": {2, "webhook, position", []column{{"position", number}, {"state", number}}},
	"credentials":        {1, "id", []column{{"repo", repoID}, {"username", text}}},
	"upstreams":          {1, "repo", []column{{"repo", repoID}, {"host", text}, {"owner", text}, {"name", text}}},
	"syncs":              {1, "id", []column{{"repo", repoID}, {"attempts", number}}},
	"event_floors":       {2, "org, repo", []column{{"org", orgID}, {"repo", repoID}, {"last", number}}},

	"threads": {2, "org, name", []column{{"org", orgID}, {"name", text}, {"id", threadID}, {"head", text}, {"checkpoints", number}, {"bytes", number},
		{"fence", number}, {"lease_until", whether}, {"dirty", number}, {"known", number}}},
	"checkpoints": {2, "org, thread, seq", []column{{"org", orgID}, {"id", text}, {"thread", threadID}, {"seq", number}, {"parent", text}, {"label", text},
		{"pinned", whether}, {"added", number}, {"manifest", number}}},
	"thread_segments": {2, "thread, id", []column{{"thread", threadID}, {"id", segmentID}, {"org", orgID}, {"entries", number}, {"ref", oneID}}},
	"large_blobs":     {2, "org, size", []column{{"org", orgID}, {"sum", oneID}, {"recipe", oneID}, {"size", number}, {"put_at", whether}}},
	"content_orgs":    {1, "org", []column{{"org", orgID}, {"version", number}, {"generation", number}}},
	"content_packs": {2, "org, created_at, objects", []column{{"org", orgID}, {"id", contentID}, {"state", number}, {"in_index", contentID},
		{"blob_key", blobKey}, {"objects", number}}},
	"content_data":    {2, "org, id", []column{{"org", orgID}, {"id", contentID}}},
	"content_indexes": {2, "org, id", []column{{"org", orgID}, {"id", contentID}, {"blob_key", blobKey}, {"objects", number}, {"packs", number}}},
	"content_uploads": {2, "org, begun_at", []column{{"org", orgID}, {"id", uploadID}, {"thread", text}}},
	"content_lists": {3, "org, upload, id", []column{{"org", orgID}, {"upload", uploadID}, {"id", contentID}, {"blob_key", blobKey},
		{"objects", number}}},
}

// tableOrder is the order in which tables are listed: what says what exists
// comes first, so that labels are given in it.
var tableOrder = []string{
	"orgs", "org_keys", "floors", "repos", "packs", "small_packs", "pack_sets", "refs", "ref_log", "protections", "events", "idempotency",
	"uploads", "reservations", "retired", "processes", "audit", "signing_keys", "webhooks", "webhook_deliveries", "credentials", "upstreams", "syncs",
	"event_floors", "threads", "checkpoints", "thread_segments", "large_blobs", "content_orgs", "content_packs", "content_data", "content_indexes",
	"content_uploads", "content_lists",
}

// labels name what has a random or long identifier by its order of appearance.
type labels struct {
	given map[string]string
	count map[string]int
}

func newLabels() labels { return labels{make(map[string]string), make(map[string]int)} }

func (l labels) of(prefix, id string) string {
	known, ok := l.given[prefix+id]
	if !ok {
		l.count[prefix]++
		known = fmt.Sprintf("%s%d", prefix, l.count[prefix])
		l.given[prefix+id] = known
	}
	return known
}

// key returns the label of a blob key, which may have a suffix.
func (l labels) key(key string) string {
	base, suffix, found := strings.Cut(key, ".")
	if found {
		suffix = "." + suffix
	}
	return l.of("key", base) + suffix
}

// show returns a value as it is listed.
func (l labels) show(k kind, v any) (string, error) {
	if n, ok := v.(int64); ok {
		return l.number(k, n), nil
	}
	b, ok := v.([]byte)
	if !ok {
		return "", fmt.Errorf("value %v has type %T", v, v)
	}
	switch {
	case len(b) == 0:
		return "-", nil
	case k == blobKey:
		return l.key(string(b)), nil
	case k == process:
		return l.of("process", string(b)), nil
	case k == oneID:
		return l.of("obj", string(b)), nil
	case k == uploadID:
		return l.of("upload", string(b)), nil
	case k == contentID:
		if len(bytes.Trim(b, "\x00")) == 0 {
			return "-", nil
		}
		return l.of("content", string(b)), nil
	case k == packIDs:
		return l.packs(b), nil
	case k == someIDs:
		return l.objects(b), nil
	}
	return string(b), nil
}

func (l labels) number(k kind, n int64) string {
	if prefix := map[kind]string{orgID: "org", repoID: "repo", packID: "pack", setID: "set", threadID: "thread", segmentID: "segment"}[k]; prefix != "" && n != 0 {
		return l.of(prefix, strconv.FormatInt(n, 10))
	} else if prefix != "" {
		return "-"
	}
	if k == whether && n != 0 {
		return "yes"
	}
	return strconv.FormatInt(n, 10)
}

// packs lists the ids of packs, 8 bytes each.
func (l labels) packs(b []byte) string {
	var names []string
	for id := range slices.Chunk(b, 8) {
		names = append(names, l.of("pack", strconv.FormatUint(binary.BigEndian.Uint64(id), 10)))
	}
	return shorten(names)
}

// objects lists the ids of objects, which follow their length in one byte.
func (l labels) objects(b []byte) string {
	ids := slices.Collect(slices.Chunk(b[1:], int(b[0])))
	slices.SortFunc(ids, bytes.Compare) // they are stored in no order
	var names []string
	for _, id := range ids {
		names = append(names, l.of("obj", string(id)))
	}
	return shorten(names)
}

// shorten writes names as a list, many of them by their number.
func shorten(names []string) string {
	if n := len(names); n > 4 {
		return fmt.Sprintf("%s,...,%s(%d)", names[0], names[n-1], n)
	}
	return strings.Join(names, ",")
}

// row is a row with its columns as they are listed.
type row struct{ values []string }

// state is everything that is stored.
type state struct {
	rows  map[string]map[string]row // by table, by key
	order map[string][]string       // the keys of a table in its order
	blobs []string
}

// read reads everything that is stored, and fails at a table that it does not
// know.
func read(db *sql.DB, s *stack.Stack, l labels) (*state, error) {
	if err := knowsAll(db); err != nil {
		return nil, err
	}
	st := &state{rows: make(map[string]map[string]row), order: make(map[string][]string)}
	for _, name := range tableOrder {
		if err := st.table(db, l, name); err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	for info, err := range s.Blobs.List(context.Background(), "") {
		if err != nil {
			return nil, err
		}
		st.blobs = append(st.blobs, string(info.Key))
	}
	for i, key := range st.blobs {
		st.blobs[i] = l.key(key)
	}
	slices.Sort(st.blobs)
	return st, nil
}

// knowsAll fails unless the tables of the database are those of tables.
func knowsAll(db *sql.DB) error {
	list := `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != 'schema_version' ORDER BY name`
	if _, sqlite := db.Driver().(*driver.SQLite); !sqlite {
		list = `SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT IN ('schema_version', 'event_head') ORDER BY tablename::text COLLATE "C"`
	}
	rows, err := db.Query(list)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	if want := slices.Sorted(maps.Keys(tables)); !slices.Equal(names, want) || len(tableOrder) != len(want) {
		return fmt.Errorf("the database has the tables %q, the listing %q", names, want)
	}
	return rows.Err()
}

func (st *state) table(db *sql.DB, l labels, name string) error {
	t := tables[name]
	st.rows[name] = make(map[string]row)
	var names []string
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	rows, err := db.Query("SELECT " + strings.Join(names, ", ") + " FROM " + name + " ORDER BY " + t.order)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		got, into := make([]any, len(names)), make([]any, len(names))
		for i := range got {
			into[i] = &got[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		var r row
		for i, c := range t.columns {
			shown, err := l.show(c.kind, got[i])
			if err != nil {
				return fmt.Errorf("column %s: %w", c.name, err)
			}
			r.values = append(r.values, shown)
		}
		key := strings.Join(r.values[:t.keys], " ")
		st.rows[name][key] = r
		st.order[name] = append(st.order[name], key)
	}
	switch name { // rows of one time, and of random ids, are in no order
	case "retired", "content_data", "content_lists", "content_uploads", "thread_segments":
		slices.Sort(st.order[name])
	}
	return rows.Err()
}

// since lists what was added (+), removed (-) and changed (~) since another
// state. Of many rows of one table that went or came alike the first is listed.
func (st *state) since(old *state) string {
	var b strings.Builder
	for _, name := range tableOrder {
		var plus, minus, changed []string
		for _, key := range st.order[name] {
			now := st.rows[name][key]
			was, ok := old.rows[name][key]
			switch {
			case !ok:
				plus = append(plus, now.show(name))
			case !slices.Equal(was.values, now.values):
				changed = append(changed, now.change(name, was))
			}
		}
		for _, key := range old.order[name] {
			if _, ok := st.rows[name][key]; !ok {
				minus = append(minus, old.rows[name][key].show(name))
			}
		}
		group(&b, "-", name, minus)
		group(&b, "~", name, changed)
		group(&b, "+", name, plus)
	}
	group(&b, "-", "blobs", without(old.blobs, st.blobs))
	group(&b, "+", "blobs", without(st.blobs, old.blobs))
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// maxListed is how many rows of one table are listed; of more the first is.
const maxListed = 9

func group(b *strings.Builder, sign, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "%s %s: %d\n", sign, name, len(lines))
	for i, line := range lines {
		if len(lines) > maxListed && i == 1 {
			fmt.Fprintf(b, "    ...\n")
			return
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}

func (r row) show(name string) string {
	t := tables[name]
	var parts []string
	for i, c := range t.columns {
		if i == 0 && c.kind != number && c.kind != text {
			parts = append(parts, r.values[i]) // the label tells what it is
		} else {
			parts = append(parts, c.name+"="+r.values[i])
		}
	}
	return strings.Join(parts, " ")
}

// change shows the key of a row and the columns that are not as they were.
func (r row) change(name string, was row) string {
	t := tables[name]
	parts := []string{strings.Join(r.values[:t.keys], " ")}
	for i, c := range t.columns {
		if r.values[i] != was.values[i] {
			parts = append(parts, fmt.Sprintf("%s=%s>%s", c.name, was.values[i], r.values[i]))
		}
	}
	return strings.Join(parts, " ")
}
