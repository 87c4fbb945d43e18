// Package clients holds the tests that drive a running Cairn with published
// clients: every method of the Code Storage SDKs, and Git implementations other
// than git. The calls of the SDK for Go, which is not published, are replayed.
package clients
