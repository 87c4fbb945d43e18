package netguard

import "net/netip"

// notPublic lists what is inside the ranges of global addresses and still leads
// to the server's own machine or network, to its provider's services, or
// nowhere.
var notPublic = prefixes(
	"0.0.0.0/8",         // this host
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // shared by a provider's customers; metadata of Alibaba Cloud
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // Azure's own services
	"169.254.0.0/16",    // link-local; metadata of most clouds
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments; metadata of Oracle Cloud
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, broadcast
	"2001::/23",         // protocol assignments, Teredo
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: any IPv4 address inside
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

var (
	global6 = netip.MustParsePrefix("2000::/3")
	// nat64 addresses lead to the IPv4 address in their last four bytes.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParsePrefix(t)
	}
	return list
}

// IsPublic reports whether an address is on the public network: global unicast,
// and nothing that is private, local, shared, reserved, a cloud's metadata
// service, or a form that stands for such an address.
func IsPublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is6() && !global6.Contains(a) {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
