package link

// Kinds of links, as the kernel calls them.
const (
	KindBridge = "bridge"
	KindVLAN   = "vlan"
	KindVRF    = "vrf"
)
