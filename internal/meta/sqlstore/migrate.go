package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/cairnstate/cairn/internal/meta"
)

//go:embed migrations
var migrationFiles embed.FS

// migrations says where a dialect's schema comes from.
type migrations struct {
	dialect goose.Dialect
	dir     string
	locked  bool // processes that migrate at once exclude each other by a session lock
}

var (
	sqliteMigrations   = migrations{dialect: goose.DialectSQLite3, dir: "migrations/sqlite"}
	postgresMigrations = migrations{dialect: goose.DialectPostgres, dir: "migrations/postgres", locked: true}
)

// migrate brings the schema up to date. A schema that is newer than this
// program is meta.ErrTooNew. Processes may call it at the same time.
func migrate(ctx context.Context, db *sql.DB, m migrations) error {
	dir, err := fs.Sub(migrationFiles, m.dir)
	if err != nil {
		return err
	}
	opts := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithTableName("schema_version")}
	if m.locked {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
		if err != nil {
			return err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	// Without a session lock the loser of a race finds the winner's tables: it
	// looks again.
	for range 5 {
		var provider *goose.Provider
		if provider, err = goose.NewProvider(m.dialect, db, dir, opts...); err != nil {
			return err
		}
		if err = migrateOnce(ctx, provider); err == nil || errors.Is(err, meta.ErrTooNew) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func migrateOnce(ctx context.Context, provider *goose.Provider) error {
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	if current > target {
		return fmt.Errorf("%w: it has schema version %d, this program knows %d; use a newer program", meta.ErrTooNew, current, target)
	}
	if current == target {
		return nil
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("schema migration: %w", err)
	}
	return nil
}
