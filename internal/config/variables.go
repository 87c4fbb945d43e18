package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ClientVariables are those that client commands and libraries read, that
// `cairn dev` tells, and that the tests read.
var ClientVariables = []string{
	"CAIRN_URL", "CAIRN_ORG", "CAIRN_TOKEN", "CAIRN_TOKEN_FILE", "CAIRN_PRIVATE_KEY", "CAIRN_PRIVATE_KEY_FILE", "CAIRN_THREAD", "CAIRN_STATE_DIR",
	"CAIRN_TLS_URL", "CAIRN_CA_BUNDLE",
	"CAIRN_BIN", "CAIRN_SEED", "CAIRN_SOAK", "CAIRN_TEST_VERSITYGW",
}

// linked matches the variables that an orchestrator gives every container for a
// service that is named cairn.
var linked = regexp.MustCompile(`^CAIRN_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// checkVariables refuses a variable that looks like a setting and is none: a
// setting that silently does nothing is a fault of the configuration.
func checkVariables(src Source) error {
	if src.Environ == nil {
		return nil
	}
	known := map[string]bool{"CAIRN_SECRET_KEY": true}
	for _, name := range ClientVariables {
		known[name] = true
	}
	for _, s := range Settings {
		known[s.Variable()] = true
		if s.Secret {
			known[s.Variable()+"_FILE"] = true
		}
	}
	names := src.Environ()
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, "CAIRN_") && !known[name] && !linked.MatchString(name) {
			return &UsageError{fmt.Sprintf("%.80s", name), "unknown setting: see `cairn serve --help`"}
		}
	}
	return nil
}
