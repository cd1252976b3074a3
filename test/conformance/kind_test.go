package conformance

import "github.com/cnibox/cnibox/test/netlab"

// kindRows are about kinds of links that this kernel does not have.
var kindRows = []row{
	{name: "ADD of a link that the kernel can't make says what is missing, with code 50", differs: "its error says what the kernel said alone", test: func(l *lab) {
		lacking := false
		for _, c := range []struct {
			plugin        string
			feature       netlab.Feature
			lacks, toHave string
			network       network
			masterInside  bool
		}{
			{"dummy", netlab.Dummy, "links of type dummy", "load the kernel module dummy", conf(service), false},
			{"ipvlan", netlab.IPVLAN, "links of type ipvlan", "load the kernel module ipvlan", conf(onMaster("ipvlan", "linkInContainer", "true", "master", `"peer0"`)), true},
			{"vlan", netlab.VLAN, "links of type vlan", "load the kernel module 8021q", conf(onMaster("vlan", "linkInContainer", "true", "master", `"peer0"`)), true},
			{"vrf", netlab.VRF, "links of type vrf", "load the kernel module vrf", conf(lan, vrf), false},
			{"bridge", netlab.BridgeVLANFiltering, "bridges that filter VLANs", "use a kernel with CONFIG_BRIDGE_VLAN_FILTERING", inVLAN(100, "bridge", `"vlans0"`), false},
			{"macvlan", netlab.BroadcastQueue, "queues of broadcasts whose length can be set", "use a kernel of version 5.11 or later, or leave out bcqueuelen", l.on("macvlan", "bcqueuelen", "200"), false},
			{"portmap", netlab.NFTables, "nf_tables with NAT in family inet", "load the kernel module nft_chain_nat", published(l, "conditionsV4", `["ip","daddr","192.0.2.1"]`), false},
			{"ptp", netlab.NFTables, "nf_tables with NAT in family inet", "load the kernel module nft_chain_nat", conf(with(ptp, "ipMasqBackend", `"nftables"`)), false},
		} {
			if netlab.Has(l, c.feature) {
				continue
			}
			lacking = true
			web := l.pod("web-" + c.plugin)
			if c.masterInside {
				web.run("ip link add peer0 up type veth peer name other0")
			}
			err := web.add(c.network, ports("8080:80/tcp"))
			l.refused(err, "the kernel has no "+c.lacks, c.toHave)
			l.code(err, 50)
			if *printFlag && l.suite.name == "links" {
				printLack(c.feature, err)
			}
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
