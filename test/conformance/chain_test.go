package conformance

var chainRows = group{name: "chain", only: "chain", rows: []row{}}
