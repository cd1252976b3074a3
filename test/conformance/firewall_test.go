package conformance

var firewallRows = group{name: "firewall", rows: []row{}}
