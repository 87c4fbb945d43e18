package config

import (
	"errors"
	"strings"
	"testing"
)

// TestUnknownVariables: what begins with CAIRN_ and is no setting is refused by
// its name; its value is not told.
func TestUnknownVariables(t *testing.T) {
	load := func(names ...string) error {
		_, err := Load(Source{
			Flags: map[string]string{"data": t.TempDir()}, Getenv: func(string) string { return "" }, Environ: func() []string { return names },
		})
		return err
	}
	for _, name := range []string{"CAIRN_LISTENN", "CAIRN_", "CAIRN_listen", "CAIRN_LISTEN_FILE", "CAIRN_PORT_FORWARD", "CAIRN_PORT_80", "CAIRN_SERVICE_HOSTS", "CAIRN_MAXPUSH"} {
		usage, ok := errors.AsType[*UsageError](load("PATH", "CAIRN_LISTEN", name))
		if !ok || usage.Setting != name {
			t.Errorf("%s: %v", name, usage)
		}
	}
	known := append([]string{
		"PATH", "CAIRNS", "PIERRE_ORG", "CAIRN_SECRET_KEY", "CAIRN_SECRET_KEY_FILE", "CAIRN_DATABASE_URL_FILE", "CAIRN_CONFIG",
		"CAIRN_PORT", "CAIRN_PORT_8080_TCP", "CAIRN_PORT_8080_TCP_ADDR", "CAIRN_SERVICE_HOST", "CAIRN_SERVICE_PORT", "CAIRN_SERVICE_PORT_HTTP",
	}, ClientVariables...)
	for _, s := range Settings {
		known = append(known, "CAIRN_"+strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")))
	}
	if err := load(known...); err != nil {
		t.Error(err)
	}
}
