package testkit

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Resolver looks names up by asking a function, once for each IPv4 look-up. An
// answer without addresses says that the name does not exist.
func Resolver(lookup func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerName(server, lookup) == nil {
			}
		}()
		return client, nil
	}}
}

// Numbers of DNS.
const (
	dnsHeader  = 12 // bytes
	dnsTypeA   = 1
	dnsMissing = 3
)

// answerName answers one DNS query as it is framed over TCP.
func answerName(conn io.ReadWriter, lookup func(string) []netip.Addr) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	var labels []string
	at := dnsHeader
	for query[at] != 0 {
		end := at + 1 + int(query[at])
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	question := query[dnsHeader : at+5]
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if binary.BigEndian.Uint16(query[at+1:]) == dnsTypeA {
		addrs := lookup(strings.Join(labels, "."))
		if len(addrs) == 0 {
			out[3] |= dnsMissing
		}
		out[7] = byte(len(addrs))
		for _, a := range addrs {
			// A pointer to the question's name, type A, class IN, no time to live.
			out = append(out, 0xc0, dnsHeader, 0, dnsTypeA, 0, 1, 0, 0, 0, 0, 0, 4)
			out = append(out, a.AsSlice()...)
		}
	}
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
	return err
}
