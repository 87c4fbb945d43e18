// Package webhooks holds tests of the event stream and of webhooks against the
// built program: what clients and receivers see while receivers fail, servers
// are killed, and several nodes share one storage.
package webhooks
