// Package upstream holds tests that let Cairn follow repositories of a real git
// http-backend, which a front between the two can hide, break or hold up.
package upstream
