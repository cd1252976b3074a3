package conformance

var tuningRows = group{name: "tuning", rows: []row{}}
