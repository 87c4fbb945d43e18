//go:build tools

// Package tools pins the programs that the lint tests run.
package tools

import _ "honnef.co/go/tools/cmd/staticcheck"
