package conformance

import "github.com/containernetworking/plugins/pkg/testutils"

var contractRows = group{name: "contract", rows: []row{}}

var _ = testutils.AllSpecVersions
