package sha512

import (
	"bytes"
	"crypto/sha512"
	"testing"
)

func TestAllLengths(t *testing.T) {
	for n := range 3*blockSize + 1 {
		data := bytes.Repeat([]byte{byte(n)}, n)
		if got, want := Sum512(data), sha512.Sum512(data); got != want {
			t.Fatalf("%d bytes: %x, want %x", n, got, want)
		}
	}
}

func FuzzSum512(f *testing.F) {
	f.Add([]byte("podman/4f0c9bba7d3e/eth0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := Sum512(data), sha512.Sum512(data); got != want {
			t.Errorf("%x: %x, want %x", data, got, want)
		}
	})
}
