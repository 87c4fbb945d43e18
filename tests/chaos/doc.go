// Package chaos holds the tests that hurt a running Cairn: crashes under load, and
// many writers at once.
package chaos
