package conformance

import "github.com/cnibox/cnibox/test/netlab"

// kindRows are about kinds of links that this kernel does not have.
var kindRows = []row{
	{name: "ADD of a link that the kernel can't make says which module is missing, with code 50", differs: "its error says what the kernel said alone", test: func(l *lab) {
		lacking := false
		for _, c := range []struct {
			kind, module string
			feature      netlab.Feature
		}{{"dummy", "dummy", netlab.Dummy}, {"ipvlan", "ipvlan", netlab.IPVLAN}, {"vlan", "8021q", netlab.VLAN}, {"vrf", "vrf", netlab.VRF}} {
			if netlab.Has(l, c.feature) {
				continue
			}
			lacking = true
			web := l.pod("web-" + c.kind)
			n := conf(service)
			switch c.kind {
			case "ipvlan", "vlan":
				n = l.on(c.kind, "linkInContainer", "true", "master", `"peer0"`)
				web.run("ip link add peer0 up type veth peer name other0")
			case "vrf":
				n = conf(lan, vrf)
			}
			err := web.add(n)
			l.refused(err, "the kernel has no links of type "+c.kind, "load the kernel module "+c.module)
			l.code(err, 50)
		}
		if !lacking {
			l.foreign("this kernel has them all")
		}
	}},
	{name: "STATUS of links that the kernel may not be able to make changes nothing, and does not guess", test: func(l *lab) {
		l.run("ip link add uplink7 up type bridge")
		for _, config := range []string{service, onMaster("macvlan"), onMaster("ipvlan"), onMaster("vlan"), `{"type":"vrf","vrfname":"red"}`} {
			if object(config)["master"] != nil {
				config = with(config, "master", `"uplink7"`)
			}
			l.must(l.status(conf(config)))
		}
	}},
}
