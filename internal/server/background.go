package server

import (
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/upstream"
	"github.com/cairnstate/cairn/internal/webhook"
)

// countBackground exports what the engine, the webhooks and the syncs do that no
// request waits for.
func (s *Server) countBackground() {
	for _, c := range []struct {
		name, help string
		of         func(repo.BackgroundFigures) int64
	}{
		{"cairn_folds_total", "Times that the last packs of a repository were put together.", func(f repo.BackgroundFigures) int64 { return f.Folds }},
		{"cairn_repacks_total", "Times that a repository was repacked or garbage dropped.", func(f repo.BackgroundFigures) int64 { return f.Repacks }},
		{"cairn_compaction_failures_total", "Folds and repacks that failed; they are tried again.", func(f repo.BackgroundFigures) int64 { return f.Failures }},
		{"cairn_packs_replaced_total", "Packs that compaction replaced.", func(f repo.BackgroundFigures) int64 { return f.PacksReplaced }},
		{"cairn_packs_made_total", "Packs that compaction made in their place.", func(f repo.BackgroundFigures) int64 { return f.PacksMade }},
		{"cairn_packs_replaced_bytes_total", "Bytes of packs that compaction replaced.", func(f repo.BackgroundFigures) int64 { return f.BytesReplaced }},
		{"cairn_packs_made_bytes_total", "Bytes of packs that compaction made.", func(f repo.BackgroundFigures) int64 { return f.BytesMade }},
		{"cairn_garbage_bytes_total", "Bytes found unreachable and kept for their grace.", func(f repo.BackgroundFigures) int64 { return f.GarbageBytes }},
		{"cairn_garbage_dropped_bytes_total", "Bytes of garbage dropped after its grace.", func(f repo.BackgroundFigures) int64 { return f.DroppedBytes }},
		{"cairn_pruned_events_total", "Events that were dropped because they had been kept for long enough.", func(f repo.BackgroundFigures) int64 { return f.PrunedEvents }},
		{"cairn_swept_packs_total", "Replaced packs whose bytes were removed.", func(f repo.BackgroundFigures) int64 { return f.SweptPacks }},
		{"cairn_swept_uploads_total", "Abandoned uploads whose bytes were removed.", func(f repo.BackgroundFigures) int64 { return f.SweptUploads }},
	} {
		s.metrics.Count(c.name, c.help, func() int64 { return c.of(s.storage.Engine.Background()) })
	}
	s.countContent()
	for _, c := range []struct {
		name, help string
		gauge      bool
		of         func(webhook.Figures) int64
	}{
		{"cairn_webhook_attempts_total", "Attempts to deliver events to webhooks.", false, func(f webhook.Figures) int64 { return f.Attempts }},
		{"cairn_webhook_failures_total", "Attempts to deliver events to webhooks that failed; they are made again.", false, func(f webhook.Figures) int64 { return f.Failures }},
		{"cairn_webhook_given_up_total", "Events whose last attempt at a webhook failed.", false, func(f webhook.Figures) int64 { return f.GivenUp }},
		{"cairn_webhook_disabled_total", "Webhooks disabled because they failed for too long.", false, func(f webhook.Figures) int64 { return f.Disabled }},
		{"cairn_webhook_backlog", "Events that wait at webhooks, as far as this process looked ahead.", true, func(f webhook.Figures) int64 { return f.Backlog }},
		{"cairn_webhook_lag_seconds", "Age of the oldest event that waits at a webhook of this process.", true, func(f webhook.Figures) int64 { return f.Lag }},
	} {
		export := s.metrics.Count
		if c.gauge {
			export = s.metrics.Gauge
		}
		export(c.name, c.help, func() int64 { return c.of(s.webhooks.Figures()) })
	}
	for _, c := range []struct {
		name, help string
		of         func(upstream.Figures) int64
	}{
		{"cairn_syncs_started_total", "Syncs with upstreams that began here; one that is tried again counts again.", func(f upstream.Figures) int64 { return f.Started }},
		{"cairn_syncs_succeeded_total", "Syncs with upstreams that succeeded here.", func(f upstream.Figures) int64 { return f.Succeeded }},
		{"cairn_syncs_failed_total", "Syncs with upstreams that failed here.", func(f upstream.Figures) int64 { return f.Failed }},
		{"cairn_sync_seconds_total", "Seconds that syncs took that ended here.", func(f upstream.Figures) int64 { return int64(f.Took.Seconds()) }},
	} {
		s.metrics.Count(c.name, c.help, func() int64 { return c.of(s.upstreams.Figures()) })
	}
}

// countContent exports what is done to the objects of checkpoints that no request
// waits for.
func (s *Server) countContent() {
	for _, c := range []struct {
		name, help string
		gauge      bool
		of         func(content.Figures) int64
	}{
		{"cairn_content_packs_folded_total", "Small packs of checkpoint objects that were put together.", false, func(f content.Figures) int64 { return f.Folded }},
		{"cairn_content_packs_indexed_total", "Packs of checkpoint objects that got an index file.", false, func(f content.Figures) int64 { return f.Indexed }},
		{"cairn_content_packs_condemned_total", "Packs of checkpoint objects found to hold much that nothing refers to.", false, func(f content.Figures) int64 { return f.Condemned }},
		{"cairn_content_packs_rescued_total", "Condemned packs of which something was referred to again, and was copied.", false, func(f content.Figures) int64 { return f.Rescued }},
		{"cairn_content_packs_removed_total", "Packs of checkpoint objects that sweeps removed.", false, func(f content.Figures) int64 { return f.Swept }},
		{"cairn_content_removed_bytes_total", "Bytes of packs of checkpoint objects that sweeps removed.", false, func(f content.Figures) int64 { return f.SweptBytes }},
		{"cairn_content_scrubbed_packs_total", "Packs of checkpoint objects whose bytes were read again.", false, func(f content.Figures) int64 { return f.Scrubbed }},
		{"cairn_content_scrubbed_bytes_total", "Bytes of checkpoint objects that were read again.", false, func(f content.Figures) int64 { return f.ScrubbedBytes }},
		{"cairn_content_damaged_objects_total", "Checkpoint objects found not to be whole.", false, func(f content.Figures) int64 { return f.Broken }},
		{"cairn_content_missing_objects", "Checkpoint objects that something refers to and that are missing, as the last sweeps here found.", true, func(f content.Figures) int64 { return f.Missing }},
		{"cairn_content_failures_total", "Failures of background work on checkpoint objects; it is tried again.", false, func(f content.Figures) int64 { return f.Failures }},
	} {
		export := s.metrics.Count
		if c.gauge {
			export = s.metrics.Gauge
		}
		export(c.name, c.help, func() int64 { return c.of(s.storage.Content.Figures()) })
	}
}
