package checkpoint

// Handle is a sandbox.
type Handle interface{ ID() string }
