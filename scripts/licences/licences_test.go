package licences

import "testing"

// TestName makes sure that what we may not pass on is told from what we may.
func TestName(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Apache License\n   Version 2.0, January 2004\n", "Apache-2.0"},
		{"Mozilla Public License, version 2.0\n\n1. Definitions", "MPL-2.0"},
		{"The MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of\nthis software", "MIT"},
		{"Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that: 3. Neither the name of X", "BSD-3-Clause"},
		{"Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that: 1. 2.", "BSD-2-Clause"},
		{"GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007", "GPL"},
		{"GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL"},
		{"Business Source License 1.1", "unknown"},
		{"All rights reserved.", "unknown"},
	} {
		if got := Name(c.text); got != c.want {
			t.Errorf("%q is %s, want %s", c.text, got, c.want)
		}
	}
}
