// Package model does random things to repositories and to bare ones of git, and
// compares them.
package model
