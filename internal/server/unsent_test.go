//go:build linux

package server

import (
	"net"
	"testing"
	"time"
)

// TestSlowReaderIsNotIdle writes to a client that reads slowly but all the time, as
// a stream does: each piece has to be taken within an idle time.
func TestSlowReaderIsNotIdle(t *testing.T) {
	const idle, piece, pieces, rate = time.Second, 64 << 10, 80, 600 << 10 // bytes a second
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		b := make([]byte, 16<<10)
		for start, got := time.Now(), 0; ; {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			got += n
			time.Sleep(time.Until(start.Add(time.Duration(got) * time.Second / rate)))
		}
	}()
	for i := range pieces {
		if err := conn.SetWriteDeadline(time.Now().Add(idle)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(make([]byte, piece)); err != nil {
			t.Fatalf("piece %d: %v", i, err)
		}
	}
}
