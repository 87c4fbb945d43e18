// Package clients holds the tests that drive a running Cairn with published
// clients: the Code Storage SDK, and Git implementations other than git.
package clients
