// Package git holds the tests that drive a running Cairn with stock git.
package git
