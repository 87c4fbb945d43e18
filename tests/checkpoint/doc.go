// Package checkpoint tests captures and restores from outside: the built program
// and the Go library against a running server that is killed, delayed and asked
// too late.
package checkpoint
