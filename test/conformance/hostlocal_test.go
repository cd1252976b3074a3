package conformance

var hostLocalRows = group{name: "host-local", rows: []row{}}
