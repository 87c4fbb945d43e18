package server

import "syscall"

const (
	// maxUnsent is how many bytes of an answer wait in the kernel, beside those that
	// are under way to the client.
	maxUnsent = 256 << 10
	// tcpNotsentLowat is the TCP_NOTSENT_LOWAT option.
	tcpNotsentLowat = 25
)

// limitUnsent keeps the kernel from taking megabytes of an answer and then nothing
// until a third of them has left: to a slow client that can last longer than the
// idle timeout, although it reads all the time. Accepted connections inherit it.
func limitUnsent(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, maxUnsent)
	}); failed != nil {
		return failed
	}
	return err
}
