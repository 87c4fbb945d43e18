// Package linear checks that what many clients see of refs at the same time is
// what one after the other could have seen, and that events tell it.
package linear
