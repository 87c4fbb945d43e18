// Package gitdiff holds the differential tests: whatever stock git gets from
// Cairn, it must get from git http-backend serving the same repository.
package gitdiff
