package repo

import (
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Meta and ODB return what an engine stands on.
func (e *Engine) Meta() meta.Store { return e.cfg.Meta }
func (e *Engine) ODB() *odb.Store  { return e.cfg.ODB }
