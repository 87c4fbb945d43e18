// Package writes lists every row and every object that each kind of write
// creates, changes and removes, and compares the lists with testdata.
package writes
