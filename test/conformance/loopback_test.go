package conformance

var loopbackRows = group{name: "loopback", rows: []row{}}
