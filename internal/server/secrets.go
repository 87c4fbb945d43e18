package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/service"
)

// secretKeyFile holds the key for secrets beside an embedded database.
const secretKeyFile = "secret.key"

// openSecrets reads the keys for secrets. With an embedded database a key is
// made when there is none; a database elsewhere may serve several nodes, which
// must be given the same key, so none is made and the ring is nil.
func openSecrets(cfg config.Config) (*secret.Keyring, error) {
	text := cfg.SecretKeys
	if text == nil {
		if cfg.DatabaseURL != "" {
			return nil, nil
		}
		var err error
		if text, err = ownKey(filepath.Join(cfg.Data, secretKeyFile)); err != nil {
			return nil, err
		}
	}
	ring, err := secret.Parse(text)
	if err != nil {
		return nil, &config.UsageError{Setting: "secret-key-file", Reason: err.Error()}
	}
	return ring, nil
}

// ownKey returns the text of the key file at path and makes it when it is not
// there. Of several processes that make it at once one wins; all read the same.
func ownKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return text, wrapKey(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), secretKeyFile+".*") // mode 0600
	if err != nil {
		return nil, wrapKey(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(secret.Generate())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, wrapKey(err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, wrapKey(err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, wrapKey(err)
	}
	text, err = os.ReadFile(path)
	return text, wrapKey(err)
}

// resealWebhooks encrypts the secrets of webhooks with the first key.
func (s *Server) resealWebhooks(ctx context.Context) {
	made, left, err := s.storage.Endpoints().Reseal(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.Error("encrypt webhook secrets with the first key", "err", err)
	case made > 0 || left > 0:
		s.log.Info("webhook secrets encrypted with the first key", "count", made, "left", left)
	}
}

// resealServerKeys encrypts the keys that the server signs with with the first key.
func (s *Server) resealServerKeys(ctx context.Context) {
	made, left, err := (&service.Operator{Meta: s.storage.Meta, Secrets: s.storage.Secrets}).ResealServerKeys(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.Error("encrypt the keys to sign with with the first key", "err", err)
	case made > 0 || left > 0:
		s.log.Info("keys to sign with encrypted with the first key", "count", made, "left", left)
	}
}

func wrapKey(err error) error {
	if err != nil {
		err = fmt.Errorf("the key for secrets: %w", err)
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
