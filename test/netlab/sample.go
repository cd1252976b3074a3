package netlab

import (
	"hash/fnv"
	"testing"
)

// LeftOut reports whether -short leaves out the case of a number, of many that are alike. It tries one of each few. Which ones that are
// hangs on the test's name, so that tests with the same cases try different ones.
func LeftOut(t testing.TB, number, few int) bool {
	return testing.Short() && !inSample(t.Name(), number, few)
}

func inSample(name string, number, few int) bool {
	h := fnv.New32()
	_, _ = h.Write([]byte(name))
	return (int(h.Sum32()%uint32(few))+number)%few == 0
}
