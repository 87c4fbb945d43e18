// Package quota tests limits with the built program: uploads that are refused,
// that break off, whose server is killed, and counts that are made anew during work.
package quota
