package rest

import (
	"encoding/json"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

// Sizes of pages of events.
const (
	eventsDefault = 100
	eventsMax     = 1000
)

// Bounds of streams of events.
const (
	streamBeat   = 15 * time.Second // between signs of life; the token is then checked anew
	streamPage   = 100              // events read at once
	maxStreams   = 1024             // of the process
	maxOrgStream = 128              // of one org
)

const eventStream = "text/event-stream"

func describeEvent(e meta.Event) api.Event {
	told := api.Event{ID: strconv.FormatInt(e.Position, 10), Type: e.Type, At: stamp(e.At), Payload: e.Body}
	if e.Repo != 0 {
		told.RepoID = service.RepoID(e.Repo)
	}
	if len(e.Body) == 0 {
		told.Payload = json.RawMessage("{}")
	}
	return told
}

func (c *call) listEvents(q api.ListEvents) error {
	if q.After != nil && *q.After < 0 {
		return invalid("query parameter %q is %d: use the id of an event", "after", *q.After)
	}
	source, err := c.Service.EventSource(c.ctx, c.access, q.Repo)
	if err != nil {
		return err
	}
	if c.wantsStream() {
		return c.streamEvents(source, q.After)
	}
	after := int64(0)
	if q.After != nil {
		after = *q.After
	}
	rows, next, more, err := source.After(c.ctx, after, pageSize(q.Limit, eventsDefault, eventsMax))
	if err != nil {
		return err
	}
	list := api.EventList{Events: []api.Event{}, NextAfter: strconv.FormatInt(next, 10), HasMore: more}
	for _, e := range rows {
		list.Events = append(list.Events, describeEvent(e))
	}
	c.header().Set("Vary", "Accept")
	return c.answer(200, list)
}

// wantsStream reports whether the request names the type of event streams.
func (c *call) wantsStream() bool {
	for part := range strings.SplitSeq(strings.Join(c.r.Header.Values("Accept"), ","), ",") {
		if kind, _, err := mime.ParseMediaType(strings.TrimSpace(part)); err == nil && kind == eventStream {
			return true
		}
	}
	return false
}

// streams counts the streams that are open.
type streams struct {
	mu   sync.Mutex
	orgs map[meta.OrgID]int
	all  int
}

// open counts one more stream of an org, unless there are too many. done must
// then be called.
func (s *streams) open(org meta.OrgID) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.orgs[org] >= maxOrgStream {
		return nil, false
	}
	if s.orgs == nil {
		s.orgs = make(map[meta.OrgID]int)
	}
	s.all++
	s.orgs[org]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.orgs[org]--; s.orgs[org] == 0 {
			delete(s.orgs, org)
		}
	}, true
}

// streamEvents sends events as they happen, until the client leaves or takes
// nothing, its token is refused, or the server stops. A client that comes back
// with the id of the last event misses none and gets none twice.
func (c *call) streamEvents(source *service.EventSource, after *int64) error {
	at, err := c.streamStart(source, after)
	if err != nil {
		return err
	}
	done, ok := c.streams.open(c.access.Org.ID)
	if !ok {
		return service.Refuse(service.Limited, "too many event streams are open: close some, or read pages")
	}
	defer done()
	wake := make(chan struct{}, 1)
	defer source.Watch(wake)()
	h := c.header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Vary", "Accept")
	if err := c.push("retry: 2000\n\n"); err != nil {
		return nil
	}
	beat := time.NewTicker(c.beat())
	defer beat.Stop()
	for {
		rows, next, more, err := source.After(c.ctx, at, streamPage)
		if err != nil {
			return err
		}
		at = next
		var text strings.Builder
		for _, e := range rows {
			data, err := json.Marshal(describeEvent(e))
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "id: %d\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
		}
		if text.Len() > 0 && c.push(text.String()) != nil {
			return nil // the client is gone, or takes nothing
		}
		if more {
			continue
		}
		select {
		case <-c.ctx.Done():
			return nil
		case <-c.Stopping:
			return nil
		case <-wake:
		case <-beat.C:
			if _, err := c.route.access.open(c.ctx, c.Service, token(c.r), c.name); err != nil {
				return nil // asking again tells why
			}
			if c.push(": still here\n\n") != nil {
				return nil
			}
		}
	}
}

// beat is the time between signs of life: often enough for the idle time that
// clients and proxies are likely to share with the server.
func (c *call) beat() time.Duration { return min(streamBeat, c.IdleTimeout/2) }

// streamStart is the position that a stream starts after.
func (c *call) streamStart(source *service.EventSource, after *int64) (int64, error) {
	if last := strings.TrimSpace(c.r.Header.Get("Last-Event-ID")); last != "" {
		at, err := strconv.ParseInt(last, 10, 64)
		if err != nil || at < 0 {
			return 0, invalid("header Last-Event-ID is %.40q: use the id of an event", last)
		}
		return at, nil
	}
	if after != nil {
		return *after, nil
	}
	return source.Last(c.ctx)
}

// push writes a piece of a stream and pushes it out. The client has the idle
// time for taking it, and no limit until the next piece.
func (c *call) push(text string) error {
	c.writeAt = time.Time{}
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	if err := c.control.Flush(); err != nil {
		return err
	}
	return c.control.SetWriteDeadline(time.Time{})
}
