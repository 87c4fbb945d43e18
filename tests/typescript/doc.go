// Package typescript holds the tests that run the TypeScript adapter's own tests:
// alone, and against a running Cairn.
package typescript
