package finding

import "slices"

// Trace notes for each finding which other one it comes of: one whose code brings its code to the same network or to all, or one before it that the
// same commands mend. Whoever mends a finding need not read those that come of it.
func Trace(list []Finding, codes Codes) {
	cause := make([]int, len(list))
	for i := range list {
		if cause[i] = slices.IndexFunc(list, func(g Finding) bool { return brings(codes, g, list[i]) }); cause[i] < 0 {
			cause[i] = slices.IndexFunc(list[:i], func(g Finding) bool { return hasSameRemedy(g, list[i]) })
		}
	}
	for i := range list {
		root := i
		for cause[root] >= 0 {
			root = cause[root]
		}
		if root != i {
			list[i].Because = list[root].Code
			list[root].Brings++
		}
	}
}

func brings(codes Codes, cause, f Finding) bool {
	c := codes.Find(cause.Code)
	isOf := cause.Network == "" || cause.Network == f.Network
	return isOf && c != nil && slices.ContainsFunc(c.Brings, func(b *Code) bool { return b.Name == f.Code })
}

func hasSameRemedy(a, b Finding) bool {
	return a.Code == b.Code && a.Commands != nil && slices.EqualFunc(a.Commands, b.Commands, slices.Equal[Command])
}
