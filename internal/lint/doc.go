// Package lint holds the rules of the source tree as tests: which package may
// import which, what every package documents, and what the analysers say.
package lint
