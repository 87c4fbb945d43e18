package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
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

func describeEvent(e meta.Event, id string) api.Event {
	told := api.Event{ID: id, Type: e.Type, At: stamp(e.At), Payload: e.Body}
	if e.Repo != 0 {
		told.RepoID = service.RepoID(e.Repo)
	}
	if len(e.Body) == 0 {
		told.Payload = json.RawMessage("{}")
	}
	return told
}

func (c *call) listEvents(q api.ListEvents) error {
	source, err := c.Service.EventSource(c.ctx, c.access, q.Repo)
	if err != nil {
		return err
	}
	after, ok := int64(0), true
	if q.After != "" {
		after, ok = source.ParseID(q.After)
	}
	if !ok {
		return invalid("query parameter %q is %.80q: use the id of an event of this stream", "after", q.After)
	}
	if c.wantsStream() {
		return c.streamEvents(source, q.After != "", after)
	}
	rows, next, more, err := source.After(c.ctx, after, pageSize(q.Limit, eventsDefault, eventsMax))
	if err != nil {
		return err
	}
	list := api.EventList{Events: []api.Event{}, NextAfter: source.ID(next), HasMore: more}
	for _, e := range rows {
		list.Events = append(list.Events, describeEvent(e, source.EventID(e)))
	}
	c.header().Add("Vary", "Accept")
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
// with the id of the last event misses none and gets none twice, or is told of a
// gap.
func (c *call) streamEvents(source *service.EventSource, given bool, after int64) error {
	at, err := c.streamStart(source, given, after)
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
	h.Add("Vary", "Accept")
	if err := c.push("retry: 2000\n\n"); err != nil {
		return nil
	}
	beat := time.NewTicker(c.beat())
	defer beat.Stop()
	for {
		text, next, more, err := streamed(c.ctx, source, at)
		if err != nil {
			return err
		}
		at = next
		if text != "" && c.push(text) != nil {
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
			if _, err := c.route.access.open(c.ctx, c.Service, token(c.r), c.place); err != nil {
				return nil // asking again tells why
			}
			if c.push(": still here\n\n") != nil {
				return nil
			}
		}
	}
}

// gapEvent is the type of what a stream says in the place of events that are not
// kept any more.
const gapEvent = "gap"

// streamed returns what a stream says of the next events, where it goes on, and
// whether at once.
func streamed(ctx context.Context, source *service.EventSource, at int64) (text string, next int64, more bool, err error) {
	rows, next, more, err := source.After(ctx, at, streamPage)
	if pruned, ok := errors.AsType[*service.PrunedError](err); ok {
		text, err = streamText(pruned.Next, gapEvent, api.EventGap{After: source.ID(at), NextAfter: pruned.Next})
		return text, pruned.At(), true, err
	}
	var out strings.Builder
	for _, e := range rows {
		id := source.EventID(e)
		text, err := streamText(id, e.Type, describeEvent(e, id))
		if err != nil {
			return "", at, false, err
		}
		out.WriteString(text)
	}
	return out.String(), next, more, err
}

// streamText is one server-sent event.
func streamText(id, kind string, v any) (string, error) {
	data, err := json.Marshal(v)
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, kind, data), err
}

// beat is the time between signs of life: often enough for the idle time that
// clients and proxies are likely to share with the server.
func (c *call) beat() time.Duration { return min(streamBeat, c.IdleTimeout/2) }

// streamStart is the place that a stream starts after.
func (c *call) streamStart(source *service.EventSource, given bool, after int64) (int64, error) {
	if last := strings.TrimSpace(c.r.Header.Get("Last-Event-ID")); last != "" {
		at, ok := source.ParseID(last)
		if !ok {
			return 0, invalid("header Last-Event-ID is %.80q: use the id of an event of this stream", last)
		}
		return at, nil
	}
	if given {
		return after, nil
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
