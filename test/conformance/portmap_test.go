package conformance

import "github.com/cnibox/cnibox/test/netlab"

// published is lan with published ports; keys are more of portmap's.
func published(l *lab, keys ...string) network {
	portmap := with(`{"type":"portmap","capabilities":{"portMappings":true}}`, keys...)
	if l.backend != "" {
		portmap = with(portmap, "backend", `"`+l.backend+`"`)
	}
	return conf(lan, portmap)
}

var portmapRows = group{name: "portmap", rows: []row{
	{name: "hostIP 0.0.0.0 publishes on IPv4 only", backends: true, test: func(l *lab) {
		c := l.attach(published(l), "web", ports("0.0.0.0:8080:80/tcp"))
		l.serve(&c.Namespace, 80)
		from := &l.outside().Namespace
		l.answers(tcp(from, netlab.HostIPv4, 8080), "web saw "+netlab.OutsideIPv4)
		l.silent(tcp(from, netlab.HostIPv6, 8080))
	}},
}}
