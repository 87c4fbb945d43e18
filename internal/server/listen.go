package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// listen takes the TCP address that clients use.
func listen(address string) (net.Listener, error) {
	conf := net.ListenConfig{Control: limitUnsent}
	conf.SetMultipathTCP(false) // which does not pass the limit on to connections
	return conf.Listen(context.Background(), "tcp", address)
}

// tlsRecord is the first byte of a TLS connection (a handshake record); no HTTP
// request begins with it.
const tlsRecord = 0x16

// firstByteWait bounds how long a connection may stay silent before its kind is
// known.
const firstByteWait = 30 * time.Second

// eitherListener serves TLS and plain HTTP on one port: the first byte of a
// connection decides. It is for development; a server with a certificate of its
// own serves TLS only.
type eitherListener struct {
	net.Listener
	config *tls.Config

	conns chan net.Conn
	fail  chan error
	done  chan struct{}
	once  sync.Once
}

func listenEither(l net.Listener, config *tls.Config) net.Listener {
	e := &eitherListener{Listener: l, config: config, conns: make(chan net.Conn), fail: make(chan error, 1), done: make(chan struct{})}
	go e.run()
	return e
}

// run accepts connections and sorts each in a goroutine of its own, so that a
// silent client does not hold up the others.
func (e *eitherListener) run() {
	for {
		c, err := e.Listener.Accept()
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				continue
			}
			e.fail <- err
			return
		}
		go e.sort(c)
	}
}

func (e *eitherListener) sort(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(firstByteWait))
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	var sorted net.Conn = &peekedConn{Conn: c, r: r}
	if first[0] == tlsRecord {
		sorted = tls.Server(sorted, e.config)
	}
	select {
	case e.conns <- sorted:
	case <-e.done:
		c.Close()
	}
}

func (e *eitherListener) Accept() (net.Conn, error) {
	select {
	case c := <-e.conns:
		return c, nil
	case err := <-e.fail:
		return nil, err
	case <-e.done:
		return nil, net.ErrClosed
	}
}

func (e *eitherListener) Close() error {
	e.once.Do(func() { close(e.done) })
	return e.Listener.Close()
}

// peekedConn reads first what was looked at.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *peekedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
