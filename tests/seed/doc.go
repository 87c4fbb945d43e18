// Package seed holds the Go samples of the guide "External Sandbox Integration" as its readers have them, and proves that
// they compile and run against the Cairn SDK with only the import paths and the client package's name changed.
package seed
