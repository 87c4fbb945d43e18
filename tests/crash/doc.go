// Package crash takes the power from under Cairn, and fails each call of its file
// system in turn, while it works.
package crash
