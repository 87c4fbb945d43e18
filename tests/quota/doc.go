// Package quota tests limits with the built program: uploads that are refused,
// that break off, and whose server is killed.
package quota
