package conformance

var staticRows = group{name: "static", rows: []row{}}
