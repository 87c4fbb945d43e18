// Package hostile holds the tests that attack a running Cairn from outside: what
// nobody may read, what nobody may change, forged tokens and bad input.
package hostile
