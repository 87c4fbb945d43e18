package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// use is what roots are opened for. Captures of one root may run at the same time if they are of different threads; a
// restore is alone with its roots, whatever the thread.
type use string

const (
	capturing use = "capture"
	restoring use = "restore"
	looking   use = "dry run" // of a restore
)

// lock keeps a root until the state is closed, or fails at once with ErrWriterConflict. The lock of a root that is on this
// machine is on its directory too, so that programs of other users, who remember elsewhere, see it.
func (s *state) lock(r Root, use use) error {
	real, how := s.place(r.Path), unix.LOCK_SH
	if use == restoring {
		how = unix.LOCK_EX
	}
	if s.handle == "" {
		dir, err := os.OpenFile(real, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err == nil {
			if err = s.hold(dir, how); err != nil {
				return s.busy(r, "")
			}
		} // else whoever reads the root says what is wrong with it
	}
	if s.dir == "" {
		return nil
	}
	root := &state{dir: s.dir} // of every store and thread
	for _, l := range []struct {
		path string
		how  int
	}{{root.path(".root", real), how}, {s.path(".lock", real), unix.LOCK_EX}} {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fmt.Errorf("open the state of root %q: %w", r.Path, err)
		}
		if err := s.hold(f, l.how); err != nil {
			who, _ := os.ReadFile(l.path)
			return s.busy(r, string(who))
		}
		if err := f.Truncate(0); err == nil {
			_, _ = fmt.Fprintf(f, "the %s of thread %q by process %d", use, s.thread, os.Getpid()) // for the message of others alone
		}
	}
	return nil
}

// hold locks a file, or fails at once while another has it. What the file system cannot lock counts as locked.
func (s *state) hold(f *os.File, how int) error {
	s.locks = append(s.locks, f)
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	return nil
}

func (s *state) busy(r Root, who string) error {
	if who = strings.TrimSpace(who); who == "" {
		who = "another capture or restore"
	}
	return errorf(ErrWriterConflict, "%s is at work in %q; wait until it has ended, and try again", who, r.Path)
}

func (s *state) close() {
	for _, f := range s.locks {
		// A process that is being started may have the file for a moment more: closing it would not be enough.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		f.Close()
	}
}

// openStateWithin is openState for a capture, which waits up to limit while others are at work.
func openStateWithin(ctx context.Context, limit time.Duration, given, store, thread, handle string, roots []Root) (*state, error) {
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		s, err := openState(given, store, thread, handle, roots, capturing)
		if !errors.Is(err, ErrWriterConflict) || time.Since(began)+wait > limit {
			return s, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
